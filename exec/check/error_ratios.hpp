// How far a run's gradients are from exact ones, in units of what one device is.
#pragma once

#include <span>
#include <string>

namespace plumb::exec {

// Of one gradient, in the Frobenius norm.
struct ErrorRatio {
  double ratio = 0;        // ‖g − g64‖ / max(‖g1 − g64‖, 8·ε·‖g64‖); infinite if g is not finite
  bool half_right = true;  // ‖g − g64‖ ≤ √ε·‖g64‖: half of its digits
};

// `g` the run's, `g1` the single device's, `g64` fp64's: of one size. `epsilon`: unit in the last place
// of the training's precision, relative.
[[nodiscard]] ErrorRatio error_ratio(std::span<const double> g, std::span<const double> g1, std::span<const double> g64,
                                     double epsilon);

inline constexpr double most_error_ratio = 1.5;  // of each gradient; where ranks divide tensors, of all in the mean
inline constexpr double most_of_divided = 4;     // there, of a gradient that has not half of its digits

[[nodiscard]] constexpr double largest_error_ratio(bool divided) {
  return divided ? most_of_divided : most_error_ratio;
}

// Over all gradients. Where ranks only add the same summands in another order, each ratio is at most 1.5. Ranks of a
// tensor group round elsewhere than one device does, and where a gradient cancels, or has few elements, one such error
// over another may be anything: of scenarios/demo.yaml with two ranks a tensor 0.6 to 2.9, of a bias of four elements
// 2.3 on one kind of processor and below 1.5 on another. So there the geometric mean of all ratios is at most 1.5, in
// which none counts less than 1/4 (but it is never above the largest), and each gradient has a ratio of at most 4, or
// half of its digits. What a layout does wrong is of the size of a gradient.
class ErrorRatios {
 public:
  struct Largest {
    std::string tensor;
    double ratio = 0;
  };

  void add(const std::string& tensor, const ErrorRatio& of);

  [[nodiscard]] const Largest& worst() const { return worst_; }
  // Geometric, as above; of no gradients 0.
  [[nodiscard]] double mean() const;
  // What is too large, in words; empty: nothing. `divided`: ranks divide tensors.
  [[nodiscard]] std::string problem(bool divided) const;

 private:
  double logs_ = 0;
  int count_ = 0;
  Largest worst_;
  Largest wrong_;  // of those without half of their digits
};

}  // namespace plumb::exec

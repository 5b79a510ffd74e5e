// A stage whose every value depends on every value before it, and what a step of such stages must come to.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "exec/device/device.hpp"
#include "exec/stage/stage.hpp"

namespace plumb::exec::test {

inline constexpr std::size_t words = 64;  // of a boundary value
inline constexpr std::size_t boundary_bytes = words * sizeof(std::uint32_t);
inline constexpr std::size_t gradient_values = 16;                    // of a stage
inline constexpr std::size_t tied_values = 8;                         // of the first and the last stage
inline constexpr std::array<std::size_t, 3> gradient_parts{4, 8, 4};  // of the first, as they are reported
using Words = std::vector<std::uint32_t>;

// Pure: what F, I and W of a stage make of each word. Gradients are small whole numbers: their sums are exact.
[[nodiscard]] std::uint32_t first_word(int microbatch, std::size_t index);  // what the first stage reads
[[nodiscard]] std::uint32_t forward_word(int stage, int microbatch, std::uint32_t input);
[[nodiscard]] std::uint32_t last_gradient(int microbatch, std::uint32_t kept);  // where I of the last stage begins
[[nodiscard]] std::uint32_t gradient_word(int stage, int microbatch, std::uint32_t gradient, std::uint32_t kept);
[[nodiscard]] float weight_word(std::uint32_t gradient, std::uint32_t kept);
[[nodiscard]] double loss_word(std::uint32_t output);

// All stages of one pipeline in a row, by plain loops.
struct Expected {
  std::vector<std::vector<float>> gradients;  // by stage
  std::vector<float> tied;                    // of both ends, summed
  double loss = 0;
};
[[nodiscard]] Expected expected_step(int stages, int microbatches);

// Puts work on a device's compute stream; does it at once on the host.
using Put = std::function<void(std::function<void()>)>;

class HashingStage final : public Stage {
 public:
  // With `tied` the first and the last of them have a tied table's gradient.
  HashingStage(Device& device, Put put, int stage, int stages, bool tied);

  void begin_step(std::int64_t step) override;
  [[nodiscard]] Payload forward(int microbatch, Payload input) override;
  void recompute(int microbatch) override;
  [[nodiscard]] Payload input_gradient(int microbatch, Payload output_gradient) override;
  [[nodiscard]] Parcel evict(int microbatch) override;
  void load(int microbatch, Parcel parcel) override;
  void weight_gradient(int microbatch) override;
  void report_gradients(std::function<void(DeviceFloats)> complete) override { complete_ = std::move(complete); }
  [[nodiscard]] std::vector<DeviceFloats> gradients() override;
  [[nodiscard]] DeviceFloats tied_gradient() override;
  [[nodiscard]] std::vector<StoredWeight> stored_weights() override { return {}; }
  // All of its gradients, the tied table's on the first stage.
  void find_squares() override;
  [[nodiscard]] kernels::ExactSquares squares() const override { return *squares_; }
  void scale_gradients(double scale) override;
  // Notes down what it would apply.
  void optimizer_step() override;
  void end_step() override;
  [[nodiscard]] double loss() const override;

  // By the last optimizer's step, when it has ended: without a tied table's.
  [[nodiscard]] const std::vector<float>& applied() const { return *applied_; }

 private:
  [[nodiscard]] bool is_first() const { return stage_ == 0; }
  [[nodiscard]] bool is_last() const { return stage_ == stages_ - 1; }
  [[nodiscard]] bool is_tied() const { return tied_ && (is_first() || is_last()); }

  Device& device_;
  Put put_;
  int stage_;
  int stages_;
  bool tied_;
  Payload gradient_;  // gradient_values, then tied_values
  Payload loss_;
  std::map<int, Payload> kept_;                             // from F until I
  std::map<int, std::pair<Payload, Payload>> weight_work_;  // gradient and kept, from I until W
  std::function<void(DeviceFloats)> complete_;
  bool reported_ = false;  // in this step
  std::shared_ptr<kernels::ExactSquares> squares_ = std::make_shared<kernels::ExactSquares>();
  std::shared_ptr<std::vector<float>> applied_ = std::make_shared<std::vector<float>>();
};

}  // namespace plumb::exec::test

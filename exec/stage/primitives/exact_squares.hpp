// The sum of squares of fp32 values without rounding: the same whatever the order and the ranks that add.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace plumb::exec {

// A fixed-point number as wide as all squares of fp32 values and their sums (a superaccumulator: Kulisch 2013, Computer
// Arithmetic and Validity, section 8; Neal 2015, arXiv 1505.05571): at most 2^63 values.
class ExactSquares {
 public:
  static constexpr std::size_t digits = 20;  // of 32 bits

  void add(std::span<const float> values);
  void add(const ExactSquares& other);

  // Rounded to the nearest fp64, ties to even; NaN where a value was not finite.
  [[nodiscard]] double sum() const;

  // As bytes that go between ranks; the inverse. Equal sums have equal bytes.
  using Bytes = std::array<std::byte, (digits + 1) * sizeof(std::uint64_t)>;
  [[nodiscard]] Bytes to_bytes() const;
  [[nodiscard]] static ExactSquares from_bytes(const Bytes& bytes);

  bool operator==(const ExactSquares&) const = default;

 private:
  void add_square(std::uint32_t bits);
  void carry();

  // Least first, in units of 2^-298; between calls each below 2^32.
  std::array<std::uint64_t, digits> digits_{};
  std::uint64_t not_finite_ = 0;  // 1 if any value was
};

}  // namespace plumb::exec

// The sum of squares of fp32 values without rounding: the same whatever the order and the ranks that add.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/device/types.hpp"

namespace plumb::kernels {

// A fixed-point number as wide as all squares of fp32 values and their sums (a superaccumulator: Kulisch 2013, Computer
// Arithmetic and Validity, section 8; Neal 2015, arXiv 1505.05571): at most 2^63 values.
class ExactSquares {
 public:
  static constexpr std::size_t digits = 20;  // of 32 bits

  void add(std::span<const float> values);
  void add(const ExactSquares& other);

  // Rounded to the nearest fp64, ties to even; NaN where a value was not finite.
  [[nodiscard]] double sum() const;

  // As numbers that go between ranks: digits, least first, in units of 2^-298, then whether any value was not finite
  // (not 0). Of equal sums they are equal. The inverse takes digits of any size.
  using Numbers = std::array<std::uint64_t, digits + 1>;
  [[nodiscard]] Numbers numbers() const;
  [[nodiscard]] static ExactSquares from_numbers(const Numbers& numbers);

  bool operator==(const ExactSquares&) const = default;

 private:
  void add_square(std::uint32_t bits);
  void carry();

  std::array<std::uint64_t, digits> digits_{};  // between calls each below 2^32
  std::uint64_t not_finite_ = 0;                // 1 if any value was
};

struct SquaresTensor {
  const float* values = nullptr;
  std::int64_t size = 0;
};

// 64-bit numbers of memory that exact_squares works in.
[[nodiscard]] std::int64_t exact_squares_workspace();

// On the GPU: `numbers`, of ExactSquares::Numbers, of all the tensors' values; without atomics, in few launches. Throws
// std::invalid_argument on a bad size and CudaError where CUDA fails. The tensors' list is read before the call
// returns.
void exact_squares(std::span<const SquaresTensor> tensors, std::uint64_t* workspace, std::uint64_t* numbers,
                   Stream stream);

}  // namespace plumb::kernels

// Arrays of a type in the memory of the kernels under test, and how far what they hold is from what they should.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "kernels/device/numbers.hpp"
#include "kernels/device/types.hpp"
#include "tests/catch.hpp"
#include "tests/kernels/place.hpp"

namespace plumb::test {

using kernels::Type;
using Numbers = std::vector<double>;
using Bytes = std::vector<unsigned char>;

inline double rounded(Type type, double x) {
  const auto narrow = static_cast<float>(x);
  switch (type) {
    case Type::fp32:
      return narrow;
    case Type::fp16:
      return kernels::from_fp16_bits(kernels::fp16_bits(narrow));
    case Type::bf16:
      return kernels::from_bf16_bits(kernels::bf16_bits(narrow));
  }
  return 0;
}

inline Numbers rounded(Type type, Numbers numbers) {
  for (double& x : numbers) x = rounded(type, x);
  return numbers;
}

// The same numbers for the same seed, between −1 and 1, scaled.
inline Numbers made_up(std::size_t count, unsigned seed, double scale = 1) {
  Numbers numbers(count);
  std::uint64_t state = seed * 0x9e3779b97f4a7c15ULL + 1;
  for (double& x : numbers) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    x = scale * (static_cast<double>(state >> 11) * 0x1p-52 - 1);
  }
  return numbers;
}

class Array {
 public:
  // Without numbers: 0xff, which is NaN in every type.
  Array(Type type, std::size_t count) : type_(type), count_(count), memory_(allocate(bytes())) {}
  Array(Type type, const Numbers& numbers) : Array(type, numbers.size()) { write(numbers); }
  ~Array() { release(memory_); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  [[nodiscard]] void* data() const { return memory_; }
  [[nodiscard]] float* floats() const { return static_cast<float*>(memory_); }

  void write(const Numbers& numbers) {
    std::vector<std::uint32_t> wide(count_);
    std::vector<std::uint16_t> narrow(count_);
    for (std::size_t i = 0; i < count_; ++i) {
      const auto x = static_cast<float>(numbers[i]);
      wide[i] = std::bit_cast<std::uint32_t>(x);
      narrow[i] = type_ == Type::bf16 ? kernels::bf16_bits(x) : kernels::fp16_bits(x);
    }
    copy_in(memory_, type_ == Type::fp32 ? static_cast<const void*>(wide.data()) : narrow.data(), bytes());
  }

  [[nodiscard]] Bytes raw() const {
    Bytes copy(bytes());
    copy_out(copy.data(), memory_, bytes());
    return copy;
  }

  [[nodiscard]] Numbers read() const {
    const Bytes copy = raw();
    Numbers numbers(count_);
    for (std::size_t i = 0; i < count_; ++i) {
      if (type_ == Type::fp32) {
        numbers[i] = reinterpret_cast<const float*>(copy.data())[i];
      } else {
        const std::uint16_t bits = reinterpret_cast<const std::uint16_t*>(copy.data())[i];
        numbers[i] = type_ == Type::bf16 ? kernels::from_bf16_bits(bits) : kernels::from_fp16_bits(bits);
      }
    }
    return numbers;
  }

 private:
  [[nodiscard]] std::size_t bytes() const { return count_ * kernels::bytes_of(type_); }

  Type type_;
  std::size_t count_;
  void* memory_;
};

inline double distance(const Numbers& a, const Numbers& b) {
  double squares = 0;
  for (std::size_t i = 0; i < b.size(); ++i) squares += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(squares);
}

// The error against the exact numbers, in the Frobenius norm, over what cannot be avoided: the rounding of the exact
// ones to the type, or 8 ε of fp32. Any way that rounds its result once, as ATen does, is no better than 1.
inline double error_ratio(Type type, const Numbers& found, const Numbers& exact) {
  const double floor = 8 * 0x1p-24 * distance(Numbers(exact.size(), 0.0), exact);
  return distance(found, exact) / std::max({distance(rounded(type, exact), exact), floor, 1e-300});
}
constexpr double most_error = 1.5;

// Runs it each way; the bytes that it returns must be the same each time.
template <class F>
void same_bits_each_way(const F& run) {
  std::optional<Bytes> first;
  each_way([&] {
    const Bytes bytes = run();
    if (!first) first = bytes;
    CHECK(bytes == *first);
  });
}

inline Bytes operator+(Bytes a, const Bytes& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

constexpr Type all_types[] = {Type::fp32, Type::fp16, Type::bf16};

}  // namespace plumb::test

// What every kernel's interface shares: the types of elements, and the stream that a kernel is put on.
#pragma once

#include <cstddef>

namespace plumb::kernels {

// Elements in memory. Kernels compute in fp32, whatever the type.
enum class Type { fp32, fp16, bf16 };

[[nodiscard]] constexpr std::size_t bytes_of(Type type) { return type == Type::fp32 ? 4 : 2; }

// Sums and statistics that are kept beside elements: fp32, or fp64 beside those of a reference. Argument structs are
// templates on what they point to: `Args<void>` for a kernel, whose elements are of a Type, `Args<double>` for its
// reference on the CPU.
template <class Element>
struct StatisticOf {
  using type = float;
};
template <>
struct StatisticOf<double> {
  using type = double;
};
template <class Element>
using Statistic = typename StatisticOf<Element>::type;

// A cudaStream_t, which c10::Stream::native_handle() gives too; none: the default stream. A kernel returns when it is
// queued; its arrays must live until the stream has passed it.
struct Stream {
  void* handle = nullptr;
};

}  // namespace plumb::kernels

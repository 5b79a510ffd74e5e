#include "exec/stage/primitives/kernel_table.hpp"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <array>
#include <utility>

#include "exec/device/native_stream.hpp"

namespace plumb::exec {
namespace {

using Tables = std::array<const KernelTable*, static_cast<std::size_t>(c10::DeviceType::COMPILE_TIME_MAX_DEVICE_TYPES)>;

Tables& tables() {
  static Tables all = [] {
    Tables made = {};
#ifdef PLUMB_CUDA_KERNELS
    static const KernelTable of_cuda = linked_kernels();
    made[static_cast<std::size_t>(c10::DeviceType::CUDA)] = &of_cuda;
#endif
    return made;
  }();
  return all;
}

}  // namespace

const KernelTable* kernel_table(const at::Tensor& x) { return tables()[static_cast<std::size_t>(x.device().type())]; }

const KernelTable* set_kernel_table(c10::DeviceType kind, const KernelTable* table) {
  return std::exchange(tables()[static_cast<std::size_t>(kind)], table);
}

bool is_kernel_type(at::ScalarType type) { return type == at::kFloat || type == at::kHalf || type == at::kBFloat16; }

kernels::Type kernel_type(at::ScalarType type) {
  switch (type) {
    case at::kHalf:
      return kernels::Type::fp16;
    case at::kBFloat16:
      return kernels::Type::bf16;
    default:
      return kernels::Type::fp32;
  }
}

kernels::Stream current_stream(const at::Tensor& x) {
  if (x.is_cpu()) return {};
  const c10::impl::VirtualGuardImpl guard(x.device().type());
  return {.handle = native_stream(guard.getStream(x.device()))};
}

}  // namespace plumb::exec

#include "exec/device/blas.hpp"

#include <ATen/ATen.h>
#include <dlfcn.h>

#include <cstdlib>
#include <mutex>
#include <string>
#include <string_view>

#include "common/base/error.hpp"

namespace plumb::exec {
namespace {

// A function of the OpenBLAS that this process has loaded, by its name; null if it has none.
template <class Function>
Function* openblas(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_DEFAULT, name));
}

}  // namespace

void make_products_repeatable(const std::string& device) {
  const c10::Device place(device);
  if (place.is_cpu()) return;
  static std::once_flag asked;
  std::call_once(asked, [&] {
    constexpr const char* variable = "CUBLAS_WORKSPACE_CONFIG";
    const bool is_ours = std::getenv(variable) == nullptr;
    if (is_ours) ::setenv(variable, ":4096:8", /*overwrite=*/1);
    const at::Tensor x = at::ones({8, 8}, place);
    (void)at::mm(x, x);
    if (is_ours) ::unsetenv(variable);
  });
}

void use_one_blas_thread() {
  if (auto* const set = openblas<void(int)>("openblas_set_num_threads")) set(1);
}

void require_blas_for_threads() {
  auto* const parallel = openblas<int()>("openblas_get_parallel");
  auto* const config = openblas<const char*()>("openblas_get_config");
  if (parallel == nullptr || config == nullptr || parallel() != 0) return;
  if (std::string_view(config()).find("USE_LOCKING") != std::string_view::npos) return;
  throw InputError("BLAS", std::string("does not bear ranks that are threads: ") + config(),
                   "apt-get install libopenblas0-pthread, or --transport gloo, where ranks are processes");
}

}  // namespace plumb::exec

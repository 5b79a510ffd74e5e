#include "exec/device/blas.hpp"

#include <dlfcn.h>

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

#include "tests/exec/stage/emulated_kernels.hpp"

namespace plumb::exec::test {

KernelTable emulated_kernels() { return linked_kernels(); }

}  // namespace plumb::exec::test

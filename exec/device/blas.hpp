// The BLAS library under LibTorch, where that is OpenBLAS as in Debian's packages; PyTorch's own bring MKL.
#pragma once

namespace plumb::exec {

// A product is computed on the thread that calls it from now on: each rank has one thread. Without OpenBLAS, nothing.
void use_one_blas_thread();

// Throws InputError where BLAS may not be called by several threads at once: an OpenBLAS built for programs of one
// thread. Its calls share buffers, and the losses come out wrong.
void require_blas_for_threads();

}  // namespace plumb::exec

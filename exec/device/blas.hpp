// The BLAS library under LibTorch: OpenBLAS in Debian's packages, MKL in PyTorch's own, cuBLAS on a GPU.
#pragma once

#include <string>

namespace plumb::exec {

// A product is computed on the thread that calls it from now on: each rank has one thread. Without OpenBLAS, nothing.
void use_one_blas_thread();

// Under LibTorch's deterministic mode, before the first product on the device: that has the same bits from run to run.
// LibTorch refuses to multiply on a GPU unless CUBLAS_WORKSPACE_CONFIG says so, which it asks for once, and from then
// on parses that text at each product, for a third of a millisecond (2.11). What counts is that each stream has a
// workspace of its own, and LibTorch gives it one in any case (cuBLAS's documentation, "Results reproducibility"). So
// the variable is set for the first product only, unless it was there. Nothing on the host.
void make_products_repeatable(const std::string& device);

// Throws InputError where BLAS may not be called by several threads at once: an OpenBLAS built for programs of one
// thread. Its calls share buffers, and the losses come out wrong.
void require_blas_for_threads();

}  // namespace plumb::exec

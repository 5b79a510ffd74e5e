// This program poses as an OpenBLAS: its functions are found before those of any library.
#include "exec/device/blas.hpp"

#include <string>

#include "common/base/error.hpp"
#include "tests/catch.hpp"

namespace {

int kind = 1;  // as OpenBLAS counts: 0 built for one thread, 1 for POSIX threads, 2 for OpenMP
std::string config;
int threads = 0;

}  // namespace

extern "C" {
int openblas_get_parallel() { return kind; }
const char* openblas_get_config() { return config.c_str(); }
void openblas_set_num_threads(int count) { threads = count; }
}

TEST_CASE("ranks that are threads need a BLAS that bears them") {
  kind = 1;
  config = "OpenBLAS 0.3.29 NO_AFFINITY SkylakeX MAX_THREADS=128";
  CHECK_NOTHROW(plumb::exec::require_blas_for_threads());
  kind = 0;
  config = "OpenBLAS 0.3.29 NO_AFFINITY USE_LOCKING SkylakeX SINGLE_THREADED";
  CHECK_NOTHROW(plumb::exec::require_blas_for_threads());
  config = "OpenBLAS 0.3.29 NO_AFFINITY SkylakeX SINGLE_THREADED";
  CHECK_THROWS_WITH(plumb::exec::require_blas_for_threads(),
                    ContainsSubstring("SINGLE_THREADED") && ContainsSubstring("libopenblas0-pthread"));
}

TEST_CASE("every rank computes its products on its own thread") {
  plumb::exec::use_one_blas_thread();
  CHECK(threads == 1);
}

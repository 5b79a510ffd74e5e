// What a test tells the fake library to do wrong, and what it counts.
#pragma once

namespace plumb::exec {

struct FakeNcclScript {
  int version = 23004;  // as NCCL_VERSION_CODE
  int init_result = 0;  // what joining a communicator returns (ncclResult_t)
  // From its n-th batch on (counting from 0, all its communicators together) the rank of that position …
  int faulty_rank = -1;
  int faulty_batch = 0;
  enum class Fault { none, asynchronous_error, hang } fault = Fault::none;
  bool hang_in_init = false;  // of that rank, until the test ends
};

struct FakeNcclCounts {
  int joined = 0;  // communicators of ranks
  int aborted = 0;
  int destroyed = 0;
  int batches = 0;
  int collectives = 0;       // whose results are there
  int mismatches = 0;        // pairs of a send and a receive, or parts of a collective, that do not fit
  int used_after_abort = 0;  // calls that would have crashed
};

// The library exports both under these names.
using FakeNcclReset = void (*)(const FakeNcclScript* script);
using FakeNcclCount = void (*)(FakeNcclCounts* counts);
inline constexpr const char* fake_nccl_reset_name = "fake_nccl_reset";
inline constexpr const char* fake_nccl_count_name = "fake_nccl_count";

}  // namespace plumb::exec

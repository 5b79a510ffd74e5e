// How libnccl is found, checked and refused, with the fake library in its place and, where it is here, the real one.
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "exec/transport/nccl/nccl_library.hpp"
#include "tests/catch.hpp"
#include "tests/exec/fake_nccl/nccl_ranks.hpp"
#include "tests/exec/temporary_folder.hpp"

using namespace plumb;
using namespace plumb::exec;

TEST_CASE("NCCL's versions are read as it writes them") {
  CHECK(nccl_version_text(23004) == "2.30.4");
  CHECK(nccl_version_text(22809) == "2.28.9");
  CHECK(nccl_version_text(2708) == "2.7.8");
  CHECK(oldest_nccl < nccl_with_shared_gpus);
}

TEST_CASE("a library that is not there, is something else or too old is refused in one line with a hint") {
  CHECK_THROWS_AS(load_nccl("/nowhere/libnccl.so.2"), InputError);
  CHECK_THROWS_WITH(
      load_nccl("/nowhere/libnccl.so.2"),
      ContainsSubstring("'nccl' cannot load NCCL: /nowhere/libnccl.so.2") && ContainsSubstring("PLUMB_NCCL_LIBRARY"));
  CHECK_THROWS_WITH(load_nccl("libm.so.6"), ContainsSubstring("libm.so.6 has no ncclGetVersion"));
  const FakeNccl old({.version = 21003});
  CHECK_THROWS_WITH(load_nccl(PLUMB_FAKE_NCCL), ContainsSubstring("is NCCL 2.10.3, and 'nccl' needs 2.18.1 or newer"));
}

TEST_CASE("the environment's file goes before the search, and says its version") {
  const FakeNccl fake;
  ::setenv("PLUMB_NCCL_LIBRARY", PLUMB_FAKE_NCCL, 1);
  CHECK(load_nccl()->path == PLUMB_FAKE_NCCL);
  CHECK(require_nccl().version == "2.30.4");
  CHECK(require_nccl().file == PLUMB_FAKE_NCCL);
  ::setenv("PLUMB_NCCL_LIBRARY", "/nowhere/else.so", 1);
  CHECK_THROWS_WITH(load_nccl(), ContainsSubstring("/nowhere/else.so"));
  ::unsetenv("PLUMB_NCCL_LIBRARY");
}

// In a process of its own, since what is loaded may stay.
TEST_CASE("a library beside another one that the process has loaded is refused, and how to take it is said") {
  const TemporaryFolder folder;
  const std::string other = folder / "libnccl-of-torch.so";
  std::filesystem::copy_file(PLUMB_FAKE_NCCL, other);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    if (::dlopen(other.c_str(), RTLD_NOW | RTLD_GLOBAL) == nullptr) ::_exit(2);
    std::string said;
    try {
      (void)load_nccl(PLUMB_FAKE_NCCL);
    } catch (const InputError& error) {
      said = error.what();
    }
    const bool named = said.find("with " + other + ", which LibTorch has loaded") != std::string::npos &&
                       said.find("LD_PRELOAD=") != std::string::npos;
    ::_exit(named && load_nccl(other)->path == other ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("an NCCL failure is one line with NCCL's last words and a hint of its kind") {
  const FakeNccl fake;
  const auto library = load_nccl(PLUMB_FAKE_NCCL);
  const RunError cuda = nccl_error(*library, "rank 3", "down (ranks 0-3)", ncclUnhandledCudaError);
  CHECK(cuda.where() == "rank 3");
  CHECK(cuda.problem() ==
        "down (ranks 0-3): NCCL 2.30.4 says: unhandled cuda error (run with NCCL_DEBUG=INFO for details) "
        "(the fake's last words)");
  CHECK_THAT(cuda.hint(), ContainsSubstring("nvidia-smi"));
  CHECK_THAT(nccl_error(*library, "", "", ncclRemoteError).hint(), ContainsSubstring("NCCL_SOCKET_IFNAME"));
  CHECK_THAT(nccl_error(*library, "", "", ncclInvalidUsage).hint(), ContainsSubstring("NCCL_MULTI_RANK_GPU_ENABLE"));
}

// Needs no GPU: without a driver NCCL gives ids, and fails when a communicator is made.
TEST_CASE("the real library, where it is here and no driver is, says so in one line with a hint") {
  std::shared_ptr<const NcclLibrary> library;
  try {
    library = load_nccl(PLUMB_REAL_NCCL);
  } catch (const InputError& error) {
    WARN("no libnccl.so.2 here: " << error.problem());
    return;
  }
  if (::dlopen("libcuda.so.1", RTLD_NOW) != nullptr) {
    WARN("there is a driver here: nothing to see");
    return;
  }
  test::AsyncDevice device;
  Board board;
  auto control = std::move(make_local_transports(1).front());
  const NcclOptions options{.communicators = {{CommunicatorUse::down, {0}}}, .library_file = PLUMB_REAL_NCCL};
  try {
    (void)make_nccl_transport(options, std::move(control), device, board.rendezvous());
    FAIL("a communicator was made without a driver");
  } catch (const RunError& error) {
    CAPTURE(error.problem());
    CHECK(error.problem().find('\n') == std::string::npos);
    CHECK_THAT(error.problem(), ContainsSubstring("unhandled cuda error") && ContainsSubstring("driver"));
    CHECK_THAT(error.hint(), ContainsSubstring("nvidia-smi"));
  }
}

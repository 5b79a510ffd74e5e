#include "common/base/error.hpp"

#include "tests/catch.hpp"

using namespace plumb;

TEST_CASE("an error says where, what and what to do") {
  const InputError error(Place{"run.yaml", 3, 7}, "unknown key 'schedul'", "did you mean 'schedule'?");
  CHECK(std::string(error.what()) == "run.yaml:3:7: unknown key 'schedul'\n  hint: did you mean 'schedule'?");
  CHECK(error.status() == ExitStatus::wrong_input);
  CHECK(RunError("rank 2", "died").status() == ExitStatus::run_failed);
}

TEST_CASE("a place leaves out what is unknown") {
  CHECK(to_string(Place{"a.yaml", 0, 4}) == "a.yaml");
  CHECK(to_string(Place{"a.yaml", 2, 0}) == "a.yaml:2");
}

TEST_CASE("an error's text is printable as a whole") {
  CHECK(std::string(InputError("a\x1b.csv", std::string("'\0' there", 9), "\xff").what()) ==
        "a\\x1b.csv: '\\x00' there\n  hint: \\xff");
}

TEST_CASE("did you mean names the nearest candidate, or all when none is near") {
  CHECK(did_you_mean("zbh1", {"gpipe", "zb-h1", "1f1b"}) == "did you mean 'zb-h1'?");
  CHECK(did_you_mean("1F1B", {"gpipe", "zb-h1", "1f1b"}) == "did you mean '1f1b'?");
  CHECK(did_you_mean("shwo", {"plan", "show"}) == "did you mean 'show'?");  // neighbours swapped
  const std::vector<std::string> machines{"local-cpu",   "dgx-a100-4nic", "dgx-a100",
                                          "gb200-nvl72", "dgx-b200",      "pcie-rtx4090"};
  CHECK(did_you_mean("A100", machines) == "did you mean 'dgx-a100'?");
  CHECK(did_you_mean("b200", machines) == "did you mean 'dgx-b200'?");
  CHECK(did_you_mean("4090", machines) == "did you mean 'pcie-rtx4090'?");
  CHECK(did_you_mean("-", machines).starts_with("one of: "));
  CHECK(did_you_mean("warp", {"gpipe", "zb-h1"}) == "one of: gpipe, zb-h1");
}

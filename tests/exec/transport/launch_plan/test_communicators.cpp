// Which communicators a mesh needs, in the one order in which all ranks make them.
#include "exec/transport/launch_plan/communicators.hpp"

#include <algorithm>

#include "common/base/error.hpp"
#include "common/schedule/generators/registry.hpp"
#include "tests/catch.hpp"

using namespace plumb;
using namespace plumb::exec;

namespace {

std::vector<std::string> described(const std::vector<CommunicatorSpec>& all) {
  std::vector<std::string> texts;
  for (const CommunicatorSpec& spec : all) texts.push_back(describe(spec));
  return texts;
}

}  // namespace

TEST_CASE("a mesh has two communicators per pipeline and one per group of each longer axis") {
  Layout layout;
  layout.pipeline = 2;
  layout.tensor.degree = 2;
  layout.data.degree = 2;
  const Schedule lowered = lower(generate_schedule("1f1b", {.ranks = 2, .microbatches = 4}), {.tied_embeddings = true});
  // Tensor innermost, then data, then pipeline: rank = tensor + 2 data + 4 pipeline.
  CHECK(described(plan_communicators(lowered, layout)) ==
        std::vector<std::string>{
            "down (ranks 0, 4)",   "down (ranks 1, 5)",   "down (ranks 2, 6)",   "down (ranks 3, 7)",
            "up (ranks 0, 4)",     "up (ranks 1, 5)",     "up (ranks 2, 6)",     "up (ranks 3, 7)",
            "tied (ranks 0, 4)",   "tied (ranks 1, 5)",   "tied (ranks 2, 6)",   "tied (ranks 3, 7)",
            "tensor (ranks 0, 1)", "tensor (ranks 2, 3)", "tensor (ranks 4, 5)", "tensor (ranks 6, 7)",
            "data (ranks 0, 2)",   "data (ranks 1, 3)",   "data (ranks 4, 6)",   "data (ranks 5, 7)"});
}

TEST_CASE("parts of tensor groups that have sums of their own have communicators of their own") {
  Layout layout;
  layout.tensor.degree = 4;
  layout.data.degree = 2;
  const Schedule lowered = lower(generate_schedule("gpipe", {.ranks = 1, .microbatches = 2}), {});
  const auto all = plan_communicators(lowered, layout, {{0, 1}, {2, 3}});
  CHECK(described(all) ==
        std::vector<std::string>{"tensor (ranks 0-3)", "tensor (ranks 4-7)", "tensor part (ranks 0, 1)",
                                 "tensor part (ranks 2, 3)", "tensor part (ranks 4, 5)", "tensor part (ranks 6, 7)",
                                 "data (ranks 0, 4)", "data (ranks 1, 5)", "data (ranks 2, 6)", "data (ranks 3, 7)"});
}

TEST_CASE("evictions and replicas have communicators of their own, and dense weights one over several axes") {
  Layout layout;
  layout.pipeline = 4;
  const Schedule evicting = lower(generate_schedule("bpipe", {.ranks = 4, .microbatches = 8}), {});
  CHECK(described(plan_communicators(evicting, layout)) ==
        std::vector<std::string>{"down (ranks 0-3)", "up (ranks 0-3)", "evictions (ranks 0-3)"});
  const Schedule both = lower(generate_schedule("chimera", {.ranks = 4, .microbatches = 4}), {});
  CHECK(described(plan_communicators(both, layout)) == std::vector<std::string>{"down (ranks 0-3)", "up (ranks 0-3)",
                                                                                "replicas (ranks 0, 3)",
                                                                                "replicas (ranks 1, 2)"});
  Layout wide;
  wide.data.degree = 2;
  wide.expert = 2;
  const Schedule one = lower(generate_schedule("gpipe", {.ranks = 1, .microbatches = 1}), {});
  CHECK(described(plan_communicators(one, wide)).back() == "gradients (ranks 0-3)");
}

TEST_CASE("a layout of other pipeline ranks than the schedule is refused") {
  const Schedule lowered = lower(generate_schedule("gpipe", {.ranks = 2, .microbatches = 2}), {});
  CHECK_THROWS_WITH(plan_communicators(lowered, Layout{}), ContainsSubstring("has 1 pipeline ranks"));
}

#include "exec/commands/executed_layout.hpp"

#include "common/base/error.hpp"
#include "tests/catch.hpp"
#include "tests/exec/tiny_plan.hpp"

using namespace plumb;
using namespace plumb::exec;

namespace {

std::string refusal(const Plan& plan, const SessionOptions& options = {}) {
  try {
    require_executed_layout(plan, options);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("pipelines and plain data parallelism are executed on the host, and what else there is says what is") {
  CHECK(refusal(tiny_plan({})).empty());
  Plan plan = tiny_plan({.data = 2});
  for (const std::string transport : {"local", "gloo"}) {
    SessionOptions options;
    options.transport = transport;
    CHECK(refusal(plan, options).empty());
  }
  SessionOptions nccl;
  nccl.transport = "nccl";
  nccl.device = "cuda";
  CHECK_THAT(refusal(plan, nccl), ContainsSubstring("dp2") && ContainsSubstring("--transport local or gloo"));
  nccl.transport = "local";
  CHECK_THAT(refusal(plan, nccl), ContainsSubstring("on the host only so far"));

  for (const Sharding sharding : {Sharding::zero1, Sharding::zero2, Sharding::zero3, Sharding::fsdp, Sharding::hsdp}) {
    Plan sharded = plan;
    sharded.layout.data.sharding = sharding;
    CHECK_THAT(refusal(sharded), ContainsSubstring("data: {sharding: none}"));
  }
  Plan by_stage = plan;
  by_stage.layout.stage_data = {2, 1};
  CHECK_THAT(refusal(by_stage), ContainsSubstring("all stages have one data degree"));
  Plan tensor = plan;
  tensor.layout.tensor.degree = 2;
  CHECK_THAT(refusal(tensor), ContainsSubstring("tensor, context and expert degrees of 1"));

  for (const std::string schedule : {"dualpipe", "chimera"}) {
    const Plan both_ways = tiny_plan({.schedule = schedule, .data = 2});
    CHECK_THAT(refusal(both_ways), ContainsSubstring(schedule) && ContainsSubstring("such as zb-h1"));
    CHECK(refusal(tiny_plan({.schedule = schedule})).empty());
  }
  for (const std::string schedule : {"pipedream", "pipedream-2bw"}) {
    CHECK_THAT(refusal(tiny_plan({.schedule = schedule, .data = 2})), ContainsSubstring("such as 1f1b"));
  }
}

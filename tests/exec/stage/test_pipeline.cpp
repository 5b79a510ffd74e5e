// Pipelines over both transports against the single device: losses and every gradient, bit by bit.
#include <algorithm>
#include <cmath>

#include "common/base/error.hpp"
#include "exec/check/check.hpp"
#include "tests/catch.hpp"
#include "tests/common/schedule/shapes.hpp"
#include "tests/exec/check/references.hpp"
#include "tests/exec/stage/models.hpp"
#include "tests/exec/stage/pipelines.hpp"
#include "tests/exec/transport/transports.hpp"

using namespace plumb;
using namespace plumb::exec;
using test::Wanted;

namespace {

void require_bitwise(const Wanted& wanted, const TransportKind& transport = {"local", make_local_transports}) {
  const Plan plan = test::training_plan(wanted);
  INFO(plan.name << ", ranks " << wanted.ranks << ", chunks " << wanted.chunks << ", " << transport.name);
  const test::TrainingRun run = test::train(plan, 2, transport.make);
  const CheckResult result = test::check_against_shared_reference(plan, run.losses, run.gradients);
  INFO(result.problem);
  CHECK(result.passed);
  CHECK(result.bitwise_equal);
  CHECK(result.worst_error_ratio <= 1.0);  // the run is the single device
  const double choices = wanted.model.vision ? static_cast<double>(wanted.model.vision->classes) : 256;
  CHECK(run.losses.front() == Approx(std::log(choices)).epsilon(0.05));  // uniform at the start
}

}  // namespace

// On more ranks: test_schedules.
TEST_CASE("Schedules on one rank train like a single device, over every transport") {
  const std::string schedule = GENERATE("gpipe", "1f1b", "interleaved-1f1b", "zb-h1");
  const int chunks = fewest_chunks(schedule);
  for (const TransportKind& transport : transport_kinds()) {
    require_bitwise({.model = test::hybrid(), .schedule = schedule, .ranks = 1, .chunks = chunks}, transport);
  }
}

TEST_CASE("Every model family trains like a single device on two ranks") {
  const Model model = GENERATE(test::llama(2), test::gpt2(2, true), test::gpt2(2, false), test::mixtral(2));
  require_bitwise({.model = model, .schedule = "1f1b", .ranks = 2});
}

TEST_CASE("GPT-J's parallel block and ViT train like a single device on 2 and 4 ranks") {
  const Model model = GENERATE(test::gptj(8), test::vit(8));
  const std::string schedule = GENERATE("1f1b", "interleaved-1f1b", "zb-v");
  const int ranks = GENERATE(2, 4);
  const int chunks = schedule == "1f1b" ? 1 : 2;
  const TransportKind transport = transport_kinds()[ranks == 2 ? 0 : 1];
  require_bitwise({.model = model, .schedule = schedule, .ranks = ranks, .chunks = chunks}, transport);
}

TEST_CASE("GPT-J and ViT recompute, and train in bf16, like a single device") {
  const Model model = GENERATE(test::gptj(4), test::vit(4));
  require_bitwise({.model = model, .schedule = "zb-v", .ranks = 2, .chunks = 2, .recompute = true});
  require_bitwise({.model = model, .schedule = "zb-v", .ranks = 2, .chunks = 2, .precision = ElementType::bf16});
}

TEST_CASE("A tied table is the sum of both copies, wherever these are") {
  for (const TransportKind& transport : transport_kinds()) {
    require_bitwise({.model = test::gpt2(4, true), .schedule = "zb-h1", .ranks = 4}, transport);
  }
  require_bitwise({.model = test::gpt2(4, true), .schedule = "interleaved-1f1b", .ranks = 2, .chunks = 2});
  require_bitwise({.model = test::gpt2(4, true), .schedule = "gpipe", .ranks = 1});
}

TEST_CASE("Recomputed activations are the same bits") {
  require_bitwise({.model = test::hybrid(), .schedule = "1f1b", .ranks = 2, .recompute = true});
  require_bitwise({.model = test::hybrid(), .schedule = "zb-h1", .ranks = 4, .recompute = true});
}

TEST_CASE("bf16 pipelines are the same bits as bf16 on a single device") {
  require_bitwise({.model = test::hybrid(), .schedule = "1f1b", .ranks = 2, .precision = ElementType::bf16});
  require_bitwise({.model = test::gpt2(2, true), .schedule = "zb-h1", .ranks = 2, .precision = ElementType::bf16});
}

TEST_CASE("Training learns") {
  Wanted wanted{.model = test::gpt2(2, true), .ranks = 2};
  SECTION("tied, fp32") {}
  SECTION("GPT-J") { wanted.model = test::gptj(2); }
  SECTION("hybrid, bf16") {
    wanted.model = test::hybrid();
    wanted.precision = ElementType::bf16;
  }
  const test::TrainingRun run = test::train(test::training_plan(wanted), 20);
  CHECK(run.losses.back() < 0.9 * run.losses.front());
}

TEST_CASE("A dropped W stops the run at the end of its step") {
  Plan plan = test::training_plan({.model = test::llama(2), .schedule = "zb-h1", .ranks = 2});
  auto& actions = plan.schedule.actions[1];
  const auto dropped = std::find(actions.begin(), actions.end(),
                                 Action{.kind = ActionKind::weight_gradient, .stage = 1, .microbatch = 2});
  REQUIRE(dropped != actions.end());
  actions.erase(dropped);
  CHECK_THROWS_AS(test::train(plan, 1), RunError);
}

TEST_CASE("The check notices a gradient that is a bit off, and says how far") {
  const Plan plan = test::training_plan({.model = test::llama(2), .ranks = 2});
  test::TrainingRun run = test::train(plan, 1);
  SECTION("by one unit in the last place") {
    float& value = run.gradients.at("layers.1.mlp.up.weight")[5];
    value = std::nextafter(value, 1.0F);
    const CheckResult result = check_against_reference(plan, {}, run.losses, run.gradients);
    CHECK_FALSE(result.passed);
    CHECK(result.worst_error_ratio <= 1.5);
    CHECK_THAT(result.problem, ContainsSubstring("layers.1.mlp.up.weight"));
  }
  SECTION("by a factor, as a forgotten scale would be") {
    for (float& value : run.gradients.at("layers.0.attention.q.weight")) value *= 1.01F;
    const CheckResult result = check_against_reference(plan, {}, run.losses, run.gradients);
    CHECK(result.worst_tensor == "layers.0.attention.q.weight");
    CHECK(result.worst_error_ratio > 1.5);
  }
  SECTION("the loss") {
    run.losses[0] = std::nextafter(run.losses[0], 0.0);
    const CheckResult result = check_against_reference(plan, {}, run.losses, run.gradients);
    CHECK_FALSE(result.bitwise_equal);
    CHECK_THAT(result.problem, ContainsSubstring("loss of step 1"));
  }
}

#include <array>
#include <csignal>
#include <map>
#include <mutex>
#include <optional>

#include "common/layout/lane.hpp"
#include "common/plan/plan_costs.hpp"
#include "common/planner/planner.hpp"
#include "common/planner/traffic.hpp"
#include "common/schedule/validate/validate.hpp"
#include "exec/check/check.hpp"
#include "exec/commands/faults.hpp"
#include "exec/commands/gradients_text.hpp"
#include "exec/commands/member.hpp"
#include "exec/commands/session_arguments.hpp"
#include "exec/transport/gloo/run_store.hpp"
#include "exec/transport/local/local.hpp"
#include "tests/catch.hpp"
#include "tests/common/schedule/shapes.hpp"
#include "tests/exec/check/references.hpp"
#include "tests/exec/commands/sessions.hpp"
#include "tests/exec/tiny_plan.hpp"

using namespace plumb;
using namespace plumb::exec;
using test::train_session;

namespace {

// As shallow as its stages allow.
Plan small_plan(TinyPlan wanted) {
  wanted.shallow = wanted.ranks * fewest_chunks(wanted.schedule) <= 4;
  return tiny_plan(wanted);
}

SessionOptions two_checked_steps(const TransportKind& kind) { return test::checked_steps(kind, 2); }

std::vector<double> losses(const SessionLogs& logs, const PreparedPlan& prepared) {
  return losses_of(prepared, logs.ranks.front());
}

}  // namespace

TEST_CASE("ranks that a launcher has started talk over gloo, on GPUs over nccl, and are not trained by threads each") {
  using Variables = std::map<std::string, std::string>;
  const auto chosen = [](const std::string& wanted, const Variables& variables, const std::string& device = "cpu") {
    return chosen_transport(wanted, device, [&](const std::string& name) {
      const auto found = variables.find(name);
      return found == variables.end() ? std::nullopt : std::optional(found->second);
    });
  };
  Variables torchrun{{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "29500"}};
  Variables batch_script{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_JOB_ID", "7"}};
  CHECK(chosen("", {}) == "local");
  CHECK(chosen("gloo", {}) == "gloo");
  CHECK(chosen("", torchrun) == "gloo");
  CHECK(chosen("gloo", torchrun) == "gloo");
  CHECK(chosen("", torchrun, "cuda") == "nccl");
  CHECK(chosen("gloo", torchrun, "cuda") == "gloo");
  CHECK(chosen("", {}, "cuda") == "local");
  CHECK_THROWS_WITH(chosen("local", torchrun), ContainsSubstring("torchrun has started 2 processes"));
  CHECK(chosen("", batch_script) == "local");
  CHECK(chosen("local", batch_script) == "local");
  batch_script["SLURM_STEP_ID"] = "0";
  CHECK(chosen("", batch_script) == "gloo");
  torchrun["WORLD_SIZE"] = "1";
  torchrun["RANK"] = "0";
  CHECK(chosen("", torchrun) == "local");
  CHECK(chosen("local", torchrun) == "local");
}

TEST_CASE("every schedule on every transport trains to the single device's bits") {
  const std::size_t number = GENERATE(range(std::size_t{0}, transport_kinds().size()));
  const TransportKind kind = transport_kinds()[number];
  const std::size_t which = GENERATE(range(std::size_t{0}, std::size_t{4}));
  const std::string schedule = std::array{"gpipe", "1f1b", "interleaved-1f1b", "zb-h1"}.at(which);
  const int ranks = GENERATE(2, 4);
  // All on threads; of the transports of processes one has a schedule's two ranks, the other its four, in turn.
  if (number > 0 && (which + number + static_cast<std::size_t>(ranks / 2)) % 2 == 0) return;
  CAPTURE(kind.name, schedule, ranks);
  const Plan plan = small_plan({.ranks = ranks, .schedule = schedule, .tied = ranks == 2});
  const std::vector<PreparedPlan> plans{{plan, lowered_schedule(plan)}};
  const SessionOptions options = two_checked_steps(kind);
  const SessionLogs logs = train_session(kind, plans, options);
  const CheckResult check =
      test::check_against_shared_reference(plan, losses(logs, plans.front()), logs.checked.gradients);
  INFO(check.problem);
  CHECK(check.passed);
  CHECK(check.bitwise_equal);
}

TEST_CASE("data-parallel pipelines on every transport pass the check, with equal copies of gradients and weights") {
  const std::size_t number = GENERATE(range(std::size_t{0}, transport_kinds().size()));
  const TransportKind kind = transport_kinds()[number];
  const std::size_t which = GENERATE(range(std::size_t{0}, std::size_t{3}));
  const std::string schedule = std::array{"1f1b", "interleaved-1f1b", "zb-h1"}.at(which);
  const std::size_t mesh = GENERATE(range(std::size_t{0}, std::size_t{3}));
  const auto [ranks, data] = std::array{std::pair(1, 2), std::pair(1, 4), std::pair(2, 2)}.at(mesh);
  // All on threads; of the transports of processes each has every schedule and every mesh, both together all of both.
  if (number > 0 && (which + mesh) % 2 == number % 2) return;
  CAPTURE(kind.name, schedule, ranks, data);
  // One rank works off one microbatch after the other: two say what more would.
  const int microbatches = ranks == 1 ? 2 : 4;
  const Plan plan =
      small_plan({.ranks = ranks, .microbatches = microbatches, .schedule = schedule, .tied = true, .data = data});
  const std::vector<PreparedPlan> plans{{plan, lowered_schedule(plan)}};
  SessionOptions options = two_checked_steps(kind);
  options.gathers_weights = true;
  const SessionLogs logs = train_session(kind, plans, options);
  CHECK(logs.different_copy.empty());
  REQUIRE(logs.ranks.front().size() == static_cast<std::size_t>(ranks * data));
  const CheckResult check =
      test::check_against_shared_reference(plan, losses(logs, plans.front()), logs.checked.gradients);
  INFO(check.problem);
  CHECK(check.passed);
  // All ranks together: each gradient's parts from all others, and the other parts' sums (a ring's 2(P−1)/P each).
  Bytes gradients;
  for (const Event& event : logs.ranks.front().front().steps.back().events) {
    if (event.action.kind == ActionKind::reduce_gradient) gradients += event.bytes;
  }
  CHECK(gradients > Bytes{});
  if (ranks > 1) return;
  Bytes received;
  for (const RankLog& log : logs.ranks.front()) received += log.steps.back().received_bytes;
  CHECK(received == gradients * (2 * (data - 1)));
}

// Each element of a weight is updated by one rank, as all would update it: ZeRO-1 changes no bit, nor the bytes around
// the ring, of weights as wide as their gradients.
TEST_CASE("ranks that share out the optimizer's states train to the bits of those that do not") {
  const auto [pipeline, data, tensor, schedule] =
      GENERATE(table<int, int, int, const char*>({{1, 2, 1, "1f1b"},
                                                  {1, 4, 1, "1f1b"},
                                                  {2, 2, 1, "1f1b"},
                                                  {2, 2, 1, "zb-h1"},
                                                  {2, 2, 1, "interleaved-1f1b"},
                                                  {2, 2, 2, "1f1b"}}));
  const bool overlap = GENERATE(false, true);
  CAPTURE(pipeline, data, tensor, schedule, overlap);
  Plan plan = small_plan({.ranks = pipeline, .schedule = schedule, .tied = pipeline == 2, .data = data});
  if (tensor > 1) {
    plan.layout.tensor = {.degree = tensor, .sequence_parallel = true};
    plan.cluster.ranks = pipeline * data * tensor;
  }
  plan.software.data_overlap = overlap;
  plan.software.data_bucket = {.bytes = {5000}};
  plan.costs = predicted_costs(plan);
  Plan sharded = plan;
  sharded.layout.data.sharding = Sharding::zero1;
  sharded.costs = predicted_costs(sharded);
  for (const TransportKind& kind : transport_kinds()) {
    if (kind.name != "local" && (schedule != std::string("zb-h1") || overlap)) continue;  // the same code
    CAPTURE(kind.name);
    SessionOptions options = two_checked_steps(kind);
    options.steps = 3;  // ten of the optimizer alone: test_weight_optimizer
    options.gathers_weights = true;
    const auto run = [&](const Plan& of) { return train_session(kind, {{of, lowered_schedule(of)}}, options); };
    const SessionLogs whole = run(plan);
    const SessionLogs parts = run(sharded);
    CHECK(parts.different_copy.empty());
    CHECK(parts.weights == whole.weights);
    CHECK(parts.checked.gradients == whole.checked.gradients);
    CHECK(losses(parts, {sharded, lowered_schedule(sharded)}) == losses(whole, {plan, lowered_schedule(plan)}));
    const Timeline predicted = predict_by_path(sharded);
    const Timeline measured = merge_logs(sharded, lowered_schedule(sharded), parts.ranks.front(), "test");
    Bytes received;
    Bytes expected;
    for (const RankLog& log : parts.ranks.front()) {
      const auto stage = static_cast<std::size_t>(lane_of(sharded.layout, log.rank).pipeline_rank);
      received += measured.ranks[static_cast<std::size_t>(log.rank)].by_axis->data;
      expected += predicted.ranks[stage].by_axis->data;
    }
    CHECK(received == expected);
  }
}

TEST_CASE("received bytes equal the prediction for every sharding") {
  const std::string sharding = GENERATE(
      "zero2", "zero3", "fsdp, reshard_after_forward: false", "fsdp, reshard_after_forward: true",
      "{kind: hsdp, shard: 2, replicate: 2}", "fsdp, reshard_after_forward: true, reduce: each_microbatch",
      "zero3, secondary_shard: 2", "zero++, secondary_shard: 2, reshard_after_forward: true, reduce: each_microbatch");
  const auto [pipeline, data, schedule] =
      GENERATE(table<int, int, const char*>({{1, 4, "1f1b"}, {2, 2, "zb-h1"}, {2, 2, "interleaved-1f1b"}}));
  const bool overlap = GENERATE(false, true);
  if (data == 2 && sharding.starts_with("{")) return;
  CAPTURE(sharding, pipeline, schedule, overlap);
  Plan plan = small_plan({.ranks = pipeline,
                          .microbatches = 2 * pipeline,
                          .schedule = schedule,
                          .tied = true,
                          .data = data,
                          .more_of_data = ", sharding: " + sharding});
  plan.software.data_overlap = overlap;
  plan.costs = predicted_costs(plan);
  const PreparedPlan prepared{plan, lowered_schedule(plan)};
  const TransportKind kind = transport_kinds().front();
  SessionOptions options = two_checked_steps(kind);
  options.check = false;
  const SessionLogs logs = train_session(kind, {prepared}, options);
  const Timeline predicted = predict_by_path(plan);
  const Timeline measured = merge_logs(plan, prepared.lowered, logs.ranks.front(), "test");
  std::vector<Bytes> received(static_cast<std::size_t>(pipeline));
  for (const RankLog& log : logs.ranks.front()) {
    const auto stage = static_cast<std::size_t>(lane_of(plan.layout, log.rank).pipeline_rank);
    received[stage] += measured.ranks[static_cast<std::size_t>(log.rank)].by_axis->data;
  }
  for (std::size_t stage = 0; stage < received.size(); ++stage) {
    CAPTURE(stage);
    CHECK(received[stage] == data * predicted.ranks[stage].by_axis->data);  // of so many ranks
  }
}

// Of a ring: 2(P−1)/P of what is summed. A tied table is summed once where one stage has it, twice where two have it.
TEST_CASE("received bytes are reported by axis: tensor group, data-parallel copies and pipeline") {
  const auto [pipeline, tied] = GENERATE(table<int, bool>({{2, false}, {1, true}, {2, true}}));
  CAPTURE(pipeline, tied);
  Plan plan = small_plan({.ranks = pipeline, .schedule = "1f1b", .data = 2});
  plan.layout.tensor = {.degree = 2, .sequence_parallel = true};
  plan.cluster.ranks = 4 * pipeline;
  plan.model.tied_embeddings = tied;
  plan.costs = predicted_costs(plan);
  const std::vector<PreparedPlan> plans{{plan, lowered_schedule(plan)}};
  for (const TransportKind& kind : transport_kinds()) {
    if (pipeline * 4 > 4 && tied && kind.name != "local") continue;  // what differs is the same on all
    INFO(kind.name);
    SessionOptions options = two_checked_steps(kind);
    options.check = false;
    const SessionLogs logs = train_session(kind, plans, options);
    const std::vector<StageMoves> moves = tensor_moves(plan, {});
    const Timeline measured = merge_logs(plan, plans.front().lowered, logs.ranks.front(), "test");
    const Timeline predicted = predict_by_path(plan);
    for (const RankLog& log : logs.ranks.front()) {
      INFO("rank " << log.rank);
      const auto stage = static_cast<std::size_t>(lane_of(plan.layout, log.rank).pipeline_rank);
      const AxisTraffic expected = predicted.ranks[stage].by_axis.value();
      const AxisTraffic received_by_axis = measured.ranks[static_cast<std::size_t>(log.rank)].by_axis.value();
      CHECK(received_by_axis.tensor.value == expected.tensor.value);
      CHECK(received_by_axis.data.value == expected.data.value);
      CHECK(received_by_axis.pipeline.value == expected.pipeline.value);
      const RankStep& step = log.steps.back();
      Bytes summed;
      Bytes beside;
      for (const Event& event : step.events) {
        if (event.action.kind == ActionKind::reduce_gradient) summed += event.bytes;
        if (is_receive(event.action.kind) || event.action.kind == ActionKind::reduce_tied) beside += event.bytes;
      }
      const auto received = [&](ActionKind of) { return moves[stage].at(of).received; };
      const double in_tensor =
          4 * (received(ActionKind::forward) + received(ActionKind::backward)) + received(ActionKind::optimizer_step);
      CHECK(static_cast<double>(step.received_in_tensor.value) == in_tensor);
      CHECK(step.received_in_data == summed);  // 2(P−1)/P with P = 2
      CHECK(step.received_bytes == step.received_in_tensor + step.received_in_data + beside);
    }
  }
}

TEST_CASE("ranks of two replicas whose copies differ are told by rank and tensor") {
  const Plan plan = small_plan({.ranks = 1, .schedule = "1f1b", .data = 2});
  Schedule unsummed = lowered_schedule(plan);
  std::erase_if(unsummed.actions.front(), [](const Action& a) { return a.kind == ActionKind::reduce_gradient; });
  const std::vector<PreparedPlan> plans{{plan, unsummed}};
  const TransportKind kind = transport_kinds().front();
  const SessionLogs logs = train_session(kind, plans, two_checked_steps(kind));
  CHECK_THAT(logs.different_copy, ContainsSubstring("rank 1: its copy of ") && ContainsSubstring(" differs from"));
  CHECK_FALSE(check_against_reference(plan, {}, losses(logs, plans.front()), logs.checked.gradients).passed);
  SessionOptions exporting = two_checked_steps(kind);
  exporting.check = false;
  exporting.gathers_weights = true;
  CHECK_THROWS_WITH(train_session(kind, plans, exporting), ContainsSubstring("rank 1: its copy of "));
}

// Between a rank's last step and the check nobody else may catch it: it would end the process, and its results be lost.
TEST_CASE("a signal between a rank's run and its check is still caught") {
  const auto handler = [] {
    struct sigaction now = {};
    ::sigaction(SIGTERM, nullptr, &now);
    return now.sa_handler;
  };
  const auto before = handler();  // of the tests' own framework
  const auto catches = [&] { return handler() != before; };
  const Plan plan = small_plan({.ranks = 1});
  const PreparedPlan prepared{.plan = plan, .lowered = lowered_schedule(plan), .launches = {}, .slots = {}};
  const auto store = RunStore::host(0);
  const Membership alone{
      .rank = 0, .size = 1, .local_rank = 0, .address = "127.0.0.1", .port = store->port(), .launcher = "torchrun"};
  SessionOptions options = two_checked_steps(TransportKind{.name = "gloo", .make = {}});
  {
    std::optional<SignalWatch> afterwards;
    CHECK(run_member({prepared}, options, alone, this_host(), &afterwards).ranks.size() == 1);
    CHECK(catches());
  }
  CHECK_FALSE(catches());
  CHECK(run_member({prepared}, options, alone, this_host()).ranks.size() == 1);
  CHECK_FALSE(catches());
}

TEST_CASE("ranks on two hosts train to the same bits, and their times say within how much they agree") {
  for (const TransportKind& kind : transport_kinds()) {
    INFO(kind.name);
    const Plan plan = small_plan({.ranks = 4, .schedule = "1f1b"});
    const std::vector<PreparedPlan> plans{{plan, lowered_schedule(plan)}};
    const SessionOptions options = two_checked_steps(kind);
    const SessionLogs logs = train_session(kind, plans, options, 2);
    CHECK(
        test::check_against_shared_reference(plan, losses(logs, plans.front()), logs.checked.gradients).bitwise_equal);
    CHECK(logs.clock_uncertainty > Seconds{0});
    CHECK(logs.clock_uncertainty < Seconds{0.05});
    CHECK(logs.clock_warnings.empty());
    CHECK(train_session(kind, plans, options).clock_uncertainty == Seconds{0});
  }
}

TEST_CASE("ranks that would save, resume or log otherwise than rank 0 are told before the first step") {
  const Plan plan = small_plan({});
  const std::vector<PreparedPlan> plans{{plan, lowered_schedule(plan)}};
  using Other = void (*)(CheckpointOptions&);
  const std::vector<std::pair<Other, std::string>> others{
      {[](CheckpointOptions& other) { other.every = 2; }, "--save-every 2"},
      {[](CheckpointOptions& other) { other.keep = 3; }, "--keep 3"},
      {[](CheckpointOptions& other) { other.beside = true; }, "--asynchronous-save"},
      {[](CheckpointOptions& other) { other.log = "log"; }, "--log"},
      {[](CheckpointOptions& other) { other.resume = std::make_shared<const Checkpoint>(); }, "--resume"}};
  for (const auto& [other, text] : others) {
    std::string told;  // rank 0, which has the texts of all
    const auto train = [&, change = other](Transport& transport) {
      SessionOptions options;
      options.checkpoint.folder = "/nowhere";
      if (transport.rank() == 1) change(options.checkpoint);
      RankWork work(plans, options);
      Watchdog watchdog(2, {.on_hang = [](int, const Position&, Seconds) {}, .on_stuck = [] {}});
      try {
        (void)work.run(transport, *make_host_device(), watchdog, {});
      } catch (const InputError& error) {
        if (transport.rank() == 0) told = error.what();
        throw;
      }
    };
    CHECK_THROWS_AS(run_on_threads(make_local_transports(2), train), InputError);
    CHECK_THAT(told, ContainsSubstring("rank 1: was started with") && ContainsSubstring(text) &&
                         ContainsSubstring(", rank 0 with") && ContainsSubstring("with the same options"));
  }
}

TEST_CASE("behind the places of a failed run's ranks stands how to read the first action that is named") {
  const Plan plan = small_plan({});
  std::vector<PreparedPlan> plans{{plan, lowered_schedule(plan)}};
  const std::string of_backward = "(0B1: stage 0's backward of microbatch 1)";
  CHECK(with_places("rank 0: 0B1 hangs", "wait longer", "  rank 1: step 1, 1F2\n", plans) ==
        "wait longer\nwhere each rank stood:\n  rank 1: step 1, 1F2\n" + of_backward);
  CHECK(with_places("", "", "  rank 1: step 1, 0B1\n", plans) ==
        "where each rank stood:\n  rank 1: step 1, 0B1\n" + of_backward);
  CHECK(with_places("", "", "  rank 1: before step 1\n", plans) == "where each rank stood:\n  rank 1: before step 1\n");
  CHECK(with_legend(RunError("rank 0", "0B1 hangs", "wait longer"), plans) == "wait longer\n" + of_backward);
  CHECK(with_legend(RunError("rank 0", "0B1 hangs"), plans) == of_backward);
  CHECK(with_legend(RunError("rank 0", "hangs", "wait longer"), plans) == "wait longer");
  plans.push_back(plans.front());
  plans.back().lowered.slices = 2;  // counts slices, the other microbatches
  CHECK(with_legend(RunError("rank 0", "0B1 hangs"), plans).empty());
}

TEST_CASE("a wrong schedule is refused before it runs, and where forced, the check or the stage notices") {
  const std::string fault = GENERATE("swapped-receive", "dropped-weight-gradient");
  const Plan plan = small_plan({.schedule = "gpipe"});
  const std::vector<PreparedPlan> plans{{plan, with_fault(lowered_schedule(plan), fault)}};
  CHECK_THROWS_AS(require_valid(plans.front().lowered), InputError);
  SessionOptions options;
  options.steps = 1;
  options.warm_up = 0;
  options.check = true;
  if (fault == "dropped-weight-gradient") {
    CHECK_THROWS_WITH(train_session(transport_kinds().front(), plans, options), ContainsSubstring("after step 1"));
    return;
  }
  const SessionLogs logs = train_session(transport_kinds().front(), plans, options);
  const CheckResult check = check_against_reference(plan, {}, losses(logs, plans.front()), logs.checked.gradients);
  CHECK_FALSE(check.passed);
  CHECK_FALSE(check.problem.empty());
}

TEST_CASE("gradients survive as bytes, and bytes that are cut short are refused") {
  const NamedGradients gradients{{"a", {1.5F, -0.0F, 3e-45F}}, {"b.c", {}}};
  const std::string bytes = to_bytes(gradients);
  NamedGradients read;
  CHECK(add_from_bytes(bytes, read).empty());
  CHECK(read == gradients);
  CHECK(add_from_bytes(bytes, read).empty());
  read["a"][1] = 0.0F;  // not the bits of -0.0
  CHECK(add_from_bytes(bytes, read) == "a");
  for (std::size_t size = 1; size < bytes.size(); ++size) {
    if (size == 8 + 1 + 8 + 12) continue;  // after the first tensor
    NamedGradients partial;
    CHECK_THROWS_AS((void)add_from_bytes(std::string_view(bytes).substr(0, size), partial), RunError);
  }
}

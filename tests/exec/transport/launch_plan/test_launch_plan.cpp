// Launch orders of every schedule under NCCL's rules, and what the check says of orders that are wrong.
#include <algorithm>
#include <map>

#include "common/base/error.hpp"
#include "common/schedule/validate/validate.hpp"
#include "exec/transport/launch_plan/launch_check.hpp"
#include "tests/catch.hpp"
#include "tests/common/schedule/shapes.hpp"
#include "tests/exec/plans.hpp"
#include "tests/exec/run/evicting.hpp"

using namespace plumb;
using namespace plumb::exec;

namespace {

// Uneven on purpose, so that messages do not start together; or all alike, so that many do.
PipelineCosts costs_of(const Schedule& lowered, bool even) {
  PipelineCosts costs =
      even_costs(stages(lowered), {.forward = {1e-3}, .input_gradient = {1e-3}, .weight_gradient = {1e-3}});
  for (std::size_t stage = 0; !even && stage < costs.stages.size(); ++stage) {
    costs.stages[stage].forward = costs.stages[stage].forward * (1 + 0.13 * static_cast<double>((stage * 7) % 5));
    costs.stages[stage].input_gradient =
        costs.stages[stage].input_gradient * (1 + 0.11 * static_cast<double>((stage * 3) % 4));
  }
  return costs;
}

Schedule lowered_of(const std::string& name, const ScheduleShape& shape, bool tied = false) {
  return lower(generate_schedule(name, shape), {.tied_embeddings = tied});
}

// Both orders in which a device may work: every line that either check says.
std::vector<std::string> problems_of(const Schedule& lowered, const LaunchPlan& plan) {
  std::vector<std::string> all = check_launches(lowered, plan, StreamOrder::concurrent);
  const std::vector<std::string> serial = check_launches(lowered, plan, StreamOrder::serial);
  all.insert(all.end(), serial.begin(), serial.end());
  return all;
}

std::size_t count_operations(const LaunchPlan& plan) {
  std::size_t count = 0;
  for (const RankLaunches& launches : plan.ranks) {
    for (const LaunchBatch& batch : launches) count += batch.operations.size();
  }
  return count;
}

// Two ranks, two messages down the pipeline, by hand.
Schedule two_ranks() { return lowered_of("gpipe", {.ranks = 2, .microbatches = 2}); }

}  // namespace

TEST_CASE("no schedule of the library can deadlock or mispair under NCCL's rules, however its streams are worked off") {
  const int ranks = GENERATE(2, 4, 8);
  const bool even = GENERATE(false, true);
  const int chunks = GENERATE(1, 2);
  for (const ScheduleEntry& entry : schedule_entries()) {
    const GridShape grid{chunks, 2 * ranks, ranks};
    if (!applies(entry, grid) || (entry.fixed_chunks > 0 && chunks != 1) ||
        (!entry.uses_chunks && !entry.uses_slices && chunks > 1))
      continue;
    const Schedule compute = generate_schedule(entry.name, shape_for(entry, grid));
    const Schedule lowered = lower(compute, {});
    const LaunchPlan plan = plan_launches(lowered, costs_of(lowered, even));
    INFO(entry.name << ", p = " << ranks << ", even " << even);
    CHECK(problems_of(lowered, plan) == std::vector<std::string>{});
    std::size_t messages = 0;
    for (const auto& list : lowered.actions) {
      messages += static_cast<std::size_t>(std::ranges::count_if(list, [](const Action& action) {
        return is_send(action.kind) || is_receive(action.kind) || is_eviction(action.kind);
      }));
    }
    CHECK(count_operations(plan) >= messages);
  }
}

TEST_CASE("tied embeddings add one sum of two ranks, behind all messages") {
  const Schedule lowered = lowered_of("1f1b", {.ranks = 4, .microbatches = 8}, true);
  const LaunchPlan plan = plan_launches(lowered, costs_of(lowered, false));
  CHECK(problems_of(lowered, plan).empty());
  for (const std::size_t rank : {std::size_t{0}, std::size_t{3}}) {
    const LaunchBatch& last = plan.ranks[rank].back();
    REQUIRE(last.use == CommunicatorUse::tied);
    CHECK(last.operations.front().peer == (rank == 0 ? 3 : 0));
    CHECK(last.place == last.operations.front().index);
  }
  CHECK(
      std::ranges::none_of(plan.ranks[1], [](const LaunchBatch& batch) { return batch.use == CommunicatorUse::tied; }));
}

TEST_CASE("a receive is launched as soon as its message can be there, and not to spin long before") {
  // GPipe on two ranks, forward 1 ms each, messages free: F0 of rank 0 ends at 1 ms, and F1 at 2 ms, while rank 1
  // computes F0 from 1 to 2 ms.
  const Schedule lowered = two_ranks();
  const LaunchPlan plan = plan_launches(lowered, costs_of(lowered, true));
  const RankLaunches& second = plan.ranks[1];
  REQUIRE(second.size() == 4);
  CHECK(to_string(second[0].operations.front().action) == "1RECV_F0");
  CHECK(second[0].place == 0);
  CHECK(second[0].not_before == -1);
  CHECK(to_string(second[1].operations.front().action) == "1RECV_F1");
  // Not before F0 has started, at index 1 of RECV_F0, F0, RECV_F1, F1, …
  CHECK(second[1].not_before == 1);
  CHECK(second[1].place == 2);
}

TEST_CASE("schedules that evict have an order on any number of ranks, and what is loaded waits for its room") {
  const int ranks = GENERATE(2, 4, 8);
  const std::string times = GENERATE("even", "uneven", "none");
  for (const Schedule& lowered : {lower(test::evicting_gpipe(ranks, 8), {}), lower(test::evicting_to_each_other(), {}),
                                  lowered_of("bpipe", {.ranks = ranks, .microbatches = 3 * ranks})}) {
    require_valid(lowered);
    PipelineCosts costs = costs_of(lowered, times == "even");
    if (times == "none") costs.stages.assign(costs.stages.size(), {});
    const LaunchPlan plan = plan_launches(lowered, costs);
    INFO(lowered.name << ", p = " << ranks << ", times: " << times);
    CHECK(problems_of(lowered, plan) == std::vector<std::string>{});
    for (const RankLaunches& launches : plan.ranks) {
      std::map<std::pair<std::int32_t, bool>, std::int32_t> last;  // by peer and way
      for (const LaunchBatch& batch : launches) {
        if (batch.use != CommunicatorUse::evictions) continue;
        REQUIRE(batch.operations.size() == 1);
        const LaunchOperation& operation = batch.operations.front();
        if (operation.action.kind == ActionKind::load && !operation.sends) CHECK(batch.place == operation.index);
        // In the order of the list, in which the rank takes them.
        const auto [before, first] = last.try_emplace({operation.peer, operation.sends}, -1);
        CHECK(before->second < operation.index);
        before->second = operation.index;
      }
    }
  }
}

TEST_CASE("messages both ways of a link that start together go as one batch") {
  const Schedule lowered = lowered_of("chimera", {.ranks = 2, .microbatches = 2});
  const LaunchPlan plan = plan_launches(lowered, costs_of(lowered, true));
  const LaunchBatch& first = plan.ranks[0].front();
  REQUIRE(first.operations.size() == 2);
  CHECK(first.operations[0].sends != first.operations[1].sends);
  CHECK(problems_of(lowered, plan).empty());
}

TEST_CASE("with compute that takes no time nothing is batched, and still nothing deadlocks") {
  for (const char* name : {"1f1b", "interleaved-1f1b", "zb-v", "chimera", "bpipe"}) {
    const Schedule lowered =
        lowered_of(name, {.ranks = 4, .microbatches = 8, .chunks = find_schedule(name).uses_chunks ? 2 : 1});
    PipelineCosts costs = costs_of(lowered, true);
    for (ComputeCost& cost : costs.stages) cost = {};
    const LaunchPlan plan = plan_launches(lowered, costs);
    INFO(name);
    CHECK(problems_of(lowered, plan) == std::vector<std::string>{});
    for (const RankLaunches& launches : plan.ranks) {
      CHECK(std::ranges::all_of(launches, [](const LaunchBatch& batch) { return batch.operations.size() == 1; }));
    }
  }
}

TEST_CASE("the check names a circle of sends that wait for each other's receives") {
  // Both directions of Chimera on one communicator: each rank sends first and receives then, so with NCCL both wait.
  const Schedule lowered = lowered_of("chimera", {.ranks = 2, .microbatches = 2});
  LaunchPlan plan = plan_launches(lowered, costs_of(lowered, true));
  for (RankLaunches& launches : plan.ranks) {
    LaunchBatch sends = launches.front();
    LaunchBatch receives = launches.front();
    std::erase_if(sends.operations, [](const LaunchOperation& operation) { return !operation.sends; });
    std::erase_if(receives.operations, [](const LaunchOperation& operation) { return operation.sends; });
    launches.erase(launches.begin());
    launches.insert(launches.begin(), {sends, receives});
  }
  const auto problems = check_launches(lowered, plan, StreamOrder::concurrent);
  REQUIRE(problems.size() == 2);
  CHECK_THAT(problems[0], ContainsSubstring("deadlock: rank 0: 0SEND_F0 (down) waits for rank 1's"));
  CHECK_THAT(problems[1], ContainsSubstring("deadlock: rank 1:"));
}

TEST_CASE("the check names mispaired, missing, doubled and misplaced operations") {
  const Schedule lowered = two_ranks();
  const LaunchPlan right = plan_launches(lowered, costs_of(lowered, true));
  REQUIRE(problems_of(lowered, right).empty());
  const auto first_problem = [&](const auto& change) {
    LaunchPlan wrong = right;
    change(wrong);
    const auto problems = check_launches(lowered, wrong, StreamOrder::concurrent);
    return problems.empty() ? std::string("none") : problems.front();
  };
  CHECK_THAT(first_problem([](LaunchPlan& plan) {
               std::swap(plan.ranks[0][0].operations, plan.ranks[0][1].operations);
               plan.ranks[0][0].place = plan.ranks[0][1].place;
             }),
             ContainsSubstring("rank 0's 0SEND_F1 would pair with rank 1's 1RECV_F0"));
  CHECK_THAT(first_problem([](LaunchPlan& plan) { plan.ranks[1].pop_back(); }),
             ContainsSubstring("is launched 0 times"));
  CHECK_THAT(first_problem([](LaunchPlan& plan) { plan.ranks[1].push_back(plan.ranks[1].back()); }),
             ContainsSubstring("is launched 2 times"));
  CHECK_THAT(first_problem([](LaunchPlan& plan) { plan.ranks[0][0].place = 0; }),
             ContainsSubstring("0SEND_F0 is launched at 0"));
  CHECK_THAT(first_problem([](LaunchPlan& plan) {
               for (LaunchBatch& batch : plan.ranks[1]) batch.place = 9;
             }),
             ContainsSubstring("1RECV_F0 is launched at 9"));
  CHECK_THAT(first_problem([](LaunchPlan& plan) { plan.ranks.pop_back(); }),
             ContainsSubstring("launches of 1 ranks for 2"));
}

TEST_CASE("a schedule that is not lowered, waits in a circle or does not fit its costs is refused") {
  Schedule lowered = two_ranks();
  const PipelineCosts costs = costs_of(lowered, true);
  PipelineCosts fewer = costs;
  fewer.stages.pop_back();
  CHECK_THROWS_WITH(plan_launches(lowered, fewer), ContainsSubstring("has 2 stages, the costs 1"));
  Schedule lost = lowered;
  std::erase_if(lost.actions[0], [](const Action& action) { return is_send(action.kind); });
  CHECK_THROWS_WITH(plan_launches(lost, costs), ContainsSubstring("waits for what never comes"));
  Schedule unread = lowered;
  std::erase_if(unread.actions[1], [](const Action& action) { return is_receive(action.kind); });
  CHECK_THROWS_WITH(plan_launches(unread, costs), ContainsSubstring("0SEND_F0 is never received"));
}

TEST_CASE("all ranks make the same plan from the same costs") {
  const Schedule lowered = lowered_of("interleaved-1f1b", {.ranks = 4, .microbatches = 8, .chunks = 2});
  CHECK(plan_launches(lowered, costs_of(lowered, false)) == plan_launches(lowered, costs_of(lowered, false)));
}

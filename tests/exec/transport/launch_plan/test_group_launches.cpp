// Collectives of actions among the launches of a whole layout: no order deadlocks, and what the check says of wrong
// ones.
#include <algorithm>
#include <functional>
#include <map>

#include "common/schedule/generators/registry.hpp"
#include "exec/transport/launch_plan/launch_check.hpp"
#include "tests/catch.hpp"
#include "tests/common/schedule/shapes.hpp"
#include "tests/exec/transport/launch_plan/made_up_calls.hpp"

using namespace plumb;
using namespace plumb::exec;
using test::all_launches;
using test::layout_of;
using test::made_up_calls;

namespace {

// Uneven, so that messages do not start together.
PipelineCosts costs_of(const Schedule& lowered) {
  PipelineCosts costs =
      even_costs(stages(lowered), {.forward = {1e-3}, .input_gradient = {1e-3}, .weight_gradient = {1e-3}});
  for (std::size_t stage = 0; stage < costs.stages.size(); ++stage) {
    costs.stages[stage].forward = costs.stages[stage].forward * (1 + 0.13 * static_cast<double>((stage * 7) % 5));
  }
  return costs;
}

Schedule lowered_of(const ScheduleEntry& entry, int ranks, bool data) {
  const GridShape grid{2, 2 * ranks, ranks};
  return lower(generate_schedule(entry.name, shape_for(entry, grid)),
               {.optimizer = true, .data_parallel = data, .tied_embeddings = true});
}

// What is run with groups: of one replica, updated once a step.
bool runs_with_groups(const ScheduleEntry& entry, int ranks) {
  if (!applies(entry, {2, 2 * ranks, ranks})) return false;
  const Schedule compute = generate_schedule(entry.name, shape_for(entry, {2, 2 * ranks, ranks}));
  return replicas(compute) == 1 && compute.update_every == 0;
}

struct Case {
  Layout layout;
  Schedule lowered;
  std::vector<RankCalls> calls = {};
  LaunchPlan plan = {};
};

Case case_of(const ScheduleEntry& entry, const Layout& layout, const test::Beside* beside = nullptr) {
  Case made{.layout = layout, .lowered = lowered_of(entry, layout.pipeline, layout.data.degree > 1)};
  made.calls = made_up_calls(layout, made.lowered, beside);
  made.plan = all_launches(layout, made.lowered, plan_launches(made.lowered, costs_of(made.lowered)), made.calls);
  return made;
}

std::vector<std::string> problems_of(const Case& of, const LaunchPlan& plan) {
  std::vector<std::string> all = check_launches(of.lowered, of.layout, of.calls, plan, StreamOrder::concurrent);
  const auto serial = check_launches(of.lowered, of.layout, of.calls, plan, StreamOrder::serial);
  all.insert(all.end(), serial.begin(), serial.end());
  return all;
}

bool is_call(const LaunchBatch& batch) { return batch.call != nullptr && !batch.call->open; }

// The n-th collective that a rank makes, with the place of its batch.
std::size_t call_at(const RankLaunches& launches, std::size_t n) {
  for (std::size_t i = 0; i < launches.size(); ++i) {
    if (is_call(launches[i]) && n-- == 0) return i;
  }
  return launches.size();
}

}  // namespace

TEST_CASE("no schedule that is run with tensor and data groups can deadlock, however its streams are worked off") {
  const auto [pipeline, tensor, data] =
      GENERATE(std::tuple(1, 2, 1), std::tuple(1, 4, 1), std::tuple(1, 1, 4), std::tuple(2, 2, 1), std::tuple(2, 1, 2),
               std::tuple(2, 4, 1), std::tuple(2, 2, 2), std::tuple(4, 2, 1), std::tuple(4, 1, 2));
  for (const ScheduleEntry& entry : schedule_entries()) {
    if (!runs_with_groups(entry, pipeline)) continue;
    const Case of = case_of(entry, layout_of(pipeline, tensor, data));
    INFO(entry.name << ", " << describe(of.layout));
    CHECK(problems_of(of, of.plan) == std::vector<std::string>{});
  }
}

TEST_CASE("neither can it with gradients in buckets between the collectives of each stage's last backward") {
  const auto [pipeline, tensor, data] = GENERATE(std::tuple(1, 1, 4), std::tuple(2, 1, 2), std::tuple(2, 2, 2),
                                                 std::tuple(2, 4, 2), std::tuple(4, 1, 2), std::tuple(4, 2, 2));
  for (const ScheduleEntry& entry : schedule_entries()) {
    if (!runs_with_groups(entry, pipeline)) continue;
    for (const std::size_t bytes : {1, 50, 1 << 20}) {
      const test::Beside beside{.gradients = {4, 12, 8}, .bucket_bytes = bytes};
      const Case of = case_of(entry, layout_of(pipeline, tensor, data), &beside);
      INFO(entry.name << ", " << describe(of.layout) << ", " << bytes << " bytes");
      CHECK(problems_of(of, of.plan) == std::vector<std::string>{});
      // Of each stage as many buckets on all its ranks, in its last action alone.
      const std::size_t buckets = bytes == 1 ? 3 : bytes == 50 ? 2 : 1;
      for (std::size_t rank = 0; rank < of.plan.ranks.size(); ++rank) {
        const auto& list =
            of.lowered.actions[static_cast<std::size_t>(lane_of(of.layout, static_cast<int>(rank)).pipeline_rank)];
        const std::vector<Action> last = last_weight_gradients(list);
        std::map<Action, std::size_t> seen;
        for (const LaunchBatch& batch : of.plan.ranks[rank]) {
          if (batch.call && is_beside_compute(*batch.call)) ++seen[batch.operations.front().action];
        }
        CHECK(seen.size() == last.size());
        for (const Action& action : last) CHECK(seen[action] == buckets);
      }
    }
  }
}

TEST_CASE("a collective stands behind the messages that are launched before its action, in the order of its program") {
  const Case of = case_of(find_schedule("1f1b"), layout_of(2, 2, 2));
  for (std::size_t rank = 0; rank < of.plan.ranks.size(); ++rank) {
    const RankLaunches& launches = of.plan.ranks[rank];
    CHECK(std::ranges::is_sorted(launches, {}, &LaunchBatch::place));
    // F of the first microbatch on the second pipeline rank: its message is received before, that of the next behind.
    if (lane_of(of.layout, static_cast<int>(rank)).pipeline_rank == 0) continue;
    CHECK(launches[0].use == CommunicatorUse::down);
    CHECK(launches[0].operations.front().peer == static_cast<int>(rank) - 4);  // of its own lane
    CHECK(launches[call_at(launches, 0)].call->what == "gather, stage 1");
    CHECK(launches[call_at(launches, 1)].call->what == "scatter, stage 1");
    CHECK(launches[call_at(launches, 2)].call->what == "maximum, stage 1");
  }
}

TEST_CASE("the check names a collective that is left out, made twice, moved, or another on one rank of a group") {
  const Case of = case_of(find_schedule("1f1b"), layout_of(2, 2, 1));
  struct Mutation {
    const char* name;
    std::function<void(RankLaunches&)> change;  // of rank 1
    std::vector<const char*> noticed;
  };
  const auto second = [](RankLaunches& launches) {
    return launches.begin() + static_cast<std::ptrdiff_t>(call_at(launches, 1));
  };
  const auto replaced = [](LaunchBatch& batch, const auto& change) {
    auto call = std::make_shared<GroupCall>(*batch.call);
    change(*call);
    batch.call = call;
  };
  const std::vector<Mutation> mutations{
      {"dropped",
       [&](RankLaunches& all) { all.erase(second(all)); },
       {"rank 1: 0F0 makes the maximum, stage 0 on tensor (ranks 0, 1) where the scatter, stage 0 on tensor "
        "(ranks 0, 1) comes"}},
      {"doubled",
       [&](RankLaunches& all) { all.insert(second(all), *second(all)); },
       {"rank 1: 0F0 makes the scatter, stage 0 on tensor (ranks 0, 1) where the maximum, stage 0"}},
      {"exchanged",
       [&](RankLaunches& all) { std::iter_swap(second(all), second(all) + 1); },
       {"rank 1: 0F0 makes the maximum, stage 0 on tensor (ranks 0, 1) where the scatter"}},
      {"in the action behind",
       [&](RankLaunches& all) {
         LaunchBatch batch = all[call_at(all, 2)];
         all.erase(all.begin() + static_cast<std::ptrdiff_t>(call_at(all, 2)));
         batch.place = batch.operations.front().index = all[call_at(all, 2)].place;
         batch.operations.front().action = all[call_at(all, 2)].operations.front().action;
         all.insert(all.begin() + static_cast<std::ptrdiff_t>(call_at(all, 2)), batch);
       },
       {"rank 1: 0F0 makes nothing more where the maximum, stage 0", "rank 1: 0F1 makes the maximum, stage 0"}},
      {"of another size",
       [&](RankLaunches& all) { replaced(*second(all), [](GroupCall& call) { ++call.count; }); },
       {"rank 1: 0F0 makes the scatter"}},
      {"at another place than its action",
       [&](RankLaunches& all) { second(all)->operations.front().index += 1; },
       {"does not stand at"}},
  };
  for (const Mutation& mutation : mutations) {
    INFO(mutation.name);
    LaunchPlan wrong = of.plan;
    mutation.change(wrong.ranks[1]);
    for (const StreamOrder order : {StreamOrder::concurrent, StreamOrder::serial}) {
      const std::vector<std::string> problems = check_launches(of.lowered, of.layout, of.calls, wrong, order);
      for (const char* const text : mutation.noticed) {
        CHECK(std::ranges::any_of(problems,
                                  [&](const std::string& problem) { return problem.find(text) != std::string::npos; }));
      }
    }
  }
}

// As if nobody had stated beforehand what actions make: the ranks alone tell.
TEST_CASE("ranks of a group that do not mean the same are named, and so are circles over several communicators") {
  Case of = case_of(find_schedule("1f1b"), layout_of(2, 2, 1));
  of.calls.clear();
  CHECK(problems_of(of, of.plan).empty());
  const auto problems = [&](const auto& change) {
    LaunchPlan wrong = of.plan;
    change(wrong.ranks);
    return check_launches(of.lowered, of.layout, {}, wrong, StreamOrder::serial);
  };
  const auto exchanged = problems([](std::vector<RankLaunches>& ranks) {
    std::swap(ranks[1][call_at(ranks[1], 0)].call, ranks[1][call_at(ranks[1], 1)].call);
  });
  REQUIRE(exchanged.size() == 2);
  CHECK(exchanged[0] == "rank 0's 0F0: gather, stage 0 would meet rank 1's 0F0: scatter, stage 0");
  const auto dropped = problems([](std::vector<RankLaunches>& ranks) {
    ranks[1].erase(ranks[1].begin() + static_cast<std::ptrdiff_t>(call_at(ranks[1], 4)));
  });
  CHECK_THAT(dropped.front(),
             ContainsSubstring("tensor (ranks 0, 1): rank 1 makes ") && ContainsSubstring(" calls, and another "));
  CHECK_THAT(dropped.back(), ContainsSubstring("deadlock: rank"));
}

TEST_CASE("groups that cross wait in a circle where two of their ranks launch in another order") {
  Case of = case_of(find_schedule("gpipe"), layout_of(1, 2, 2));
  of.calls.clear();  // else the order itself is told
  CHECK(problems_of(of, of.plan).empty());
  // Of REDUCE_GRAD: ranks 0 and 3 begin with the sum over data, 1 and 2 with that over tensor ranks.
  LaunchPlan wrong = of.plan;
  for (const std::size_t rank : {0, 3}) {
    RankLaunches& launches = wrong.ranks[rank];
    const auto data = std::ranges::find(launches, CommunicatorUse::data, &LaunchBatch::use);
    REQUIRE(data != launches.end());
    std::iter_swap(data, data - 1);
  }
  for (const StreamOrder order : {StreamOrder::concurrent, StreamOrder::serial}) {
    const auto problems = check_launches(of.lowered, of.layout, {}, wrong, order);
    REQUIRE(problems.size() == 4);
    CHECK(problems.front() ==
          "deadlock: rank 0: sum of gradients on data (ranks 0, 2) in 0REDUCE_GRAD waits for rank 2's sum of gradients "
          "on data (ranks 0, 2) in 0REDUCE_GRAD");
  }
}

TEST_CASE("the check names a bucket that is left out, in another order, in another action or of other gradients") {
  const test::Beside beside{.gradients = {4, 12, 8}, .bucket_bytes = 1};
  const Case of = case_of(find_schedule("1f1b"), layout_of(2, 2, 2), &beside);
  const auto bucket = [](RankLaunches& launches, std::size_t n) {
    const auto is_bucket = [](const LaunchBatch& batch) { return batch.call && is_beside_compute(*batch.call); };
    auto found = std::ranges::find_if(launches, is_bucket);
    for (; n > 0; --n) found = std::find_if(found + 1, launches.end(), is_bucket);
    return found;
  };
  const auto said = [&](const auto& change, const std::string& text) {
    for (const bool stated : {true, false}) {  // else the ranks alone tell
      LaunchPlan wrong = of.plan;
      change(wrong.ranks[1]);
      const auto problems = check_launches(of.lowered, of.layout, stated ? of.calls : std::vector<RankCalls>(), wrong,
                                           StreamOrder::concurrent);
      REQUIRE_FALSE(problems.empty());
      if (stated) CHECK_THAT(problems.front(), ContainsSubstring(text));
    }
  };
  said([&](RankLaunches& all) { all.erase(bucket(all, 1)); },
       "rank 1: 0B3 makes the bucket 3, stage 0 on data (ranks 1, 3) where the bucket 2, stage 0 on data (ranks 1, 3) "
       "comes");
  said([&](RankLaunches& all) { std::iter_swap(bucket(all, 0), bucket(all, 1)); },
       "rank 1: 0B3 makes the bucket 2, stage 0 on data (ranks 1, 3) where the bucket 1");
  said(
      [&](RankLaunches& all) {
        auto call = std::make_shared<GroupCall>(*bucket(all, 0)->call);
        call->bucket = {2, 2};
        bucket(all, 0)->call = call;
      },
      "rank 1: 0B3 makes the bucket 1");
}

// Ranks 0 and 3 launch a bucket before a move, 1 and 2 behind it: of two that both stand among compute, as what an
// action gathers or reduces for itself, that is a circle.
TEST_CASE("compute does not wait for a bucket, but a device that works off its streams as one does") {
  Case of = case_of(find_schedule("gpipe"), layout_of(1, 2, 2));
  of.calls.clear();
  const auto problems = [&](bool beside, StreamOrder order) {
    LaunchPlan plan = of.plan;
    for (std::size_t rank = 0; rank < 4; ++rank) {
      RankLaunches& launches = plan.ranks[rank];
      const auto last = std::find_if(launches.rbegin(), launches.rend(), [](const LaunchBatch& batch) {
        return batch.operations.front().action.kind == ActionKind::backward;
      });
      REQUIRE(last != launches.rend());
      LaunchBatch bucket = *last;
      auto call =
          std::make_shared<GroupCall>(*std::ranges::find(launches, CommunicatorUse::data, &LaunchBatch::use)->call);
      call->open = false;
      call->count = 8;
      call->bucket = {8};
      call->beside = beside;
      bucket.use = CommunicatorUse::data;
      bucket.call = call;
      launches.insert(rank == 0 || rank == 3 ? last.base() - 1 : last.base(), bucket);
    }
    return check_launches(of.lowered, of.layout, {}, plan, order);
  };
  CHECK(problems(true, StreamOrder::concurrent).empty());
  CHECK_FALSE(problems(true, StreamOrder::serial).empty());
  CHECK_FALSE(problems(false, StreamOrder::concurrent).empty());
}

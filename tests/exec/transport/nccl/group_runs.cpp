#include "tests/exec/transport/nccl/group_runs.hpp"

#include <atomic>
#include <memory>
#include <utility>

#include "exec/transport/launch_plan/launch_plan.hpp"
#include "exec/transport/receive_arena.hpp"
#include "tests/catch.hpp"
#include "tests/exec/fake_nccl/nccl_ranks.hpp"
#include "tests/exec/plans.hpp"
#include "tests/exec/run/hashing_stage.hpp"

namespace plumb::exec::test {
namespace {

using Hashing = std::vector<std::pair<int, const HashingStage*>>;  // by stage

// The pipelines' gradients are alike, so that their sum is so many times one of them.
int wrong_gradients(const GroupCase& of, const Hashing& stages) {
  const Expected expected = expected_step(plumb::stages(of.lowered), of.lowered.microbatches);
  int wrong = 0;
  for (const auto& [number, stage] : stages) {
    const std::vector<float>& applied = stage->applied();
    if (applied.size() != gradient_values) return wrong + 1;
    for (std::size_t i = 0; i < gradient_values; ++i) {
      const float wanted =
          expected.gradients[static_cast<std::size_t>(number)][i] * static_cast<float>(of.plan.layout.data.degree);
      wrong += applied[i] == wanted ? 0 : 1;
    }
  }
  return wrong;
}

// As rings move it: of each whole that is gathered or scattered what others have, of a sum both.
double bytes_of(const GroupCall& call) {
  const auto ranks = static_cast<double>(call.of.ranks.size());
  const double whole = static_cast<double>(call.count) * sizeof(float);
  return call.kind == Collective::all_reduce ? 2 * (ranks - 1) / ranks * whole : (ranks - 1) * whole;
}

}  // namespace

GroupCase group_case(const std::string& schedule, const Layout& layout, bool recomputed, std::int64_t bucket_bytes) {
  const ScheduleEntry& entry = find_schedule(schedule);
  const ScheduleShape shape = shape_for(entry, {2, 2 * layout.pipeline, layout.pipeline});
  GroupCase made;
  made.plan = emulated_plan({.schedule = schedule, .shape = shape, .boundary_bytes = boundary_bytes});
  made.plan.layout = layout;
  made.plan.cluster.ranks = ranks(layout);
  if (recomputed) {
    const auto count = static_cast<std::size_t>(stages(made.plan.schedule));
    made.plan.schedule = with_recompute(made.plan.schedule, std::vector<bool>(count, true));
  }
  made.lowered = lower(made.plan.schedule, {.optimizer = true, .data_parallel = layout.data.degree > 1});
  const Beside beside{.gradients = {gradient_parts.begin(), gradient_parts.end()},
                      .bucket_bytes = static_cast<std::size_t>(bucket_bytes)};
  made.plan.software.data_overlap = bucket_bytes > 0;
  made.plan.software.data_bucket.bytes = {bucket_bytes};
  made.calls = made_up_calls(layout, made.lowered, bucket_bytes > 0 ? &beside : nullptr);
  return made;
}

bool runs_with_groups(const ScheduleEntry& entry, const Layout& layout) {
  if (!applies(entry, {2, 2 * layout.pipeline, layout.pipeline})) return false;
  const Schedule made = generate_schedule(entry.name, shape_for(entry, {2, 2 * layout.pipeline, layout.pipeline}));
  if (replicas(made) > 1 || made.update_every > 0) return false;
  return layout.tensor.degree == 1 || (made.slices == 1 && !evicts(made));
}

Ran run_groups(const GroupCase& of, const GroupRun& options) {
  const LaunchPlan messages = plan_launches(of.lowered, of.plan.costs);
  const LaunchPlan launches = all_launches(of.plan.layout, of.lowered, messages, of.calls);
  const std::vector<ReceiveSlots> slots = plan_receive_arenas(of.lowered, of.plan.costs, messages);
  Ran ran{.logs = std::vector<RankLog>(of.calls.size())};
  const auto wrong = std::make_shared<std::atomic<int>>(0);
  const NcclRun nccl{
      .communicators = plan_communicators(of.lowered, of.plan.layout, MadeUpCalls::parts(of.plan.layout)),
      .message_bytes = boundary_bytes,
      .speeds = options.speeds};
  run_nccl_ranks(ranks(of.plan.layout), nccl, [&](Transport& transport, AsyncDevice& device) {
    const auto rank = static_cast<std::size_t>(transport.rank());
    const int place = lane_of(of.plan.layout, transport.rank()).pipeline_rank;
    std::vector<std::unique_ptr<Stage>> stages(static_cast<std::size_t>(plumb::stages(of.lowered)));
    Hashing all_hashing;
    for (const int stage : stages_of_rank(of.lowered, place)) {
      auto hashing = std::make_unique<HashingStage>(
          device, [&](std::function<void()> work) { device.compute().run(std::move(work)); }, stage,
          plumb::stages(of.lowered), false);
      all_hashing.emplace_back(stage, hashing.get());
      auto moving =
          std::make_unique<MovingStage>(std::move(hashing), stage, of.calls[rank], transport, device, wrong,
                                        options.change ? options.change(transport.rank()) : MovingStage::Change());
      if (options.report) moving->change_reports(options.report(transport.rank(), device));
      stages[static_cast<std::size_t>(stage)] = std::move(moving);
    }
    const ReceiveArena arena(device, slots[static_cast<std::size_t>(place)]);
    ran.logs[rank] = run_rank(of.plan, of.lowered, transport, stages,
                              {.steps = options.steps,
                               .deadline_factor = 1,
                               .deadline_floor = {options.deadline},
                               .device = &device,
                               .launches = &launches.ranks[rank],
                               .arena = &arena});
    *wrong += wrong_gradients(of, all_hashing) + static_cast<int>(arena.refused());
    transport.barrier(in_seconds(600));
  });
  ran.wrong = *wrong;
  return ran;
}

std::string failure(const GroupCase& of, const GroupRun& options) {
  std::string said = "nothing";
  try {
    (void)run_groups(of, options);
  } catch (const Error& error) {
    said = error.what();
  }
  return said;
}

void require_right(const GroupCase& of, const Ran& ran) {
  CHECK(ran.wrong == 0);
  for (const RankLog& log : ran.logs) {
    double in_tensor = 0;
    const RankStep& step = log.steps.back();
    double messages = 0;
    for (const Event& event : step.events) {
      if (is_receive(event.action.kind)) messages += static_cast<double>(event.bytes.value);
      for (const auto& call : calls_of(of.calls[static_cast<std::size_t>(log.rank)], event.action)) {
        if (!call->open && !is_beside_compute(*call)) in_tensor += bytes_of(*call);
      }
    }
    const int data = of.plan.layout.data.degree;
    const int own =
        static_cast<int>(stages_of_rank(of.lowered, lane_of(of.plan.layout, log.rank).pipeline_rank).size());
    const double gradients = own * static_cast<double>(gradient_values * sizeof(float));
    const double in_data = 2.0 * (data - 1) / data * gradients;
    CHECK(static_cast<double>(step.received_in_tensor.value) == in_tensor);
    CHECK(static_cast<double>(step.received_in_data.value) == in_data);
    if (evicts(of.lowered)) continue;
    CHECK(static_cast<double>(step.received_bytes.value) == in_tensor + in_data + messages);
  }
}

}  // namespace plumb::exec::test

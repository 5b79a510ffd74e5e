// Collectives of a made-up model: what each action of a rank makes with its groups, each kind and each group at least
// once, of sizes that tell stages and calls apart.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "common/schedule/reductions.hpp"
#include "exec/transport/launch_plan/group_calls.hpp"

namespace plumb::exec::test {

// Gradients of so many elements that each stage's last W or B completes in the middle of its collectives, and of how
// many bytes the buckets are in which they are summed beside it.
struct Beside {
  std::vector<std::size_t> gradients;
  std::size_t bucket_bytes = 1;
};

class MadeUpCalls {
 public:
  // `beside`: null where gradients are summed behind.
  MadeUpCalls(const Layout& layout, const Schedule& lowered, int rank, const Beside* beside = nullptr)
      : layout_(layout) {
    tensor_ = {CommunicatorUse::tensor, group(layout, rank, MeshAxis::tensor)};
    const auto position = std::ranges::find(tensor_.ranks, rank) - tensor_.ranks.begin();
    part_.use = CommunicatorUse::tensor_part;
    for (const int at : parts(layout).empty() ? std::vector<int>{} : parts(layout).at(position < 2 ? 0 : 1)) {
      part_.ranks.push_back(tensor_.ranks[static_cast<std::size_t>(at)]);
    }
    for (const int stage : stages_of_rank(lowered, lane_of(layout, rank).pipeline_rank)) add(stage, rank);
    if (beside == nullptr || layout.data.degree == 1) return;
    const auto place = static_cast<std::size_t>(lane_of(layout, rank).pipeline_rank);
    for (const Action& last : last_weight_gradients(lowered.actions[place])) add_beside(last, *beside, rank);
  }

  // Of four ranks, two and two.
  static std::vector<std::vector<int>> parts(const Layout& layout) {
    if (layout.tensor.degree == 4) return {{0, 1}, {2, 3}};
    return {};
  }

  RankCalls calls = {};

 private:
  void add(int stage, int rank) {
    const bool sums = layout_.data.degree > 1;
    const auto ranks = tensor_.ranks.size();
    const auto of = [&](const std::string& what, const CommunicatorSpec& over, Collective kind, std::size_t count,
                        Reduction reduction = Reduction::sum) {
      auto call = std::make_shared<GroupCall>();
      call->of = over;
      call->kind = kind;
      call->reduction = reduction;
      call->count = count + ranks * static_cast<std::size_t>(stage);
      call->what = what + ", stage " + std::to_string(stage);
      return call;
    };
    const GroupCalls forward{of("gather", tensor_, Collective::all_gather, ranks),
                             of("scatter", tensor_, Collective::reduce_scatter, ranks),
                             of("maximum", tensor_, Collective::all_reduce, 2 * ranks, Reduction::maximum)};
    const GroupCalls input{of("sum", tensor_, Collective::all_reduce, 3 * ranks),
                           of("gather of gradients", tensor_, Collective::all_gather, 4 * ranks)};
    const GroupCalls weight{of("gather again", tensor_, Collective::all_gather, 5 * ranks)};
    GroupCalls backward = input;
    backward.insert(backward.end(), weight.begin(), weight.end());
    GroupCalls once{of("norm", tensor_, Collective::all_reduce, 6 * ranks)};
    if (!part_.ranks.empty()) once.push_back(of("head", part_, Collective::all_reduce, 7 * ranks));
    if (ranks > 1) {
      calls[{ActionKind::forward, stage}] = calls[{ActionKind::recompute, stage}] = forward;
      calls[{ActionKind::input_gradient, stage}] = input;
      calls[{ActionKind::weight_gradient, stage}] = weight;
      calls[{ActionKind::backward, stage}] = backward;
      calls[{sums ? ActionKind::reduce_gradient : ActionKind::optimizer_step, stage}] = once;
    }
    if (!sums) return;
    auto data = std::make_shared<GroupCall>();
    data->of = {CommunicatorUse::data, group(layout_, rank, MeshAxis::data)};
    data->open = true;
    data->what = "sum of gradients";
    calls[{ActionKind::reduce_gradient, stage}].push_back(std::move(data));
  }

  void add_beside(const Action& last, const Beside& beside, int rank) {
    const GroupCalls& around = calls_of(calls, last);
    const auto middle = around.begin() + static_cast<std::ptrdiff_t>(around.size() / 2);
    GroupCalls all(around.begin(), middle);
    GroupCall next;
    next.of = {CommunicatorUse::data, group(layout_, rank, MeshAxis::data)};
    next.beside = true;
    const auto put = [&] {
      next.what = "bucket " + std::to_string(all.size()) + ", stage " + std::to_string(last.stage);
      if (next.count > 0) all.push_back(std::make_shared<GroupCall>(next));
      next.bucket.clear();
      next.count = 0;
    };
    for (const std::size_t count : beside.gradients) {
      next.bucket.push_back(count);
      next.count += count;
      if (next.count * sizeof(float) >= beside.bucket_bytes) put();
    }
    all.insert(all.end(), middle, around.end());
    put();  // what is left starts when the action has been put on its stream
    calls[{last.kind, last.stage, last.microbatch}] = std::move(all);
  }

  const Layout& layout_;
  CommunicatorSpec tensor_;
  CommunicatorSpec part_;
};

inline Layout layout_of(int pipeline, int tensor, int data) {
  Layout layout;
  layout.pipeline = pipeline;
  layout.tensor.degree = tensor;
  layout.data.degree = data;
  return layout;
}

// By rank of the run.
inline std::vector<RankCalls> made_up_calls(const Layout& layout, const Schedule& lowered,
                                            const Beside* beside = nullptr) {
  std::vector<RankCalls> all;
  for (int rank = 0; rank < ranks(layout); ++rank) all.push_back(MadeUpCalls(layout, lowered, rank, beside).calls);
  return all;
}

// Of all ranks, by rank of the run.
inline LaunchPlan all_launches(const Layout& layout, const Schedule& lowered, const LaunchPlan& of_pipeline,
                               const std::vector<RankCalls>& calls) {
  LaunchPlan all;
  for (int rank = 0; rank < ranks(layout); ++rank) {
    const Lane lane = lane_of(layout, rank);
    const auto place = static_cast<std::size_t>(lane.pipeline_rank);
    all.ranks.push_back(launches_of_rank(of_pipeline.ranks[place], lane, lowered.actions[place],
                                         calls[static_cast<std::size_t>(rank)]));
  }
  return all;
}

}  // namespace plumb::exec::test

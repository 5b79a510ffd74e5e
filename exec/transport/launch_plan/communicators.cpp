#include "exec/transport/launch_plan/communicators.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>

#include "common/base/error.hpp"

namespace plumb::exec {
namespace {

// Which uses a pipeline's own actions have.
struct PipelineNeeds {
  bool evictions = false;
  bool tied = false;
  std::set<std::vector<int>> replicas;  // pairs of the pipeline's ranks
};

PipelineNeeds needs_of(const Schedule& lowered) {
  PipelineNeeds needs;
  for (const auto& list : lowered.actions) {
    for (const Action& action : list) {
      needs.evictions = needs.evictions || is_eviction(action.kind);
      needs.tied = needs.tied || action.kind == ActionKind::reduce_tied;
      if (!is_sum_of_replicas(lowered, action)) continue;
      const int first = rank_in_replica(lowered, 0, action.stage);
      const int second = rank_in_replica(lowered, 1, action.stage);
      if (first != second) needs.replicas.insert({std::min(first, second), std::max(first, second)});
    }
  }
  return needs;
}

class Planner {
 public:
  Planner(const Schedule& lowered, const Layout& layout, const std::vector<std::vector<int>>& tensor_parts)
      : lowered_(lowered), layout_(layout), tensor_parts_(tensor_parts) {}

  std::vector<CommunicatorSpec> run() {
    const PipelineNeeds needs = needs_of(lowered_);
    for (int rank = 0; rank < ranks(layout_); ++rank) {
      const std::vector<int> pipeline = group(layout_, rank, MeshAxis::pipeline);
      if (pipeline.front() == rank) add_pipeline(pipeline, needs);
      add_tensor(group(layout_, rank, MeshAxis::tensor));
      add(CommunicatorUse::context, group(layout_, rank, MeshAxis::context));
      add(CommunicatorUse::expert, group(layout_, rank, MeshAxis::expert));
      add(CommunicatorUse::data, shard_group(layout_, rank));
      add(CommunicatorUse::data, replicate_group(layout_, rank));
      add_gradients(rank);
    }
    return {all_.begin(), all_.end()};
  }

 private:
  void add(CommunicatorUse use, std::vector<int> members) {
    if (members.size() > 1) all_.insert({use, std::move(members)});
  }

  void add_tensor(const std::vector<int>& whole) {
    add(CommunicatorUse::tensor, whole);
    for (const std::vector<int>& part : tensor_parts_) {
      std::vector<int> members;
      for (const int position : part) members.push_back(whole.at(static_cast<std::size_t>(position)));
      add(CommunicatorUse::tensor_part, std::move(members));
    }
  }

  void add_pipeline(const std::vector<int>& pipeline, const PipelineNeeds& needs) {
    const auto at = [&](int rank) { return pipeline[static_cast<std::size_t>(rank)]; };
    add(CommunicatorUse::down, pipeline);
    add(CommunicatorUse::up, pipeline);
    if (needs.evictions) add(CommunicatorUse::evictions, pipeline);
    const int first = lowered_.rank_of_stage.front();
    const int last = lowered_.rank_of_stage.back();
    if (needs.tied) add(CommunicatorUse::tied, {at(std::min(first, last)), at(std::max(first, last))});
    for (const std::vector<int>& pair : needs.replicas) add(CommunicatorUse::replicas, {at(pair[0]), at(pair[1])});
  }

  // Where only one of the axes is longer than one, that axis has the same ranks.
  void add_gradients(int rank) {
    constexpr std::array axes{MeshAxis::data, MeshAxis::context, MeshAxis::expert};
    const auto longer = std::ranges::count_if(axes, [&](MeshAxis axis) { return degree(layout_, axis) > 1; });
    if (longer < 2) return;
    std::vector<int> members{rank};
    for (const MeshAxis axis : axes) {
      std::vector<int> wider;
      for (const int member : members) {
        const std::vector<int> along = group(layout_, member, axis);
        wider.insert(wider.end(), along.begin(), along.end());
      }
      members = std::move(wider);
    }
    std::ranges::sort(members);
    add(CommunicatorUse::gradients, std::move(members));
  }

  const Schedule& lowered_;
  const Layout& layout_;
  const std::vector<std::vector<int>>& tensor_parts_;
  std::set<CommunicatorSpec> all_;
};

}  // namespace

std::string_view name(CommunicatorUse use) {
  constexpr std::array<std::string_view, communicator_uses> names{
      "down", "up", "evictions", "tied", "replicas", "tensor", "tensor part", "context", "expert", "data", "gradients"};
  return names[static_cast<std::size_t>(use)];
}

std::string describe(const CommunicatorSpec& spec) {
  const std::vector<int>& ranks = spec.ranks;
  const bool contiguous = !ranks.empty() && ranks.back() - ranks.front() + 1 == static_cast<int>(ranks.size()) &&
                          std::ranges::is_sorted(ranks);
  if (contiguous && ranks.size() > 2)
    return fmt::format("{} (ranks {}-{})", name(spec.use), ranks.front(), ranks.back());
  return fmt::format("{} (ranks {})", name(spec.use), fmt::join(ranks, ", "));
}

std::vector<CommunicatorSpec> plan_communicators(const Schedule& lowered, const Layout& layout,
                                                 const std::vector<std::vector<int>>& tensor_parts) {
  require_consistent(layout);
  if (lowered.ranks != layout.pipeline) {
    throw InputError("layout", fmt::format("has {} pipeline ranks, but schedule {} has {}", layout.pipeline,
                                           lowered.name, lowered.ranks));
  }
  return Planner(lowered, layout, tensor_parts).run();
}

}  // namespace plumb::exec

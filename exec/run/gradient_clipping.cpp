#include "exec/run/gradient_clipping.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "exec/stage/primitives/optimizer.hpp"
#include "exec/transport/collectives/collectives.hpp"
#include "exec/transport/collectives/rank_group.hpp"
#include "kernels/exact_squares.hpp"

namespace plumb::exec {
namespace {

using kernels::ExactSquares;

// Of the first replica; null where another rank holds it.
Stage* counted(const RankStages& stages, const Schedule& schedule, int stage) {
  return stages.all()[stage_slot(schedule, 0, stage)].get();
}

}  // namespace

void find_squares(const RankStages& stages, const Schedule& schedule) {
  for (int stage = 0; stage < all_stages(schedule); ++stage) {
    if (Stage* const first = counted(stages, schedule, stage)) first->find_squares();
  }
}

double clip_gradients(const RankStages& stages, const Schedule& schedule, double limit, Transport& world,
                      Clock::time_point deadline) {
  ExactSquares own;
  for (int stage = 0; stage < all_stages(schedule); ++stage) {
    if (const Stage* const first = counted(stages, schedule, stage)) own.add(first->squares());
  }
  const std::vector<int> all = ranks_from(0, world.size());
  std::vector<ExactSquares::Numbers> given(all.size());
  given[static_cast<std::size_t>(world.rank())] = own.numbers();
  std::vector<std::span<std::byte>> parts;
  for (ExactSquares::Numbers& numbers : given) parts.push_back(std::as_writable_bytes(std::span(numbers)));
  Collectives(world).all_gather(all, parts, deadline);
  ExactSquares sum;
  for (const ExactSquares::Numbers& numbers : given) sum.add(ExactSquares::from_numbers(numbers));
  const double norm = std::sqrt(sum.sum());
  const double scale = clipping_scale(norm, limit);
  if (scale == 1) return norm;
  for (const auto& stage : stages.all()) {
    if (stage) stage->scale_gradients(scale);
  }
  return norm;
}

}  // namespace plumb::exec

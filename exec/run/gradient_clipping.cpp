#include "exec/run/gradient_clipping.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "exec/stage/primitives/exact_squares.hpp"
#include "exec/stage/primitives/optimizer.hpp"
#include "exec/transport/collectives/collectives.hpp"
#include "exec/transport/collectives/rank_group.hpp"

namespace plumb::exec {

double clip_gradients(const RankStages& stages, const Schedule& schedule, double limit, Transport& world,
                      Clock::time_point deadline) {
  ExactSquares own;
  for (int stage = 0; stage < plumb::stages(schedule); ++stage) {
    const auto& first = stages.all()[stage_slot(schedule, 0, stage)];
    if (first) first->add_squares(own);
  }
  const std::vector<int> all = ranks_from(0, world.size());
  std::vector<ExactSquares::Bytes> given(all.size());
  given[static_cast<std::size_t>(world.rank())] = own.to_bytes();
  std::vector<std::span<std::byte>> parts(given.begin(), given.end());
  Collectives(world).all_gather(all, parts, deadline);
  ExactSquares sum;
  for (const ExactSquares::Bytes& bytes : given) sum.add(ExactSquares::from_bytes(bytes));
  const double norm = std::sqrt(sum.sum());
  const double scale = clipping_scale(norm, limit);
  if (scale == 1) return norm;
  for (const auto& stage : stages.all()) {
    if (stage) stage->scale_gradients(scale);
  }
  return norm;
}

}  // namespace plumb::exec

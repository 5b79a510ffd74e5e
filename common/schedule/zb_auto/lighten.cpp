#include "common/schedule/zb_auto/lighten.hpp"

#include <algorithm>

namespace plumb::zb_auto {
namespace {

constexpr std::size_t most_looks = 64;  // ahead, per action: lists of many F in a row would take quadratic time

// Where the list would keep more than `limit`, the next I or W that can go there goes before, as often as need be: so F
// come later and the others sooner, each part in its order. False if none can.
bool kept_within(const Model& model, std::int64_t limit, std::vector<Step>& list, std::vector<std::uint32_t>& done) {
  std::ranges::fill(done, 0U);
  std::int64_t kept = 0;
  std::size_t looks = most_looks * list.size();
  for (std::size_t at = 0; at < list.size(); ++at) {
    if (kept + model.change[list[at]] > limit) {
      std::size_t other = at + 1;
      for (; other < list.size() && looks > 0; ++other, --looks) {
        const Step step = list[other];
        if (part_of(step) != Part::forward && done[step] < done[step - 1] && kept + model.change[step] <= limit) break;
      }
      if (other == list.size() || looks == 0) return false;
      const auto first = list.begin() + static_cast<std::ptrdiff_t>(at);
      std::rotate(first, first + static_cast<std::ptrdiff_t>(other - at),
                  first + static_cast<std::ptrdiff_t>(other - at + 1));
    }
    kept += model.change[list[at]];
    ++done[list[at]];
  }
  return true;
}

}  // namespace

Candidate lightened(const Model& model, Candidate candidate, std::size_t evaluations) {
  Clock clock(model);
  std::vector<std::int64_t> kept;  // per rank
  for (const auto& list : candidate.lists) kept.push_back(most_kept(model, list));
  std::vector<bool> settled(model.ranks, false);
  std::vector<std::uint32_t> done(model.steps());
  std::vector<Step> before;
  while (evaluations-- > 0) {
    std::size_t rank = model.ranks;
    for (std::size_t r = 0; r < model.ranks; ++r) {
      if (settled[r] || kept[r] == 0) continue;
      if (rank == model.ranks || kept[r] - model.limit[r] > kept[rank] - model.limit[rank]) rank = r;
    }
    if (rank == model.ranks) break;
    std::vector<Step>& list = candidate.lists[rank];
    before = list;
    Score score;
    if (kept_within(model, kept[rank] - 1, list, done)) score = clock.run(candidate.lists).score;
    score.fullest = candidate.score.fullest;
    settled[rank] = score.makespan == never || better(candidate.score, score);
    if (settled[rank]) {
      std::swap(list, before);
      continue;
    }
    kept[rank] = most_kept(model, list);
  }
  candidate.score.fullest = fullest(model, candidate.lists);
  return candidate;
}

}  // namespace plumb::zb_auto

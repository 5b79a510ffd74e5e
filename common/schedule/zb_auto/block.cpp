// As the V schedules are made by hand for stages that are all alike (Qi et al., arXiv 2405.15362), here for any: the
// lifespans of a microbatch on a rank, over the period, are the memory that the rank needs.
#include "common/schedule/zb_auto/block.hpp"

#include <algorithm>
#include <cmath>

#include "common/schedule/zb_auto/random.hpp"

namespace plumb::zb_auto {
namespace {

// One period of a rank: what of it is taken, by the phase where it begins.
struct Taken {
  double begin;
  double end;  // may lie behind the period's end: it goes on at its beginning
};

class BlockPlacer {
 public:
  BlockPlacer(const Model& model, double period) : model_(model), period_(period), taken_(model.ranks) {}

  // `delay`: per step, how much later than its input it is placed at the earliest.
  [[nodiscard]] PeriodicBlock place(const std::vector<double>& delay) {
    for (auto& taken : taken_) taken.clear();
    overlap_ = 0;
    PeriodicBlock block{.period = period_, .start = std::vector<double>(model_.steps()), .cost = 0};
    const auto put = [&](std::size_t stage, Part part) {
      const Step step = step_of(stage, part);
      const Step before = model_.before[step];
      double earliest = delay[step];
      if (before != no_step) earliest += block.start[before] + model_.seconds[before] + model_.lag[step];
      block.start[step] = take(model_.rank_of(step), earliest, model_.seconds[step]);
    };
    for (std::size_t s = 0; s < model_.stages; ++s) put(s, Part::forward);
    for (std::size_t s = model_.stages; s-- > 0;) put(s, Part::input_gradient);
    for (std::size_t s = model_.stages; s-- > 0;) put(s, Part::weight_gradient);
    block.cost = cost_of(block);
    return block;
  }

 private:
  // The first moment from `earliest` on whose phase is free for so long. If none is: there, over what is taken, for
  // only the order matters in the end.
  [[nodiscard]] double take(std::size_t rank, double earliest, double seconds) {
    auto& taken = taken_[rank];
    double at = earliest;
    for (std::size_t moves = 0; moves <= taken.size() + 1; ++moves) {
      const double phase = phase_of(at);
      double jump = 0;
      for (const Taken& other : taken) {
        for (const double turn : {-period_, 0.0, period_}) {
          if (phase < other.end + turn - slack() && phase + seconds > other.begin + turn + slack()) {
            jump = std::max(jump, other.end + turn - phase);
          }
        }
      }
      if (jump <= 0) {
        taken.push_back({phase, phase + seconds});
        return at;
      }
      at += jump;
    }
    overlap_ += seconds;
    taken.push_back({phase_of(earliest), phase_of(earliest) + seconds});
    return earliest;
  }

  [[nodiscard]] double phase_of(double at) const { return at - period_ * std::floor(at / period_); }
  [[nodiscard]] double slack() const { return 1e-9 * period_; }

  // How far the memory of steady ranks lies above their limits, then the time in which a microbatch is through.
  [[nodiscard]] double cost_of(const PeriodicBlock& block) const {
    double excess = 0;
    for (std::size_t r = 0; r < model_.ranks; ++r) {
      if (model_.limit[r] == std::numeric_limits<std::int64_t>::max() || model_.limit[r] <= 0) continue;
      const auto limit = static_cast<double>(model_.limit[r]);
      excess += std::max(0.0, (steady_bytes(block, r) - limit) / limit);
    }
    const double through = block.start[step_of(0, Part::weight_gradient)];
    return 1e3 * (excess + overlap_ / period_) + through / period_;
  }

  // The peak of what a rank keeps once it is in step.
  [[nodiscard]] double steady_bytes(const PeriodicBlock& block, std::size_t rank) const {
    std::vector<std::pair<double, double>> changes;  // phase, bytes
    double level = 0;                                // at the period's beginning
    for (const std::size_t s : model_.stages_of_rank[rank]) {
      for (const Part part : {Part::forward, Part::input_gradient, Part::weight_gradient}) {
        const Step step = step_of(s, part);
        const auto change = static_cast<double>(model_.change[step]);
        const double turns = std::floor(block.start[step] / period_);
        level -= turns * change;
        changes.emplace_back(block.start[step] - turns * period_, change);
      }
    }
    std::ranges::sort(changes);
    double peak = level;
    for (const auto& [phase, change] : changes) peak = std::max(peak, level += change);
    return peak;
  }

  const Model& model_;
  double period_;
  std::vector<std::vector<Taken>> taken_;  // per rank
  double overlap_ = 0;
};

}  // namespace

PeriodicBlock find_block(const Model& model, double period, int rounds) {
  BlockPlacer placer(model, period);
  Random random;
  std::vector<double> delay(model.steps(), 0);
  PeriodicBlock best = placer.place(delay);
  for (int round = 0; round < rounds; ++round) {
    if (model.stop != nullptr) model.stop->check();
    std::vector<double> other = delay;
    const std::size_t changes = 1 + random.below(3);
    for (std::size_t change = 0; change < changes; ++change) {
      double& one = other[random.below(other.size())];
      one = random.below(2) == 0 ? 0 : random.unit() * period * 0.4;
    }
    PeriodicBlock block = placer.place(other);
    if (block.cost > best.cost) continue;
    best = std::move(block);
    delay = std::move(other);
  }
  return best;
}

StepLists unrolled(const Model& model, const PeriodicBlock& block) {
  StepLists lists(model.ranks);
  for (std::size_t r = 0; r < model.ranks; ++r) {
    struct Slot {
      double phase;
      Step step;
      std::int64_t turn;
    };
    std::vector<Slot> slots;
    std::int64_t turns = 0;
    for (const std::size_t s : model.stages_of_rank[r]) {
      for (const Part part : {Part::forward, Part::input_gradient, Part::weight_gradient}) {
        const Step step = step_of(s, part);
        const double turn = std::floor(block.start[step] / block.period);
        slots.push_back({block.start[step] - turn * block.period, step, static_cast<std::int64_t>(turn)});
        turns = std::max(turns, slots.back().turn);
      }
    }
    // What starts together keeps the order of its work: a zero-time action must not overtake its input.
    std::ranges::stable_sort(slots, {}, &Slot::phase);
    const auto microbatches = static_cast<std::int64_t>(model.microbatches);
    for (std::int64_t turn = 0; turn < microbatches + turns; ++turn) {
      for (const Slot& slot : slots) {
        const std::int64_t k = turn - slot.turn;
        if (k >= 0 && k < microbatches) lists[r].push_back(slot.step);
      }
    }
  }
  return lists;
}

}  // namespace plumb::zb_auto

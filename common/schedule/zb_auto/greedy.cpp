// What can be known at a moment is what has started: an action's end, and so when its result arrives elsewhere.
//
// Memory: F may start if the rank can still finish. Of the microbatches not yet forwarded through all stages of a rank
// none can free anything there before the oldest, o, is: then stage s, which is f_s microbatches on, holds max(1,
// f_s−o) of them. So F is allowed while Σ_s kept_s·max(1, f_s−o) ≤ limit after it. The globally oldest microbatch
// always passes this test, so the schedule never stands still; and no rule that is safe could allow more.
#include "common/schedule/zb_auto/greedy.hpp"

#include <algorithm>

namespace plumb::zb_auto {
namespace {

// What a rank could do: now, or later.
struct Choice {
  Step now = no_step;
  double arrival = never;  // of the first F or I that is under way
  Step weight = no_step;
  bool wants_room = false;  // an F waits for nothing but memory
};

class ListScheduler {
 public:
  ListScheduler(const Model& model, const Policy& policy)
      : model_(model),
        policy_(policy),
        lists_(model.ranks),
        done_(model.steps()),
        arrival_(model.actions(), never),
        wake_(model.ranks, 0),
        free_at_(model.ranks, 0),
        ranks_(model.ranks),
        hold_(model.stages) {
    for (std::size_t s = 0; s < model.stages; ++s) {
      const std::int64_t kept = model.change[step_of(s, Part::forward)];
      hold_[s] = std::max(kept, kept + model.change[step_of(s, Part::input_gradient)]);
    }
    for (std::size_t k = 0; k < model.microbatches; ++k) arrival_[k] = 0;  // F of the first stage
    for (std::size_t r = 0; r < model.ranks; ++r) {
      const std::size_t chunks = model.stages_of_rank[r].size();
      lists_[r].reserve(3 * chunks * model.microbatches);
      ranks_[r].most_in_flight = std::numeric_limits<int>::max();
      if (!policy.in_flight.empty()) ranks_[r].most_in_flight = std::max(policy.in_flight[r], static_cast<int>(chunks));
    }
  }

  StepLists run() {
    for (std::size_t left = model_.actions(); left > 0;) {
      const auto rank = static_cast<std::size_t>(std::ranges::min_element(wake_) - wake_.begin());
      const double now = wake_[rank];
      if (now == never) return {};
      wake_[rank] = never;
      const Step step = decide(rank, now);
      if (step == no_step) continue;
      start(rank, step, now);
      --left;
    }
    return std::move(lists_);
  }

 private:
  struct RankState {
    std::int64_t kept = 0;
    int in_flight = 0;
    int most_in_flight = 0;
    bool last_was_forward = false;
    std::size_t place = 0;  // in the order that is kept
  };

  [[nodiscard]] double arrival_of(Step step) const {
    return done_[step] < model_.microbatches ? arrival_[model_.action(step, done_[step])] : never;
  }

  [[nodiscard]] bool fits_now(std::size_t rank, std::size_t stage) const {
    return ranks_[rank].kept + hold_[stage] <= model_.limit[rank];
  }

  [[nodiscard]] bool may_forward(std::size_t rank, std::size_t stage) const {
    if (!fits_now(rank, stage)) return false;
    if (policy_.order != nullptr) return true;
    const auto& stages = model_.stages_of_rank[rank];
    if (stages.size() == 1) return ranks_[rank].in_flight < ranks_[rank].most_in_flight;
    const auto forwarded = [&](std::size_t s) { return done_[step_of(s, Part::forward)] + (s == stage ? 1U : 0U); };
    // A microbatch reaches the rank's last stage last.
    const std::uint32_t oldest = forwarded(stages.back());
    std::int64_t bytes = 0;
    int chunks = 0;
    for (const std::size_t s : stages) {
      const std::uint32_t ahead = std::max(1U, forwarded(s) - oldest);
      bytes += hold_[s] * ahead;
      chunks += static_cast<int>(ahead);
    }
    return bytes <= model_.limit[rank] && chunks <= ranks_[rank].most_in_flight &&
           ranks_[rank].in_flight < ranks_[rank].most_in_flight;
  }

  [[nodiscard]] Step next_in_order(std::size_t rank) {
    const std::vector<Step>& list = (*policy_.order)[rank];
    std::size_t& place = ranks_[rank].place;
    while (place < list.size() && part_of(list[place]) == Part::weight_gradient) ++place;
    return place < list.size() ? list[place] : no_step;
  }

  void consider(std::size_t rank, Step step, double now, Choice& choice) const {
    const double arrival = arrival_of(step);
    if (arrival == never) return;
    if (part_of(step) == Part::forward && !may_forward(rank, stage_of(step))) {
      choice.wants_room |=
          arrival <= now && !fits_now(rank, stage_of(step)) && ranks_[rank].in_flight < ranks_[rank].most_in_flight;
    } else if (arrival > now) {
      choice.arrival = std::min(choice.arrival, arrival);
    } else if (choice.now == no_step || preferred(rank, step, choice.now)) {
      choice.now = step;
    }
  }

  [[nodiscard]] bool preferred(std::size_t rank, Step a, Step b) const {
    if (part_of(a) == part_of(b)) return (stage_of(a) > stage_of(b)) == (part_of(a) == Part::forward);
    const bool forward = policy_.prefer == Policy::Prefer::alternate ? !ranks_[rank].last_was_forward
                                                                     : policy_.prefer == Policy::Prefer::forward;
    return (part_of(a) == Part::forward) == forward;
  }

  // What the rank starts now; none: it waits.
  [[nodiscard]] Step decide(std::size_t rank, double now) {
    Choice choice;
    if (policy_.order != nullptr) {
      if (const Step next = next_in_order(rank); next != no_step) consider(rank, next, now, choice);
    }
    for (const std::size_t s : model_.stages_of_rank[rank]) {
      if (policy_.order == nullptr) {
        consider(rank, step_of(s, Part::forward), now, choice);
        consider(rank, step_of(s, Part::input_gradient), now, choice);
      }
      const Step weight = step_of(s, Part::weight_gradient);
      const bool older = choice.weight == no_step || done_[weight] < done_[choice.weight];
      if (older && arrival_of(weight) <= now) choice.weight = weight;
    }
    const bool fills = choice.now == no_step || (policy_.room_first && choice.wants_room);
    if (!fills || choice.weight == no_step) {
      if (choice.now == no_step) wake_[rank] = std::min(wake_[rank], choice.arrival);
      return choice.now;
    }
    if (choice.now == no_step && choice.arrival - now < policy_.patience * model_.seconds[choice.weight]) {
      wake_[rank] = std::min(wake_[rank], choice.arrival);
      return no_step;
    }
    return choice.weight;
  }

  void start(std::size_t rank, Step step, double now) {
    const std::uint32_t k = done_[step]++;
    const std::size_t stage = stage_of(step);
    const Part part = part_of(step);
    const double end = now + model_.seconds[step];
    lists_[rank].push_back(step);
    free_at_[rank] = end;
    wake_[rank] = end;
    RankState& state = ranks_[rank];
    if (part == Part::weight_gradient) {
      state.kept += model_.change[step];
      return;
    }
    const Step weight = step_of(stage, Part::weight_gradient);
    const bool forward = part == Part::forward;
    state.kept += forward ? hold_[stage] : -model_.change[weight] - hold_[stage];
    state.in_flight += forward ? 1 : -1;
    state.last_was_forward = forward;
    ++state.place;
    if (!forward) arrival_[model_.action(weight, k)] = end;
    const Step after = model_.after[step];
    if (after == no_step) return;
    const double arrival = end + model_.lag[after];
    arrival_[model_.action(after, k)] = arrival;
    const std::size_t other = model_.rank_of(after);
    if (other != rank && done_[after] == k) wake_[other] = std::min(wake_[other], std::max(arrival, free_at_[other]));
  }

  const Model& model_;
  const Policy& policy_;
  StepLists lists_;
  std::vector<std::uint32_t> done_;  // per step
  std::vector<double> arrival_;      // per action, when its input is there
  std::vector<double> wake_;         // per rank, when it looks again
  std::vector<double> free_at_;      // per rank
  std::vector<RankState> ranks_;
  std::vector<std::int64_t> hold_;  // per stage, from F until I: what I may add is set aside
};

}  // namespace

StepLists list_schedule(const Model& model, const Policy& policy) {
  if (model.stop != nullptr) model.stop->check();
  return ListScheduler(model, policy).run();
}

}  // namespace plumb::zb_auto

#include "common/schedule/generators/vocabulary_passes.hpp"

#include <algorithm>
#include <cstddef>

#include "common/schedule/vocabulary_parts.hpp"

namespace plumb {
namespace {

bool is_gradient(const Action& action) { return makes_input_gradient(action.kind); }

// F and B = 2F, or F, I and W, in units of F.
constexpr int turn_length = 3;

class Passes {
 public:
  Passes(const Schedule& schedule, int rank, const std::vector<Action>& list)
      : list_(list),
        barriers_(schedule.vocabulary_barriers),
        microbatches_(schedule.microbatches),
        ranks_(schedule.ranks),
        rank_(rank),
        head_(head_part(schedule, rank)),
        embedding_(embedding_part(schedule, rank)) {}

  std::vector<Action> inserted() {
    const std::vector<std::size_t> before = places_of_turns();
    int turn = 0;
    // Phase 1, before the first F: the embedding of as many microbatches as the rank is behind the first one, and two
    for (int k = 0; k < rank_ + 2; ++k) look_up(k);
    // Phase 2: the list, each F of its warm-up with one more embedding, and the turns of the parts
    for (std::size_t at = 0; at <= list_.size(); ++at) {
      for (; turn <= microbatches_ && before[static_cast<std::size_t>(turn)] == at; ++turn) add_turn(turn);
      if (at > 0 && at <= warm_up()) look_up(list_[at - 1].microbatch + rank_ + 2);
      if (at < list_.size()) result_.push_back(list_[at]);
    }
    // Phase 3: what the last turns left of the embedding's B
    for (int k = std::max(0, microbatches_ - behind_first() + 1); k < microbatches_; ++k) {
      result_.push_back({ActionKind::backward, embedding_, k});
    }
    return std::move(result_);
  }

 private:
  // F before the first F, B or I that has a turn of its own.
  [[nodiscard]] std::size_t warm_up() const {
    return static_cast<std::size_t>(std::min(ranks_ - rank_ - 1 + barriers_, microbatches_));
  }
  [[nodiscard]] int gradient_length() const {
    return std::ranges::find_if(list_, is_gradient)->kind == ActionKind::backward ? 2 : 1;
  }
  // Turns that the first rank is behind the last one with its B.
  [[nodiscard]] int turns_behind() const { return time_behind(0) / turn_length; }
  // How long before its B(j−b) a rank begins turn j. The last rank begins B(j−b) when it has F(j), and turn j behind
  // it; between these others may, where none of their actions is under way, the sooner the better.
  [[nodiscard]] int time_behind(int rank) const {
    const int latest = (ranks_ - 2 - rank) * gradient_length();
    int time = latest + gradient_length();
    while (time > latest && gradient_length() > 1 && time % turn_length > 1) --time;
    return time;
  }
  // Between a turn and the microbatch whose B the embedding adds in it.
  [[nodiscard]] int behind_first() const { return barriers_ + turns_behind() + 2; }

  // Behind which of its actions the rank has each turn.
  [[nodiscard]] std::vector<std::size_t> places_of_turns() const {
    const auto first = static_cast<std::size_t>(std::ranges::find_if(list_, is_gradient) - list_.begin());
    const bool last_rank = rank_ == ranks_ - 1;
    std::vector<std::size_t> places;
    for (int turn = 0; turn <= microbatches_; ++turn) {
      if (turn < barriers_) {
        places.push_back(static_cast<std::size_t>(std::min(ranks_ - rank_ - 1 + turn, microbatches_ - 1)) + 1);
        continue;
      }
      const int behind = last_rank ? 0 : time_behind(rank_);
      const int microbatch = std::max(0, turn - barriers_ - behind / turn_length);
      const auto gradient = std::ranges::find_if(
          list_, [&](const Action& action) { return is_gradient(action) && action.microbatch == microbatch; });
      auto place = static_cast<std::size_t>(gradient - list_.begin());
      if (last_rank) ++place;
      // The rest of the time lies before it in its turn, unless it is the first.
      for (int rest = behind % turn_length; rest > 0 && place > first && !is_gradient(list_[place - 1]); --rest)
        --place;
      places.push_back(place);
    }
    return places;
  }

  void look_up(int microbatch) {
    if (microbatch < microbatches_) result_.push_back({ActionKind::forward, embedding_, microbatch});
  }

  void add_turn(int turn) {
    const bool one = barriers_ == 1;
    if (turn > 0) {
      result_.push_back({one ? ActionKind::weight_gradient : ActionKind::backward, head_, turn - 1});
    }
    if (turn < microbatches_) {
      result_.push_back({ActionKind::forward, head_, turn});
      if (one) result_.push_back({ActionKind::input_gradient, head_, turn});
    }
    if (turn >= barriers_ + turns_behind()) look_up(ranks_ + 1 + turn - turns_behind());
    if (turn >= behind_first()) result_.push_back({ActionKind::backward, embedding_, turn - behind_first()});
  }

  const std::vector<Action>& list_;
  int barriers_;
  int microbatches_;
  int ranks_;
  int rank_;
  int head_;
  int embedding_;
  std::vector<Action> result_;
};

}  // namespace

std::vector<Action> with_vocabulary_passes(const Schedule& schedule, int rank, const std::vector<Action>& list) {
  return Passes(schedule, rank, list).inserted();
}

}  // namespace plumb

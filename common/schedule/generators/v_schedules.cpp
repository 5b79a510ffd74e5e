#include "common/schedule/generators/v_schedules.hpp"

#include <algorithm>
#include <compare>

namespace plumb {
namespace {

constexpr int period = 6;  // F, I and W of two chunks
constexpr int free_slot = -1;

// What a rank does for a microbatch, in this order; W stands for both chunks' weight gradients.
enum Pass : int { f0, f1, i1, i0, w };
constexpr int passes = 5;
constexpr bool is_f(int pass) { return pass == f0 || pass == f1; }
constexpr bool is_i(int pass) { return pass == i1 || pass == i0; }

// In the order of time; ties by rank.
struct Item {
  int slot = 0;
  int rank = 0;
  int pass = f0;
  int number = 0;  // the microbatch; of W: the how-manieth on its rank
  friend auto operator<=>(const Item&, const Item&) = default;
};

// What a rank holds between two slots.
struct Held {
  int activations = 0;  // of one chunk
  int waiting = 0;      // I that have no W yet
  bool operator==(const Held&) const = default;
};

// One rank's items and the slots they stand in.
class RankSlots {
 public:
  RankSlots(const BuildingBlock& block, int microbatches) {
    for (int pass = f0; pass <= i0; ++pass) {
      for (int k = 0; k < microbatches; ++k) {
        slots_[at(pass)].push_back(block[at(pass)] + period * k);
      }
    }
  }

  [[nodiscard]] const std::vector<int>& slots(int pass) const { return slots_[at(pass)]; }

  // Which pass stands in each slot.
  [[nodiscard]] std::vector<int> line() const {
    int last = 0;
    for (const auto& of_pass : slots_) {
      if (!of_pass.empty()) last = std::max(last, of_pass.back());
    }
    std::vector<int> line(at(last + 1), free_slot);
    for (int pass = f0; pass <= w; ++pass) {
      for (const int slot : slots(pass)) line[at(slot)] = pass;
    }
    return line;
  }

  void put(const Item& item, int slot) { slots_[at(item.pass)][at(item.number)] = slot; }

  // Each W in the first free slot after an I, in the order of these.
  void insert_weights() {
    std::vector<int>& weights = slots_[w];
    const std::vector<int> line = this->line();
    const std::size_t all = slots_[i1].size() + slots_[i0].size();
    int waiting = 0;
    for (int slot = 0; weights.size() < all; ++slot) {
      const int pass = slot < static_cast<int>(line.size()) ? line[at(slot)] : free_slot;
      if (is_i(pass)) ++waiting;
      if (pass != free_slot || waiting == 0) continue;
      weights.push_back(slot);
      --waiting;
    }
  }

  void remove_weights() { slots_[w].clear(); }
  [[nodiscard]] bool has_weights() const { return !slots_[w].empty(); }

 private:
  static std::size_t at(int index) { return static_cast<std::size_t>(index); }
  std::array<std::vector<int>, passes> slots_;
};

// What a rank holds before each slot, so that a move costs only the slots that it changes. Where W are not placed, each
// free slot is taken to run one.
class RankMemory {
 public:
  explicit RankMemory(const RankSlots& rank) : line_(rank.line()), weights_placed_(rank.has_weights()) {
    before_.emplace_back();
    for (const int pass : line_) before_.push_back(after(before_.back(), pass));
  }

  [[nodiscard]] bool is_free(int slot) const { return line_[static_cast<std::size_t>(slot)] == free_slot; }

  [[nodiscard]] int peak() const { return std::ranges::max(before_, {}, &Held::activations).activations; }

  // Moves what stands in slot `from` to the earlier, free slot `to`, unless more than `cap` would be held then.
  bool move(int from, int to, int cap) {
    const auto first = static_cast<std::size_t>(to);
    const auto last = static_cast<std::size_t>(from);
    std::swap(line_[first], line_[last]);
    std::vector<Held> changed{before_[first]};
    for (std::size_t slot = first; slot < line_.size(); ++slot) {
      changed.push_back(after(changed.back(), line_[slot]));
      if (changed.back().activations > cap) {
        std::swap(line_[first], line_[last]);
        return false;
      }
      if (slot >= last && changed.back() == before_[slot + 1]) break;
    }
    std::ranges::copy(changed, before_.begin() + to);
    return true;
  }

 private:
  [[nodiscard]] Held after(Held held, int pass) const {
    if (is_f(pass)) ++held.activations;
    if (is_i(pass)) ++held.waiting;
    const bool runs_w = pass == w || (pass == free_slot && !weights_placed_ && held.waiting > 0);
    return runs_w ? Held{held.activations - 1, held.waiting - 1} : held;
  }

  std::vector<int> line_;
  std::vector<Held> before_;  // and after the last one
  bool weights_placed_ = false;
};

class VSchedule {
 public:
  VSchedule(const std::vector<BuildingBlock>& blocks, int microbatches)
      : last_rank_(static_cast<int>(blocks.size()) - 1) {
    for (const BuildingBlock& block : blocks) ranks_.emplace_back(block, microbatches);
  }

  void insert_weights() {
    for (RankSlots& rank : ranks_) rank.insert_weights();
  }
  void remove_weights() {
    for (RankSlots& rank : ranks_) rank.remove_weights();
  }

  // In the order of time, moves each item of the warm-up (if asked for) and of the cool-down to the first free slot
  // after what it needs in which no rank holds more than the fullest one did. Steady is what runs between the first
  // microbatch's end and the last one's start.
  void reorder(bool warm_up) {
    const int steady_from = ranks_.front().slots(i0).front();
    const int steady_to = ranks_.front().slots(f0).back();
    std::vector<RankMemory> memories(ranks_.begin(), ranks_.end());
    int cap = 0;
    for (const RankMemory& memory : memories) cap = std::max(cap, memory.peak());
    std::vector<std::vector<int>> ended(ranks_.size());  // slots of each rank's I, ascending
    for (const Item& item : items()) {
      const auto rank = static_cast<std::size_t>(item.rank);
      const bool moves =
          item.slot > steady_to || (item.slot == steady_to && item.rank > 0) || (warm_up && item.slot < steady_from);
      int slot = item.slot;
      if (moves) {
        slot = after_inputs(item, ended[rank]);
        while (slot < item.slot && !(memories[rank].is_free(slot) && memories[rank].move(item.slot, slot, cap))) ++slot;
        ranks_[rank].put(item, slot);
      }
      if (is_i(item.pass)) ended[rank].insert(std::ranges::upper_bound(ended[rank], slot), slot);
    }
  }

  // Starts everything as early as its inputs and its rank allow, in the order that it has.
  void squeeze() {
    std::vector<int> next(ranks_.size(), 0);
    for (const Item& item : items()) {
      int& slot = next[static_cast<std::size_t>(item.rank)];
      if (item.pass != w) slot = std::max(slot, after_producer(item));
      ranks_[static_cast<std::size_t>(item.rank)].put(item, slot++);
    }
  }

  [[nodiscard]] const std::vector<RankSlots>& ranks() const { return ranks_; }

 private:
  [[nodiscard]] std::vector<Item> items() const {
    std::vector<Item> items;
    for (int rank = 0; rank <= last_rank_; ++rank) {
      for (int pass = f0; pass <= w; ++pass) {
        int number = 0;
        for (const int slot : ranks_[static_cast<std::size_t>(rank)].slots(pass)) {
          items.push_back({slot, rank, pass, number++});
        }
      }
    }
    std::ranges::sort(items);
    return items;
  }

  // A microbatch goes down the ranks in F0 and I1, up in F1 and I0, turning on the ranks at the ends.
  [[nodiscard]] int after_producer(const Item& item) const {
    const bool down = item.pass == f0 || item.pass == i1;
    const bool turns = item.rank == (down ? 0 : last_rank_);
    if (turns && item.pass == f0) return 0;
    const int rank = turns ? item.rank : item.rank + (down ? -1 : 1);
    const int pass = turns ? item.pass - 1 : item.pass;
    return ranks_[static_cast<std::size_t>(rank)].slots(pass)[static_cast<std::size_t>(item.number)] + 1;
  }

  // And after the same pass of the microbatch before; the n-th W after the n-th I.
  [[nodiscard]] int after_inputs(const Item& item, const std::vector<int>& ended) const {
    const auto number = static_cast<std::size_t>(item.number);
    const int inputs = item.pass == w ? ended[number] + 1 : after_producer(item);
    if (number == 0) return inputs;
    return std::max(inputs, ranks_[static_cast<std::size_t>(item.rank)].slots(item.pass)[number - 1] + 1);
  }

  std::vector<RankSlots> ranks_;
  int last_rank_;
};

// W in the free slots, the second chunk's first: its I come first.
void append_actions(std::vector<Action>& list, const RankSlots& rank, const std::array<int, 2>& stage_of_chunk) {
  std::array<int, 4> done{};     // per pass but W
  std::array<int, 2> weights{};  // per chunk
  const auto append_weight = [&](std::size_t chunk, int ended) {
    if (weights[chunk] == ended) return false;
    list.push_back({ActionKind::weight_gradient, stage_of_chunk[chunk], weights[chunk]++});
    return true;
  };
  for (const int pass : rank.line()) {
    if (pass == free_slot) {
      if (!append_weight(1, done[i1])) append_weight(0, done[i0]);
      continue;
    }
    const std::size_t chunk = pass == f1 || pass == i1 ? 1 : 0;
    const ActionKind kind = is_f(pass) ? ActionKind::forward : ActionKind::input_gradient;
    list.push_back({kind, stage_of_chunk[chunk], done[static_cast<std::size_t>(pass)]++});
  }
  while (append_weight(1, done[i1])) {
  }
  while (append_weight(0, done[i0])) {
  }
}

}  // namespace

Schedule from_building_blocks(Schedule schedule, const std::vector<BuildingBlock>& blocks) {
  const int p = schedule.ranks;
  schedule.rank_of_stage = wave_placement(p, 2);
  // Phase 1: F and I in the slots of the building block
  VSchedule slots(blocks, schedule.microbatches);
  // Phase 2: W as early as possible; warm-up and cool-down reordered, everything started as early as possible
  slots.insert_weights();
  slots.reorder(true);
  slots.squeeze();
  // Phase 3: the cool-down reordered once more as if without W, which then fill the holes
  slots.remove_weights();
  slots.reorder(false);
  slots.insert_weights();
  slots.squeeze();
  // Phase 4: W into the holes that are left now
  slots.remove_weights();
  for (int r = 0; r < p; ++r) {
    const auto rank = static_cast<std::size_t>(r);
    append_actions(schedule.actions[rank], slots.ranks()[rank], {r, 2 * p - 1 - r});
  }
  return schedule;
}

}  // namespace plumb

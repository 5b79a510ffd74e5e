#include "common/split/replicas.hpp"

#include <algorithm>
#include <utility>

#include "common/base/error.hpp"
#include "common/split/chain.hpp"

namespace plumb {
namespace {

// What a suffix of stages is weighed by; less of either is never worse.
struct Weight {
  Seconds first = {};
  Seconds second = {};
};

struct StageCost {
  Seconds forward = {};
  Seconds backward = {};
  Seconds reduction = {};
  std::int64_t microbatches = 1;
};

// A planner: how a message and a stage in front change what a suffix weighs, and what the whole is worth.
struct Objective {
  Weight (*of_message)(Weight behind, Seconds message, std::int64_t microbatches) = nullptr;
  Weight (*of_stage)(std::optional<Weight> behind, const StageCost& stage) = nullptr;
  Seconds (*worth)(Weight whole, std::int64_t microbatches) = nullptr;
  bool first_decides = false;  // the second number only chooses between equal ones of the first
};

template <class T>
std::vector<T> sums_before(const std::vector<T>& values) {
  std::vector<T> sums(1);
  for (const T& value : values) sums.push_back(sums.back() + value);
  return sums;
}

class ReplicaSearch {
 public:
  ReplicaSearch(const ReplicaProblem& problem, const Objective& objective)
      : problem_(problem),
        objective_(objective),
        blocks_(static_cast<int>(problem.gradients.size())),
        degrees_(problem.degrees.size()) {
    for (std::size_t degree = 0; degree < degrees_; ++degree) {
      forward_.push_back(sums_before(problem.forward[degree]));
      backward_.push_back(sums_before(problem.backward[degree]));
      if (!problem.kept.empty()) kept_.push_back(sums_before(problem.kept[degree]));
    }
    gradients_ = sums_before(problem.gradients);
    fixed_ = sums_before(problem.fixed);
    reductions_.resize(degrees_ * row() * row());
    if (!kept_.empty() && problem.working) working_.resize(reductions_.size());
    for (std::size_t degree = 0; degree < degrees_; ++degree) {
      for (int first = 0; first < blocks_; ++first) {
        for (int last = first + 1; last <= blocks_; ++last) {
          const Bytes bytes = gradients_[at(last)] - gradients_[at(first)];
          reductions_[segment(degree, first, last)] = problem.reduction(problem.degrees[degree], bytes);
          if (working_.empty()) continue;
          working_[segment(degree, first, last)] = problem.working(problem.degrees[degree], first, last);
        }
      }
    }
  }

  std::vector<ReplicaSplit> run() {
    std::vector<ReplicaSplit> found;
    for (int stages = 1; stages <= problem_.most_stages; ++stages) {
      if (stages > 1) add_messages();
      levels_.emplace_back(row() * columns());
      add_stages(stages);
      if (std::optional<ReplicaSplit> best = best_of(stages)) found.push_back(std::move(*best));
    }
    return found;
  }

 private:
  // A suffix that begins with this stage; what follows it stands in the level before.
  struct Label {
    Weight weight = {};
    int end = 0;             // of its first stage
    std::size_t degree = 0;  // of its first stage, by index
    std::size_t behind = 0;  // the place of the rest in its level
    std::size_t label = 0;   // and there
    bool widest = false;     // some stage has the degree that one must have
  };
  // By first block and devices: the labels, and those with a message from a stage of each degree before them, which
  // name the label that they are made of.
  struct Place {
    std::vector<Label> suffixes = {};
    std::vector<std::vector<std::pair<Weight, std::size_t>>> after_message = {};
  };

  static std::size_t at(int index) { return static_cast<std::size_t>(index); }
  [[nodiscard]] std::size_t row() const { return at(blocks_) + 1; }
  [[nodiscard]] std::size_t columns() const { return at(problem_.devices) + 1; }
  [[nodiscard]] std::size_t place(int start, int devices) const { return at(start) * columns() + at(devices); }
  [[nodiscard]] std::size_t segment(std::size_t degree, int first, int last) const {
    return (degree * row() + at(first)) * row() + at(last);
  }

  [[nodiscard]] bool fits(std::size_t degree, int first, int last, int stages) const {
    if (kept_.empty()) return true;
    const std::int64_t held = std::min<std::int64_t>(problem_.microbatches, stages);
    const Bytes working = working_.empty() ? Bytes{} : working_[segment(degree, first, last)];
    const Bytes kept = kept_[degree][at(last)] - kept_[degree][at(first)];
    return fixed_[at(last)] - fixed_[at(first)] + kept * held + working <= problem_.memory;
  }

  [[nodiscard]] StageCost cost(std::size_t degree, int first, int last) const {
    return {.forward = forward_[degree][at(last)] - forward_[degree][at(first)],
            .backward = backward_[degree][at(last)] - backward_[degree][at(first)],
            .reduction = reductions_[segment(degree, first, last)],
            .microbatches = problem_.microbatches};
  }

  [[nodiscard]] bool is_widest(std::size_t degree) const { return problem_.degrees[degree] == problem_.widest; }

  void keep(std::vector<Label>& labels, const Label& label) const {
    const auto covers = [this](const Label& a, const Label& b) {
      const bool second = a.weight.second <= b.weight.second;
      const bool less = a.weight.first < b.weight.first;
      const bool as_good = a.weight.first == b.weight.first && second;
      const bool weight = objective_.first_decides ? less || as_good : (less && second) || as_good;
      return weight && (a.widest || !b.widest);
    };
    if (std::ranges::any_of(labels, [&](const Label& other) { return covers(other, label); })) return;
    std::erase_if(labels, [&](const Label& other) { return covers(label, other); });
    labels.push_back(label);
  }

  // Suffixes of so many stages.
  void add_stages(int stages) {
    std::vector<Place>& level = levels_.back();
    for (std::size_t degree = 0; degree < degrees_; ++degree) {
      const int replicas = problem_.degrees[degree];
      for (int start = 0; start < blocks_; ++start) {
        for (int end = start + 1; end <= (stages == 1 ? blocks_ : blocks_ - stages + 1); ++end) {
          if (!fits(degree, start, end, stages)) break;
          if (stages == 1) {
            if (end < blocks_ || replicas > problem_.devices) continue;
            keep(level[place(start, replicas)].suffixes, {.weight = objective_.of_stage({}, cost(degree, start, end)),
                                                          .end = end,
                                                          .degree = degree,
                                                          .widest = is_widest(degree)});
            continue;
          }
          for (int devices = stages - 1; devices + replicas <= problem_.devices; ++devices) {
            extend(level[place(start, devices + replicas)], degree, start, end, place(end, devices));
          }
        }
      }
    }
  }

  void extend(Place& to, std::size_t degree, int start, int end, std::size_t behind) {
    const Place& rest = levels_[levels_.size() - 2][behind];
    if (rest.suffixes.empty()) return;
    const StageCost stage = cost(degree, start, end);
    for (const auto& [weight, label] : rest.after_message[degree]) {
      keep(to.suffixes, {.weight = objective_.of_stage(weight, stage),
                         .end = end,
                         .degree = degree,
                         .behind = behind,
                         .label = label,
                         .widest = is_widest(degree) || rest.suffixes[label].widest});
    }
  }

  // What the suffixes of the last level weigh behind a stage of each degree.
  void add_messages() {
    for (Place& found : levels_.back()) {
      if (found.suffixes.empty()) continue;
      found.after_message.resize(degrees_);
      for (std::size_t degree = 0; degree < degrees_; ++degree) {
        for (std::size_t label = 0; label < found.suffixes.size(); ++label) {
          const Label& suffix = found.suffixes[label];
          const Seconds message = problem_.message(problem_.degrees[degree], problem_.degrees[suffix.degree]);
          found.after_message[degree].emplace_back(objective_.of_message(suffix.weight, message, problem_.microbatches),
                                                   label);
        }
      }
    }
  }

  [[nodiscard]] std::optional<ReplicaSplit> best_of(int stages) const {
    const Place& whole = levels_.back()[place(0, problem_.devices)];
    const Label* best = nullptr;
    for (const Label& label : whole.suffixes) {
      if (problem_.widest && !label.widest) continue;
      const auto worth = [&](const Label& one) {
        return std::pair(objective_.worth(one.weight, problem_.microbatches), one.weight.second);
      };
      if (best == nullptr || worth(label) < worth(*best)) best = &label;
    }
    if (best == nullptr) return std::nullopt;
    ReplicaSplit result{.time = objective_.worth(best->weight, problem_.microbatches)};
    std::vector<int> ends;
    for (int level = stages - 1;; --level) {
      ends.push_back(best->end);
      result.degrees.push_back(problem_.degrees[best->degree]);
      if (level == 0) break;
      best = &levels_[at(level) - 1][best->behind].suffixes[best->label];
    }
    result.split = split_from_cuts(ends);
    return result;
  }

  const ReplicaProblem& problem_;
  const Objective& objective_;
  int blocks_;
  std::size_t degrees_;
  std::vector<std::vector<Seconds>> forward_;  // sums of the first blocks, by degree
  std::vector<std::vector<Seconds>> backward_;
  std::vector<std::vector<Bytes>> kept_;
  std::vector<Bytes> gradients_;
  std::vector<Bytes> fixed_;
  std::vector<Seconds> reductions_;         // by segment
  std::vector<Bytes> working_;              // by segment; empty: nothing
  std::vector<std::vector<Place>> levels_;  // by stages, less one
};

void require_sound(const ReplicaProblem& problem) {
  const std::size_t blocks = problem.gradients.size();
  const auto whole = [&](const auto& rows) {
    return rows.size() == problem.degrees.size() &&
           std::ranges::all_of(rows, [&](const auto& row) { return row.size() == blocks; });
  };
  const bool limited = !problem.kept.empty();
  if (blocks < 3 || problem.devices < 1 || !whole(problem.forward) || !whole(problem.backward) ||
      (limited && (!whole(problem.kept) || problem.fixed.size() != blocks)) || !problem.reduction || !problem.message ||
      std::ranges::any_of(problem.degrees, [](int degree) { return degree < 1; })) {
    throw InputError("split", "a chain needs times, gradients and memory of each block, and by degree of its replicas");
  }
}

std::vector<ReplicaSplit> run(const ReplicaProblem& problem, const Objective& objective) {
  require_sound(problem);
  return ReplicaSearch(problem, objective).run();
}

// Of a message that is a stage of its own, F = B = c.
Weight dapple_message(Weight behind, Seconds message, std::int64_t microbatches) {
  const Seconds both = 2 * message;
  const Seconds until = both + std::max(both * static_cast<double>(microbatches - 1), behind.first);
  return {until, std::max(until, message + behind.second)};
}

Weight dapple_stage(std::optional<Weight> behind, const StageCost& stage) {
  const Seconds both = stage.forward + stage.backward;
  const Seconds rest = both * static_cast<double>(stage.microbatches - 1);
  const Seconds until = both + (behind ? std::max(rest, behind->first) : rest);
  const Seconds reduced = until + stage.reduction;
  return {until, behind ? std::max(reduced, stage.forward + behind->second) : reduced};
}

Weight pipedream_message(Weight behind, Seconds message, std::int64_t) {
  return {std::max(behind.first, 2 * message), behind.second};
}

Weight pipedream_stage(std::optional<Weight> behind, const StageCost& stage) {
  const Seconds own = stage.forward + stage.backward + stage.reduction;
  return behind ? Weight{std::max(behind->first, own), own + behind->second} : Weight{own, own};
}

Weight alpa_message(Weight behind, Seconds, std::int64_t) { return behind; }

Weight alpa_stage(std::optional<Weight> behind, const StageCost& stage) {
  const Seconds own = stage.forward + stage.backward;
  return behind ? Weight{own + behind->first, std::max(own, behind->second)} : Weight{own, own};
}

}  // namespace

std::vector<ReplicaSplit> dapple_replicas(const ReplicaProblem& problem) {
  return run(problem, {.of_message = dapple_message, .of_stage = dapple_stage, .worth = [](Weight whole, std::int64_t) {
                         return whole.second;
                       }});
}

std::vector<ReplicaSplit> pipedream_replicas(const ReplicaProblem& problem) {
  return run(problem, {.of_message = pipedream_message,
                       .of_stage = pipedream_stage,
                       .worth = [](Weight whole, std::int64_t) { return whole.first; },
                       .first_decides = true});
}

std::vector<ReplicaSplit> alpa_replicas(const ReplicaProblem& problem) {
  return run(problem,
             {.of_message = alpa_message, .of_stage = alpa_stage, .worth = [](Weight whole, std::int64_t microbatches) {
                return whole.first + whole.second * static_cast<double>(microbatches - 1);
              }});
}

}  // namespace plumb

#include "common/search/weighing.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <numeric>
#include <tuple>

#include "common/base/error.hpp"
#include "common/base/parallel.hpp"
#include "common/base/text.hpp"
#include "common/planner/make_plan.hpp"
#include "common/split/coupled.hpp"

namespace plumb {
namespace {

constexpr std::int64_t bounds_at_once = 64;
constexpr std::int64_t first_bounds = 64;  // blocks of bounds_at_once: some hundredths of a second

// Excluded families weighed at once, where nothing fits, to find what is nearest to fitting.
constexpr std::size_t excluded_at_once = 64;

void keep_smaller(std::optional<std::pair<Bytes, std::int64_t>>& kept, Bytes bytes, std::int64_t id) {
  if (!kept || std::pair(bytes, id) < *kept) kept = {bytes, id};
}

// Visits so many places in steps of 0.62 of their number, the golden ratio, made coprime to it: the first few sample
// the whole space.
class Places {
 public:
  explicit Places(std::int64_t count) : count_(count), step_(std::max<std::int64_t>(1, count * 618 / 1000)) {
    while (std::gcd(step_, count_) > 1) ++step_;
  }
  [[nodiscard]] std::int64_t count() const { return count_; }
  [[nodiscard]] std::int64_t spread(std::int64_t place) const { return place * step_ % count_; }

 private:
  std::int64_t count_;
  std::int64_t step_;
};

Deadline half_of_what_is_left(Deadline deadline) {
  if (!deadline) return std::nullopt;
  const auto now = std::chrono::steady_clock::now();
  return now + (*deadline - now) / 2;
}

}  // namespace

Weighing::Weighing(const SearchSpace& space, const MakeWeigher& make_weigher, const SearchOptions& options)
    : space_(space),
      options_(options),
      deadline_(options.time_limit ? deadline_after(*options.time_limit) : std::nullopt),
      stop_(options.stop, deadline_),
      first_stop_(stop_.looked_at_by([this] { tell(); })) {
  for (int thread = 0; thread < std::max(1, options.jobs); ++thread) {
    weighers_.push_back(make_weigher(space.scenario()));
    if (weighers_.back().watch) weighers_.back().watch(stop(thread));
  }
  facts_.resize(index(space.families()));
}

void Weighing::tell() const {
  if (!options_.progress) return;
  options_.progress({.done = disposed_ + under_way_done_,
                     .total = space_.candidates(),
                     .weighed = evaluated_ + under_way_weighed_,
                     .beyond = beyond_.value_or(0),
                     .left_is_known = beyond_.has_value(),
                     .predicted = predicted_,
                     .to_predict = to_predict_,
                     .best = best});
}

void Weighing::tell_predicted(std::int64_t predicted, std::int64_t to_predict) {
  predicted_ = predicted;
  to_predict_ = to_predict;
  tell();
}

void Weighing::count_beyond(const std::vector<std::int64_t>& waiting,
                            const std::function<bool(std::int64_t family)>& needed) {
  beyond_.reset();
  if (!measured_ || options_.pareto || !options_.progress) return;
  std::int64_t count = 0;
  for (const std::int64_t family : waiting) count += needed(family) ? 0 : candidates(family);
  beyond_ = count;
}

void Weighing::measure(std::int64_t family, const Weigher& weigher, Refusals& refusals) {
  facts_[index(family)].looked_at = true;
  if (std::optional<std::string> refusal = space_.refusal(family)) {
    refusals.push_back({.id = family, .reason = std::move(*refusal)});
    return;
  }
  const Family of = space_.family(family);
  Facts& facts = facts_[index(family)];
  try {
    if (options_.prune || options_.pareto) facts.memory = weigher.memory_bound(of);
    if (options_.bound) facts.time = weigher.time_bound(of);
    facts.known = true;
    set_first_turn(family);
  } catch (const InputError& error) {
    refusals.push_back({.id = family, .reason = error.problem()});
  }
}

void Weighing::measure_bounds() { measure_bounds(std::numeric_limits<std::int64_t>::max()); }

void Weighing::measure_first_bounds() {
  if (space_.families() > 2 * first_bounds * bounds_at_once) measure_bounds(first_bounds);
}

void Weighing::measure_bounds(std::int64_t most_places) {
  const std::int64_t families = space_.families();
  const Places places((families + bounds_at_once - 1) / bounds_at_once);
  const Stop halfway(options_.stop, half_of_what_is_left(deadline_));
  std::vector<Refusals> refusals(weighers_.size());
  std::vector<std::vector<std::int64_t>> measured(weighers_.size());
  std::atomic<bool> ended_early = false;
  const std::int64_t measured_places = std::min(places.count(), most_places);
  in_parallel(static_cast<int>(weighers_.size()), measured_places, 1, [&](int thread, std::int64_t place) {
    if (ended_early || halfway.ended()) {
      ended_early = true;
      return;
    }
    const std::int64_t first = places.spread(place) * bounds_at_once;
    for (std::int64_t family = first; family < std::min(families, first + bounds_at_once); ++family) {
      if (facts_[index(family)].looked_at) continue;
      measure(family, weighers_[index(thread)], refusals[index(thread)]);
      if (facts_[index(family)].known) measured[index(thread)].push_back(family);
      if (thread == 0) tell();
    }
  });
  measured_ = !ended_early && measured_places == places.count();
  take_refusals(refusals);
  const Bytes memory = space_.scenario().cluster.machine.device.memory.value;
  for (const std::vector<std::int64_t>& list : measured) {
    for (const std::int64_t family : list) {
      const bool excluded = options_.prune && facts_[index(family)].memory > memory;
      (excluded ? excluded_ : waiting_).push_back(family);
      if (excluded) disposed_ += space_.splits();
    }
  }
  std::ranges::sort(excluded_);
  std::ranges::sort(waiting_, {}, [this](std::int64_t family) { return place_of(family); });
}

void Weighing::keep_first(const std::string& reason, std::int64_t candidate) {
  const auto [found, is_new] = refused_.try_emplace(without_numbers(reason), candidate);
  if (!is_new) found->second = std::min(found->second, candidate);
}

// Hundreds of thousands of families are refused for a few reasons: each is taken once.
void Weighing::take_refusals(const std::vector<Refusals>& by_thread) {
  struct Refused {
    std::int64_t families = 0;
    std::int64_t first = 0;
  };
  std::map<std::string_view, Refused> by_reason;
  for (const Refusals& list : by_thread) {
    for (const Refusal& refusal : list) {
      Refused& refused = by_reason.try_emplace(refusal.reason, Refused{.first = refusal.id}).first->second;
      refused.first = std::min(refused.first, refusal.id);
      ++refused.families;
    }
  }
  for (const auto& [reason, refused] : by_reason) {
    log_.cannot_be_built(std::string(reason), refused.families * space_.splits());
    disposed_ += refused.families * space_.splits();
    keep_first(std::string(reason), refused.first * space_.splits());
  }
}

std::tuple<Turn, Seconds, Seconds, std::int64_t> Weighing::place_of(std::int64_t family) const {
  const bool takes_long = turn(family) >= Turn::several;
  return {turn(family), takes_long ? facts_[index(family)].found : Seconds{}, time_bound(family), family};
}

Turn Weighing::turn_of(const Family& family, std::int64_t split) const {
  return plumb::turn_of({.schedule = family.schedule, .split = space_.scenario().splits[index(split)]}, family.layout,
                        family.recompute);
}

void Weighing::set_first_turn(std::int64_t family) {
  const Family of = space_.family(family);
  Turn& first = facts_[index(family)].turn;
  first = Turn::for_times;
  for (std::int64_t split = 0; split < space_.splits(); ++split) first = std::min(first, turn_of(of, split));
}

// Splits that were found too slow in this turn wait for the next one with the others: no turn comes twice for them
// while the family has a later one.
void Weighing::set_next_turn(std::int64_t family) {
  const Family of = space_.family(family);
  Facts& facts = facts_[index(family)];
  std::optional<Turn> next;
  for (const std::int64_t split : facts.put_off) {
    const Turn turn = turn_of(of, split);
    if (turn > facts.turn) next = std::min(next.value_or(turn), turn);
  }
  facts.turn = next.value_or(facts.turn);
}

std::int64_t Weighing::candidates(std::int64_t family) const {
  const std::vector<std::int64_t>& put_off = facts_[index(family)].put_off;
  return put_off.empty() ? space_.splits() : std::ssize(put_off);
}

void Weighing::put_off(std::int64_t family, const Refusals& refusals) {
  std::vector<std::int64_t> splits;
  Seconds least = longest_time;
  for (const Refusal& refusal : refusals) {
    if (!refusal.at_least) continue;
    splits.push_back(refusal.id % space_.splits());
    least = std::min(least, *refusal.at_least);
  }
  Facts& facts = facts_[index(family)];
  facts.put_off = std::move(splits);
  if (facts.put_off.empty()) return;
  facts.time = std::max(facts.time, least);
  set_next_turn(family);
  waiting_.push_back(family);
}

bool Weighing::weigh_family(std::int64_t family, Evaluated which, const Weigher& weigher,
                            std::vector<WeighedCandidate>& found, Refusals& refusals) const {
  const Family of = space_.family(family);
  const std::vector<std::int64_t>& put_off = facts_[index(family)].put_off;
  for (std::int64_t n = 0; n < candidates(family); ++n) {
    const std::int64_t split = put_off.empty() ? n : put_off[index(n)];
    const std::int64_t id = family * space_.splits() + split;
    if (which == Evaluated::of_turn && turn_of(of, split) > turn(family)) {
      refusals.push_back({.id = id, .at_least = time_bound(family)});
      continue;
    }
    try {
      Estimate estimate = weigher.weigh(of, space_.scenario().splits[index(split)], at_most);
      if (best && estimate.iteration >= *best) estimate.plan.reset();  // a round may weigh a thousand
      found.push_back({id, estimate.iteration, estimate.peak_bytes, estimate.fits, std::move(estimate.split),
                       std::move(estimate.plan)});
    } catch (const TooLongToProve& error) {
      refusals.push_back({.id = id, .reason = error.problem(), .unproven = true});
    } catch (const InputError& error) {
      refusals.push_back({.id = id, .reason = error.problem()});
    } catch (const SlowerThanAsked& slower) {
      refusals.push_back({.id = id, .at_least = slower.least});
    } catch (const Stopped&) {
      return false;
    }
  }
  return true;
}

std::int64_t Weighing::put_off_among(const Refusals& refusals) {
  return std::ranges::count_if(refusals, [](const Refusal& refusal) { return refusal.at_least.has_value(); });
}

std::vector<WeighedCandidate> Weighing::weigh(const std::vector<std::int64_t>& round, std::vector<std::int64_t> later) {
  return weigh(round, std::move(later), Evaluated::of_turn);
}

std::vector<WeighedCandidate> Weighing::weigh(const std::vector<std::int64_t>& round, std::vector<std::int64_t> later,
                                              Evaluated which) {
  std::vector<std::vector<WeighedCandidate>> found(round.size());
  std::vector<Refusals> refusals(round.size());
  std::vector<char> done(round.size(), 0);
  std::atomic<bool> cut_short = false;
  in_parallel(static_cast<int>(weighers_.size()), std::ssize(round), 1, [&](int thread, std::int64_t item) {
    if (ended()) return;
    const Weigher& weigher = weighers_[index(thread)];
    if (!weigh_family(round[index(item)], which, weigher, found[index(item)], refusals[index(item)])) cut_short = true;
    done[index(item)] = 1;
    under_way_weighed_ += std::ssize(found[index(item)]);
    if (which == Evaluated::of_turn)
      under_way_done_ += candidates(round[index(item)]) - put_off_among(refusals[index(item)]);
    if (thread == 0) tell();
  });
  disposed_ += under_way_done_.exchange(0);
  under_way_weighed_ = 0;
  cut_short_ = cut_short_ || cut_short;
  waiting_.clear();
  std::vector<WeighedCandidate> result;
  for (std::size_t item = 0; item < round.size(); ++item) {
    if (done[item] == 0) waiting_.push_back(round[item]);
    for (const WeighedCandidate& candidate : found[item]) {
      Seconds& least = facts_[index(round[item])].found;
      if (candidate.fits) least = std::min(least, candidate.iteration);
    }
    if (done[item] != 0) put_off(round[item], refusals[item]);
    for (const auto& [id, reason, unproven, at_least] : refusals[item]) {
      if (at_least) continue;
      if (unproven) {
        log_.unproven(reason, 1);
        unproven_ = std::min(unproven_.value_or(id), id);
      } else {
        log_.cannot_be_built(reason, 1);
        keep_first(reason, id);
      }
    }
    for (const WeighedCandidate& candidate : found[item]) {
      ++evaluated_;
      result.push_back(candidate);
      if (candidate.fits) continue;
      log_.too_large(LeftOutWhy::does_not_fit, space_.layout_of(round[item]), candidate.peak_bytes, 1);
      keep_smaller(shortfall_, candidate.peak_bytes, candidate.id);
    }
  }
  const auto before = [this](std::int64_t a, std::int64_t b) { return place_of(a) < place_of(b); };
  std::ranges::sort(waiting_, before);  // by new turns and bounds
  const auto middle = waiting_.insert(waiting_.end(), later.begin(), later.end());
  std::ranges::inplace_merge(waiting_, middle, before);
  return result;
}

void Weighing::weigh_nearest_excluded() {
  std::ranges::sort(excluded_, {}, [&](std::int64_t family) { return std::pair(memory_bound(family), family); });
  while (!excluded_.empty() && !ended()) {
    std::size_t count = 0;
    while (count < std::min(excluded_.size(), excluded_at_once) &&
           (!shortfall_ || memory_bound(excluded_[count]) < shortfall_->first)) {
      ++count;
    }
    if (count == 0) return;
    const auto end = excluded_.begin() + static_cast<std::ptrdiff_t>(count);
    const std::vector<std::int64_t> round(excluded_.begin(), end);
    excluded_.erase(excluded_.begin(), end);
    static_cast<void>(weigh(round, waiting_, Evaluated::all_excluded));
  }
}

std::optional<Split> Weighing::refined(std::int64_t family) const {
  const Weigher& weigher = weighers_.front();
  return weigher.refined ? std::optional(weigher.refined(space_.family(family))) : std::nullopt;
}

LeftOutLog Weighing::log() const {
  LeftOutLog log = log_;
  for (const std::int64_t family : excluded_) {
    log.too_large(LeftOutWhy::memory_bound, space_.layout_of(family), memory_bound(family), space_.splits());
  }
  return log;
}

std::vector<std::int64_t> Weighing::smallest_shortfall() const {
  if (shortfall_) return {shortfall_->second};
  std::vector<std::int64_t> first;
  if (unproven_) first.push_back(*unproven_);
  for (const auto& [kind, id] : refused_) first.push_back(id);
  std::ranges::sort(first);
  return first;
}

}  // namespace plumb

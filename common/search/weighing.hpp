// The families of a search: their bounds, which of them wait to be weighed, and the threads that do it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "common/search/search.hpp"

namespace plumb {

struct WeighedCandidate {
  std::int64_t id = 0;
  Seconds iteration = {};
  Bytes peak_bytes = {};
  bool fits = false;
  Split split = {};                       // that its choice came to
  std::shared_ptr<const Plan> plan = {};  // as of Estimate, if it may be the best
};

class Weighing {
 public:
  Weighing(const SearchSpace& space, const MakeWeigher& make_weigher, const SearchOptions& options);

  // Measures every family that was not looked at before: refused, too large, or waiting, by turn, time bound and
  // number. Under a time limit it measures as many as half of the time left allows, from all over the space.
  void measure_bounds();
  // Measures a few families from all over a large space, so that a search has a plan before it has all bounds; no-op in
  // a small one.
  void measure_first_bounds();
  // Whether every family was looked at.
  [[nodiscard]] bool measured() const { return measured_; }
  [[nodiscard]] const std::vector<std::int64_t>& waiting() const { return waiting_; }
  [[nodiscard]] Seconds time_bound(std::int64_t family) const { return facts_[index(family)].time; }
  [[nodiscard]] Bytes memory_bound(std::int64_t family) const { return facts_[index(family)].memory; }
  // Its candidates that wait, if it waits.
  [[nodiscard]] std::int64_t candidates(std::int64_t family) const;
  // The turn of its candidates that come next.
  [[nodiscard]] Turn turn(std::int64_t family) const { return facts_[index(family)].turn; }

  // Evaluates the candidates of these families whose turn has come and that can be built, by number. Then `later` wait,
  // the families' candidates of later turns, and those sure to take more than `at_most`. Once ended, families that
  // were not begun wait too.
  [[nodiscard]] std::vector<WeighedCandidate> weigh(const std::vector<std::int64_t>& round,
                                                    std::vector<std::int64_t> later);

  // Whether the search has been told to end, or its time is over.
  [[nodiscard]] bool ended() const { return stop_.ended(); }
  // What a thread asks that works on something long; the first one, which is the caller's, shows progress by it.
  [[nodiscard]] const Stop& stop(int thread) const { return thread == 0 ? first_stop_ : stop_; }
  // Whether that came while a family was being weighed: some of its candidates were not, and it waits no longer.
  [[nodiscard]] bool cut_short() const { return cut_short_; }

  // None where the weigher does not refine.
  [[nodiscard]] std::optional<Split> refined(std::int64_t family) const;

  [[nodiscard]] std::int64_t evaluated() const { return evaluated_; }
  // What was left out so far.
  [[nodiscard]] LeftOutLog log() const;

  // Where nothing fits: weighs also what the memory bound excludes, the smallest bounds first, until no bound is below
  // the smallest shortfall. That one is then the smallest of all.
  void weigh_nearest_excluded();
  // Of what was weighed; or else, of each kind of reason that something cannot be built, the first; or what is
  // unproven.
  [[nodiscard]] std::vector<std::int64_t> smallest_shortfall() const;

  // For progress: of families that wait, the candidates that need not be weighed, as things stand. Nothing where not
  // all bounds are there, or where a front makes it long to say.
  void count_beyond(const std::vector<std::int64_t>& waiting, const std::function<bool(std::int64_t family)>& needed);

  // Tells how far the engine is, too.
  void tell_predicted(std::int64_t predicted, std::int64_t to_predict);

  std::optional<Seconds> best = {};     // for progress
  std::optional<Seconds> at_most = {};  // what is sure to take more need not be weighed

 private:
  struct Facts {
    Seconds time = {};
    Bytes memory = {};
    bool looked_at = false;
    bool known = false;
    Turn turn = Turn::quick;                 // splits of later turns are put off
    Seconds found = longest_time;            // least of its candidates that fit
    std::vector<std::int64_t> put_off = {};  // the splits that were; all of them if empty
  };
  // Of one thread: what it found that cannot be built, not be proven, or takes more than `at_most`.
  struct Refusal {
    std::int64_t id = 0;
    std::string reason = {};
    bool unproven = false;
    std::optional<Seconds> at_least = {};
  };
  using Refusals = std::vector<Refusal>;

  [[nodiscard]] static std::size_t index(std::int64_t number) { return static_cast<std::size_t>(number); }
  void measure(std::int64_t family, const Weigher& weigher, Refusals& refusals);
  void measure_bounds(std::int64_t most_places);
  void take_refusals(const std::vector<Refusals>& by_thread);
  void keep_first(const std::string& reason, std::int64_t candidate);
  // Candidates of these families: of the turn, counted as disposed of; or all, counted when they were excluded.
  enum class Evaluated : std::uint8_t { of_turn, all_excluded };
  [[nodiscard]] std::vector<WeighedCandidate> weigh(const std::vector<std::int64_t>& round,
                                                    std::vector<std::int64_t> later, Evaluated which);
  [[nodiscard]] static std::int64_t put_off_among(const Refusals& refusals);
  // False: ended before all were.
  [[nodiscard]] bool weigh_family(std::int64_t family, Evaluated which, const Weigher& weigher,
                                  std::vector<WeighedCandidate>& found, Refusals& refusals) const;
  // Lets the candidates wait whose refusals give a least time.
  void put_off(std::int64_t family, const Refusals& refusals);
  [[nodiscard]] Turn turn_of(const Family& family, std::int64_t split) const;
  void set_first_turn(std::int64_t family);
  void set_next_turn(std::int64_t family);
  // By turn; where each takes long, families whose quick splits fit first, the fastest before; then by bound and
  // number.
  [[nodiscard]] std::tuple<Turn, Seconds, Seconds, std::int64_t> place_of(std::int64_t family) const;
  void tell() const;

  const SearchSpace& space_;
  const SearchOptions& options_;
  Deadline deadline_;
  Stop stop_;
  Stop first_stop_;                // of the first thread, which tells the progress whenever it asks
  std::vector<Weigher> weighers_;  // by thread
  std::vector<Facts> facts_;       // by family
  std::vector<std::int64_t> waiting_;
  bool measured_ = false;
  bool cut_short_ = false;
  std::optional<std::int64_t> beyond_;  // count_beyond
  std::int64_t predicted_ = 0;
  std::int64_t to_predict_ = 0;
  std::int64_t evaluated_ = 0;
  std::int64_t disposed_ = 0;                     // candidates; never falls
  std::atomic<std::int64_t> under_way_done_ = 0;  // of the round that is being weighed
  std::atomic<std::int64_t> under_way_weighed_ = 0;
  LeftOutLog log_;
  std::map<std::string, std::int64_t> refused_;  // by kind of reason, the first candidate that cannot be built
  std::optional<std::int64_t> unproven_;         // the first
  std::vector<std::int64_t> excluded_;           // families, by the memory bound
  std::optional<std::pair<Bytes, std::int64_t>> shortfall_;  // weighed: the smallest
};

}  // namespace plumb

// The fullest rank of a schedule that a compiled graph timed: what memory_over_time would find.
#pragma once

#include <array>
#include <utility>
#include <vector>

#include "common/search/compiled_times.hpp"

namespace plumb {

struct FullestOfCompiled {
  Bytes peak_bytes = {};
  int rank = 0;       // the first of equal ones
  bool exact = true;  // false: the true peak may be less
};

// Keeps its memory from one to the next.
class PeakMemory {
 public:
  // Messages that wait count within `slack` seconds before and behind their time (where blocks were left out): then the
  // peak is not less than the true one, and it is exact if it stays the same with messages that count that much less
  // long. 0: it is the true one. Only ranks that could be the fullest are looked at.
  [[nodiscard]] FullestOfCompiled find(const CompiledGraph& compiled, const CompiledTimes& times,
                                       const PipelineCosts& costs, double slack);

 private:
  // What an action does to its rank's level, and to the level without messages.
  struct Change {
    std::int64_t at_start = 0;
    std::int64_t at_end = 0;
    std::int64_t own_at_start = 0;
    std::int64_t own_at_end = 0;
  };
  struct Arrival {
    double time = 0;
    std::int64_t bytes = 0;
  };
  void set_changes(const CompiledGraph& compiled, const PipelineCosts& costs);
  [[nodiscard]] FullestOfCompiled fullest_within(const CompiledGraph& compiled, const CompiledTimes& times,
                                                 double slack);
  [[nodiscard]] std::int64_t peak_of(const CompiledGraph& compiled, const CompiledTimes& times, std::size_t rank,
                                     double slack);
  [[nodiscard]] std::int64_t bound(const CompiledGraph& compiled, int more, std::size_t rank) const;
  void collect_arrivals(const CompiledGraph& compiled, const CompiledTimes& times, const CompiledRank& rank,
                        double slack);
  [[nodiscard]] std::int64_t peak(const CompiledGraph& compiled, const CompiledTimes& times, std::size_t rank) const;

  std::vector<Change> changes_;                           // by footprint
  std::vector<std::int64_t> fixed_;                       // by rank
  std::array<std::int64_t, message_sorts> message_ = {};  // of a boundary, of the head, of the embedding
  std::vector<std::pair<std::int64_t, std::size_t>> by_bound_;
  std::vector<Arrival> arrivals_;
};

}  // namespace plumb

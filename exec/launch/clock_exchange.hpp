// Comparison of the hosts' clocks with that of rank 0's host, by messages there and back.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "exec/host/host_clock.hpp"
#include "exec/transport/transport.hpp"

namespace plumb::exec {

// Clock that a rank's times are read from.
struct RankClock {
  std::string host;  // name for messages
  std::string id;    // the same for all ranks that read one clock
  std::function<Seconds()> now;
};

// Every rank makes one and calls `measure` as often as the others. One rank of each clock answers for all that read it.
// Nothing is sent if all ranks read rank 0's clock.
class ClockExchange {
 public:
  static constexpr int round_trips = 100;  // of a measurement: the fastest of them is undisturbed

  // Collective, over Channel::control. Throws as `transport`, which must outlive this.
  ClockExchange(Transport& transport, RankClock mine, Clock::time_point deadline);

  // Collective, between steps. Throws RunError as clock_offset and add_measurement do, naming rank and host.
  void measure(Clock::time_point deadline);

  // Returns the clocks by rank as far as they are measured; none on ranks other than 0.
  [[nodiscard]] std::vector<HostClock> by_rank() const;

  // Returns a number by rank, equal for ranks that read one clock, 0 for rank 0's own; none on ranks other than 0.
  [[nodiscard]] std::vector<int> clock_of_rank() const;

  // Returns, on rank 0, the bound within which times of two ranks compare if drift is linear: the sum of the two
  // largest uncertainties, since each clock may be off in its own direction. 0 if all ranks read one clock.
  [[nodiscard]] Seconds uncertainty() const;

  // Returns, on rank 0, a line for each clock that jumped, naming rank and host.
  [[nodiscard]] std::vector<std::string> warnings() const;

 private:
  // Rank that answers for its clock, as rank 0 keeps it.
  struct Answering {
    int rank = 0;
    std::string host = {};
    HostClock clock = {};
  };

  void answer(Clock::time_point deadline);
  void ask(Answering& other, Clock::time_point deadline);

  Transport& transport_;
  RankClock mine_;
  bool answers_ = false;
  std::vector<Answering> answering_;
  std::vector<int> clock_of_rank_;  // index into answering_; -1 for rank 0's own
};

}  // namespace plumb::exec

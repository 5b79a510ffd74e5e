// Compares the clocks of a run's hosts with that of rank 0's, by messages there and back between the ranks' hosts.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "exec/host/host_clock.hpp"
#include "exec/transport/transport.hpp"

namespace plumb::exec {

// Of a rank.
struct RankClock {
  std::string host;              // its name, for messages
  std::string id;                // the same for all ranks that read one clock
  std::function<Seconds()> now;  // what the rank's times are on; seconds
};

// Every rank makes one and calls `measure` as often as the others. One rank of each clock answers, since its fellows
// read the same; where all ranks read rank 0's clock nothing is sent.
class ClockExchange {
 public:
  static constexpr int round_trips = 100;  // of a measurement: the least of so many is a quiet one

  // Collective, over Channel::control. RunError and Stopped as `transport` throws them; it must outlive this.
  ClockExchange(Transport& transport, RankClock mine, Clock::time_point deadline);

  // Collective, between steps. Throws RunError as clock_offset and add_measurement do, naming rank and host.
  void measure(Clock::time_point deadline);

  // The clock of each rank as far as it has been measured: on rank 0, by rank; on others none.
  [[nodiscard]] std::vector<HostClock> by_rank() const;

  // On rank 0: a number for each rank, the same where they read one clock; 0 is rank 0's own. On others none.
  [[nodiscard]] std::vector<int> clock_of_rank() const;

  // On rank 0: the times of any two ranks compare within so much, as far as drift is linear: the two largest
  // uncertainties of clocks, since each may be off in its own direction. 0: all ranks read one clock.
  [[nodiscard]] Seconds uncertainty() const;

  // On rank 0: what users are to know of clocks that jumped, a line each, naming rank and host; else nothing.
  [[nodiscard]] std::vector<std::string> warnings() const;

 private:
  // One that answers, on rank 0.
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
  std::vector<int> clock_of_rank_;  // its place in answering_; -1: rank 0's own
};

}  // namespace plumb::exec

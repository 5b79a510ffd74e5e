#include "exec/transport/nccl/nccl_flights.hpp"

#include <algorithm>
#include <array>

#include "exec/transport/step_launches.hpp"

namespace plumb::exec {

void Flights::release_ended() {
  // A stream works off its flights in their order: behind one that has not ended none of it is asked for.
  std::array<bool, communicator_uses> waiting{};
  std::erase_if(flights_, [&](const Flight& flight) {
    bool& of_stream = waiting[static_cast<std::size_t>(flight.use)];
    of_stream = of_stream || !has_come(flight.end);
    return !of_stream;
  });
}

void Flights::let_go_of_oldest(Stream& compute) {
  const auto holds = [](const Flight& flight) { return !flight.held.empty(); };
  auto holding = static_cast<std::size_t>(std::ranges::count_if(flights_, holds));
  for (Flight& flight : flights_) {
    if (holding < sent_held_at_most) return;
    if (!holds(flight)) continue;
    compute.wait(flight.end);
    flight.held.clear();
    --holding;
  }
}

std::string Flights::oldest(const CommunicatorSpec* spec) const {
  for (const Flight& flight : flights_) {
    if (has_come(flight.end) || (spec != nullptr && flight.use != spec->use)) continue;
    return flight.batch == nullptr ? flight.work : words(*flight.batch);
  }
  return spec != nullptr ? describe(*spec) : "the rank's own compute";
}

}  // namespace plumb::exec

// What a rank has put on the streams of its NCCL communicators and what of that must live until it has ended.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "exec/device/device.hpp"
#include "exec/transport/launch_plan/launch_plan.hpp"
#include "exec/transport/nccl/nccl_communicators.hpp"

namespace plumb::exec {

// A batch on its stream, with what it sends.
struct Flight {
  const LaunchBatch* batch = nullptr;
  CommunicatorUse use = CommunicatorUse::down;
  std::string work = {};  // in words, of a collective that no batch stands for
  MomentPtr end;
  std::vector<Payload> held = {};
};

// In the order of launch.
class Flights {
 public:
  void add(Flight flight) { flights_.push_back(std::move(flight)); }
  [[nodiscard]] bool empty() const { return flights_.empty(); }

  // Forgets what has ended.
  void release_ended();

  // The host may be a whole step ahead of the device: not to hold all that it sends until then, `compute` waits for the
  // end of what was sent several batches ago. It then waits for nothing that comes later in the order of launch, so it
  // is as free of deadlocks as a device that works off all its streams as one (launch_plan.hpp).
  void let_go_of_oldest(Stream& compute);

  // The batch that has waited longest, of one communicator or, where `spec` is null, of any, in words.
  [[nodiscard]] std::string oldest(const CommunicatorSpec* spec) const;

 private:
  std::deque<Flight> flights_;
};

}  // namespace plumb::exec

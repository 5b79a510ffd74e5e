// The one owner of the SimGrid engine: work and messages go in, the moments at which they end come out.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "sim/disturbances.hpp"
#include "sim/platform.hpp"

namespace plumb::sim {

// Chosen by the caller; several activities may have the same.
using ActivityId = std::uint32_t;

// Activities share cores and ports as fluids (max-min fair). SimGrid allows one engine at a time in a process; another
// may be made when the first is gone.
class FluidEngine {
 public:
  // Called with the activities that ended at one moment, in ascending order; it may start others. Those that had their
  // device or ports to themselves come first; what else ended at the moment, if anything, comes in a second call.
  using Ended = std::function<void(std::span<const ActivityId>)>;

  // Throws InputError for a platform or disturbances that cannot be simulated.
  explicit FluidEngine(const Platform& platform, std::span<const Disturbance> disturbances = {});
  FluidEngine(const FluidEngine&) = delete;
  FluidEngine& operator=(const FluidEngine&) = delete;
  ~FluidEngine();

  // `alone`: the time it takes when nothing else runs on these cores. Above zero.
  void compute(ActivityId id, int rank, Seconds alone);

  // Takes so long whatever else runs: a way that nothing else goes, such as from a device to its host. Above zero.
  void pass(ActivityId id, Seconds time);

  // The message's last byte arrives `latency` + bytes / bandwidth after its start when it has the ports to itself.
  void transfer(ActivityId id, int from, int to, Bytes bytes, Seconds latency);

  // One flow of a collective: as a message, but inside a machine at the port's bandwidth for collectives. Bytes need
  // not be whole.
  void flow(ActivityId id, int from, int to, double bytes, Seconds latency);

  // Since the engine was made, in whole picoseconds: SimGrid's clock never goes back, so its last bits depend on what
  // ran before, and these must not.
  [[nodiscard]] Seconds now() const;

  // Returns when nothing is under way, but for what stands still for good: it never ends. Rethrows what `ended` threw;
  // throws RunError if an activity failed.
  void run(const Ended& ended);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace plumb::sim

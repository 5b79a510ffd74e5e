// What work is put on: the streams of a device, and moments of their order that others wait for without the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "common/base/units.hpp"
#include "exec/device/payload.hpp"

namespace plumb::exec {

// A moment in a stream's order, made by Stream::record: it comes when all that was put on the stream before has ended.
// Any thread may ask; it may outlive its stream, not its device.
class Moment {
 public:
  Moment() = default;
  Moment(const Moment&) = delete;
  Moment& operator=(const Moment&) = delete;
  virtual ~Moment() = default;

  // Never blocks. Throws RunError with the device's own words if work on the device has failed.
  [[nodiscard]] virtual bool has_come() const = 0;
};

[[nodiscard]] inline bool has_come(const MomentPtr& moment) { return !moment || moment->has_come(); }

// Work in a fixed order. No call waits for the work itself. One thread puts work on a stream; any may record, as the
// last owner of a buffer does, wherever it is dropped.
class Stream {
 public:
  Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  virtual ~Stream() = default;

  // What is put here from now on starts after `moment`, of any stream of this process's devices. It must have been
  // recorded already: of ranks that are threads, the host of one waits until the other's has done so.
  virtual void wait(const MomentPtr& moment) = 0;

  [[nodiscard]] virtual MomentPtr record() = 0;

  // Between two buffers of the device that do not overlap.
  virtual void copy(std::byte* to, const std::byte* from, std::size_t bytes) = 0;

  // to[i] += from[i], fp32, of two buffers of the device that do not overlap; one rounding each, so the same bits
  // wherever it is done.
  virtual void add(float* to, const float* from, std::size_t count) = 0;

  // The cudaStream_t that NCCL and kernels take; null on the host.
  [[nodiscard]] virtual void* native() const = 0;
};

// Of one rank. Two real implementations: the host, whose streams do everything at once (exec/device/host_device.hpp),
// and LibTorch's accelerators through its device-generic interface (exec/device/torch_device.hpp).
class Device {
 public:
  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  virtual ~Device() = default;

  [[nodiscard]] virtual std::string name() const = 0;  // "cpu", "cuda:0"

  // Whether work is done later than the call that puts it on a stream. If not, no moment is ever waited for.
  [[nodiscard]] virtual bool is_asynchronous() const = 0;

  // Once, by the rank's thread, before it makes stages: from then on what the thread computes goes to compute().
  virtual void enter() = 0;

  // What stages put their work on.
  [[nodiscard]] virtual Stream& compute() = 0;

  // Urgent: its work goes before waiting compute where both could start (communication holds up other ranks).
  [[nodiscard]] virtual std::unique_ptr<Stream> make_stream(bool urgent) = 0;

  // Memory of the device in the order of compute(): `ready` is compute().record(), since the bytes may have been
  // another value's, whose last use stands there. Given back likewise: whoever uses it on another stream keeps the
  // owner until that use has ended.
  [[nodiscard]] virtual Payload allocate(std::size_t bytes) = 0;

  // When a moment came, on the host's clock (exec::Clock). Precondition: it has come, and align_clock was called before
  // it was recorded.
  [[nodiscard]] virtual Seconds time_of(const Moment& moment) const = 0;

  // Finds out how the device's clock stands to the host's. Waits until compute() is idle: between steps only.
  virtual void align_clock() = 0;
};

}  // namespace plumb::exec

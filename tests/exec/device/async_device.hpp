// An asynchronous device without a driver: each stream is a thread that works off what is put on it, later and at a
// speed of its own. Memory that is given back is overwritten in its turn on the compute stream. So whoever does not
// wait for a moment, or lets go of a buffer too early, reads or writes something else than was meant.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "common/base/error.hpp"
#include "exec/device/device.hpp"
#include "exec/transport/transport.hpp"
#include "tests/exec/fake_nccl/fake_stream.hpp"

namespace plumb::exec::test {

class AsyncMoment final : public Moment {
 public:
  [[nodiscard]] bool has_come() const override;
  [[nodiscard]] Seconds time() const;  // precondition: it has come
  void wait() const;
  void come();

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::optional<Clock::time_point> time_;
};

class AsyncStream final : public Stream {
 public:
  // Each piece of work but moments and waits begins up to `slowness` late. `beside`: whose thread works it off, in the
  // order in which work is put on both; null: one of its own.
  AsyncStream(std::uint32_t seed, std::chrono::microseconds slowness, const AsyncStream* beside = nullptr)
      : slowness_(slowness),
        random_(std::make_shared<std::mt19937>(seed)),
        stream_(beside == nullptr ? std::make_shared<FakeStream>() : beside->stream_) {}

  void run(std::function<void()> work);
  void wait(const MomentPtr& moment) override;
  [[nodiscard]] MomentPtr record() override;
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) override;
  void add(float* to, const float* from, std::size_t count) override;
  [[nodiscard]] void* native() const override { return stream_.get(); }  // as the fake NCCL takes it

 private:
  std::chrono::microseconds slowness_;
  std::shared_ptr<std::mt19937> random_;
  std::shared_ptr<FakeStream> stream_;
};

// How late the work of each kind of stream begins, at most.
struct Speeds {
  std::chrono::microseconds compute{0};
  std::chrono::microseconds copies{0};
  std::chrono::microseconds unhurried{0};  // of streams that are not urgent
  bool serial = false;  // all streams are worked off as one, in the order in which work is put on them
};

class AsyncDevice final : public Device {
 public:
  explicit AsyncDevice(std::uint32_t seed = 0, const Speeds& speeds = {})
      : seed_(seed), speeds_(speeds), compute_(seed, speeds.compute) {}

  [[nodiscard]] std::string name() const override { return "test"; }
  [[nodiscard]] bool is_asynchronous() const override { return true; }
  void enter() override {}
  [[nodiscard]] AsyncStream& compute() override { return compute_; }
  [[nodiscard]] std::unique_ptr<Stream> make_stream(bool urgent) override;
  [[nodiscard]] Payload allocate(std::size_t bytes) override;
  [[nodiscard]] Seconds time_of(const Moment& moment) const override;
  void align_clock() override;

  // Buffers that are in use, and the most that ever were.
  [[nodiscard]] int in_use();
  [[nodiscard]] int most_in_use();
  // All that was ever allocated, one after the other or at one time.
  [[nodiscard]] Bytes allocated();
  [[nodiscard]] int allocations();

 private:
  void give_back(std::byte* memory, std::size_t bytes);

  std::uint32_t seed_;
  Speeds speeds_;
  bool aligned_ = false;
  std::mutex mutex_;
  std::map<std::size_t, std::vector<std::byte*>> free_;
  std::vector<std::unique_ptr<std::byte[]>> memory_;
  int in_use_ = 0;
  int most_in_use_ = 0;
  int allocations_ = 0;
  Bytes allocated_;
  AsyncStream compute_;
};

}  // namespace plumb::exec::test

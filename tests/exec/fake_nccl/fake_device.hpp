// A device whose streams are threads: work is really later than the call, and memory is the host's.
#pragma once

#include <condition_variable>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "exec/device/device.hpp"
#include "exec/transport/transport.hpp"
#include "tests/exec/fake_nccl/fake_stream.hpp"

namespace plumb::exec {

class FakeMoment final : public Moment {
 public:
  [[nodiscard]] bool has_come() const override {
    const std::scoped_lock lock(mutex_);
    return come_;
  }
  void come() {
    {
      const std::scoped_lock lock(mutex_);
      come_ = true;
      time_ = Clock::now();
    }
    changed_.notify_all();
  }
  void wait() const {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return come_; });
  }
  [[nodiscard]] Seconds time() const {
    const std::scoped_lock lock(mutex_);
    return seconds_of(time_);
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool come_ = false;
  Clock::time_point time_;
};

class FakeDeviceStream final : public Stream {
 public:
  void wait(const MomentPtr& moment) override {
    if (!moment) return;
    stream_.put([awaited = std::dynamic_pointer_cast<const FakeMoment>(moment)] { awaited->wait(); });
  }
  [[nodiscard]] MomentPtr record() override {
    const auto moment = std::make_shared<FakeMoment>();
    stream_.put([moment] { moment->come(); });
    return moment;
  }
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) override {
    stream_.put([to, from, bytes] { std::memcpy(to, from, bytes); });
  }
  void add(float* to, const float* from, std::size_t count) override {
    stream_.put([to, from, count] {
      for (std::size_t i = 0; i < count; ++i) to[i] += from[i];
    });
  }
  [[nodiscard]] void* native() const override { return &stream_; }
  void put(std::function<void()> work) { stream_.put(std::move(work)); }

 private:
  mutable FakeStream stream_;
};

class FakeDevice final : public Device {
 public:
  [[nodiscard]] std::string name() const override { return "fake"; }
  [[nodiscard]] bool is_asynchronous() const override { return true; }
  void enter() override {}
  [[nodiscard]] FakeDeviceStream& compute() override { return compute_; }
  [[nodiscard]] std::unique_ptr<Stream> make_stream(bool /*urgent*/) override {
    return std::make_unique<FakeDeviceStream>();
  }
  [[nodiscard]] Payload allocate(std::size_t bytes) override {
    const auto memory = std::make_shared<std::vector<std::byte>>(bytes);
    return {.owner = memory, .data = memory->data(), .size = bytes, .ready = compute_.record()};
  }
  [[nodiscard]] Seconds time_of(const Moment& moment) const override {
    return dynamic_cast<const FakeMoment&>(moment).time();
  }
  void align_clock() override {}

 private:
  FakeDeviceStream compute_;
};

}  // namespace plumb::exec

// A device in the host's memory for stages that compute on the host: what they compute is done when the call returns,
// all other streams work by themselves, as a device's do.
#pragma once

#include <cstring>
#include <memory>
#include <string>

#include "exec/device/host_device.hpp"
#include "tests/exec/device/async_device.hpp"

namespace plumb::exec::test {

class HostWithStreams final : public Device {
 public:
  explicit HostWithStreams(std::uint32_t seed = 0, const Speeds& speeds = {}) : seed_(seed), speeds_(speeds) {}

  [[nodiscard]] std::string name() const override { return "cpu"; }
  [[nodiscard]] bool is_asynchronous() const override { return true; }
  void enter() override {}
  [[nodiscard]] exec::Stream& compute() override { return compute_; }
  [[nodiscard]] std::unique_ptr<exec::Stream> make_stream(bool urgent) override {
    return std::make_unique<AsyncStream>(++seed_, urgent ? speeds_.copies : speeds_.unhurried);
  }
  [[nodiscard]] Payload allocate(std::size_t bytes) override {
    Payload made = host_->allocate(bytes);
    if (bytes > 0) std::memset(made.data, 0xA5, bytes);
    return made;
  }
  [[nodiscard]] Seconds time_of(const exec::Moment& moment) const override {
    return dynamic_cast<const AsyncMoment&>(moment).time();
  }
  void align_clock() override {}

 private:
  // The host's thread: it waits itself.
  class Compute final : public exec::Stream {
   public:
    void wait(const MomentPtr& moment) override {
      if (moment) dynamic_cast<const AsyncMoment&>(*moment).wait();
    }
    [[nodiscard]] MomentPtr record() override {
      const auto moment = std::make_shared<AsyncMoment>();
      moment->come();
      return moment;
    }
    void copy(std::byte* to, const std::byte* from, std::size_t bytes) override {
      if (bytes > 0) std::memcpy(to, from, bytes);
    }
    void add(float* to, const float* from, std::size_t count) override {
      for (std::size_t i = 0; i < count; ++i) to[i] += from[i];
    }
    [[nodiscard]] void* native() const override { return nullptr; }
  };

  std::uint32_t seed_;
  Speeds speeds_;
  std::unique_ptr<Device> host_ = make_host_device();
  Compute compute_;
};

}  // namespace plumb::exec::test

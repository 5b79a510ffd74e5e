#include "exec/device/host_device.hpp"

#include <cstring>
#include <new>

#include "exec/device/clock.hpp"

namespace plumb::exec {
namespace {

constexpr std::align_val_t alignment{64};

class HostMoment final : public Moment {
 public:
  [[nodiscard]] bool has_come() const override { return true; }
  [[nodiscard]] Seconds time() const { return time_; }

 private:
  Seconds time_ = seconds_of(Clock::now());
};

class HostStream final : public Stream {
 public:
  void wait(const MomentPtr& /*moment*/) override {}
  [[nodiscard]] MomentPtr record() override { return std::make_shared<HostMoment>(); }
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) override {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }
  void add(float* to, const float* from, std::size_t count) override {
    for (std::size_t i = 0; i < count; ++i) to[i] += from[i];
  }
  [[nodiscard]] void* native() const override { return nullptr; }
};

class HostDevice final : public Device {
 public:
  [[nodiscard]] std::string name() const override { return "cpu"; }
  [[nodiscard]] bool is_asynchronous() const override { return false; }
  void enter() override {}
  [[nodiscard]] Stream& compute() override { return compute_; }
  [[nodiscard]] std::unique_ptr<Stream> make_stream(bool /*urgent*/) override { return std::make_unique<HostStream>(); }

  [[nodiscard]] Payload allocate(std::size_t bytes) override {
    const std::shared_ptr<void> owner(::operator new(bytes, alignment),
                                      [](void* memory) { ::operator delete(memory, alignment); });
    return {.owner = owner, .data = static_cast<std::byte*>(owner.get()), .size = bytes};
  }

  [[nodiscard]] Seconds time_of(const Moment& moment) const override {
    return dynamic_cast<const HostMoment&>(moment).time();
  }
  void align_clock() override {}

 private:
  HostStream compute_;
};

}  // namespace

std::unique_ptr<Device> make_host_device() { return std::make_unique<HostDevice>(); }

}  // namespace plumb::exec

#include "exec/device/torch_device.hpp"

#include <ATen/DeviceAccelerator.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/Event.h>
#include <c10/core/GradMode.h>
#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "common/base/error.hpp"
#include "exec/device/clock.hpp"
#include "exec/device/native_stream.hpp"
#include "exec/device/torch_error.hpp"

namespace plumb::exec {
namespace {

using Guard = c10::impl::VirtualGuardImpl;

// Events are made once and used again: making one costs more than recording it.
class EventPool {
 public:
  explicit EventPool(c10::DeviceType type) : type_(type) {}

  [[nodiscard]] c10::Event take() {
    const std::scoped_lock lock(mutex_);
    if (free_.empty()) return c10::Event(type_, c10::EventFlag::BACKEND_DEFAULT);  // with a time
    c10::Event event = std::move(free_.back());
    free_.pop_back();
    return event;
  }
  void give_back(c10::Event event) {
    const std::scoped_lock lock(mutex_);
    free_.push_back(std::move(event));
  }

 private:
  c10::DeviceType type_;
  std::mutex mutex_;
  std::vector<c10::Event> free_;
};

template <class Call>
auto on_device(const std::string& where, Call call) {
  try {
    return call();
  } catch (const std::exception& error) {
    throw RunError(where, "the device reports: " + first_line(error),
                   "run again with CUDA_LAUNCH_BLOCKING=1 to see which call it was");
  }
}

class TorchMoment final : public Moment {
 public:
  TorchMoment(std::shared_ptr<EventPool> pool, const c10::Stream& stream)
      : pool_(std::move(pool)), event_(pool_->take()) {
    event_.record(stream);
  }
  ~TorchMoment() override {
    try {
      pool_->give_back(std::move(event_));
    } catch (...) {  // out of memory for the list: then the event goes
    }
  }

  [[nodiscard]] bool has_come() const override {
    return on_device("", [this] { return event_.query(); });
  }
  [[nodiscard]] const c10::Event& event() const { return event_; }

 private:
  std::shared_ptr<EventPool> pool_;
  c10::Event event_;
};

at::Tensor tensor_at(const void* data, std::size_t count, at::ScalarType type, c10::Device device) {
  return at::from_blob(const_cast<void*>(data), {static_cast<std::int64_t>(count)},
                       at::TensorOptions().dtype(type).device(device));
}

class TorchStream final : public Stream {
 public:
  TorchStream(std::shared_ptr<EventPool> pool, const c10::Stream& stream) : pool_(std::move(pool)), stream_(stream) {}

  void wait(const MomentPtr& moment) override {
    if (!moment) return;
    on_device("", [&] { dynamic_cast<const TorchMoment&>(*moment).event().block(stream_); });
  }
  [[nodiscard]] MomentPtr record() override {
    return on_device("", [this] { return std::make_shared<TorchMoment>(pool_, stream_); });
  }
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) override {
    if (bytes == 0) return;
    on_this_stream([&](c10::Device device) {
      tensor_at(to, bytes, at::kByte, device).copy_(tensor_at(from, bytes, at::kByte, device), true);
    });
  }
  void add(float* to, const float* from, std::size_t count) override {
    if (count == 0) return;
    on_this_stream([&](c10::Device device) {
      tensor_at(to, count, at::kFloat, device).add_(tensor_at(from, count, at::kFloat, device));
    });
  }
  [[nodiscard]] void* native() const override { return native_stream(stream_); }
  [[nodiscard]] const c10::Stream& stream() const { return stream_; }

 private:
  template <class Work>
  void on_this_stream(const Work& work) {
    on_device("", [&] {
      const c10::NoGradGuard no_grad;
      const c10::StreamGuard guard(stream_);
      work(stream_.device());
    });
  }

  std::shared_ptr<EventPool> pool_;
  c10::Stream stream_;
};

class TorchDevice final : public Device {
 public:
  explicit TorchDevice(c10::Device device)
      : device_(device),
        guard_(device.type()),
        pool_(std::make_shared<EventPool>(device.type())),
        compute_(pool_, guard_.getStreamFromGlobalPool(device, false)) {}

  [[nodiscard]] std::string name() const override { return device_.str(); }
  [[nodiscard]] bool is_asynchronous() const override { return true; }
  void enter() override {
    on_device(name(), [this] {
      guard_.setDevice(device_);
      (void)guard_.exchangeStream(compute_.stream());
    });
  }
  [[nodiscard]] Stream& compute() override { return compute_; }
  [[nodiscard]] std::unique_ptr<Stream> make_stream(bool urgent) override {
    return on_device(
        name(), [&] { return std::make_unique<TorchStream>(pool_, guard_.getStreamFromGlobalPool(device_, urgent)); });
  }

  [[nodiscard]] Payload allocate(std::size_t bytes) override {
    const auto tensor = on_device(name(), [&] {
      const c10::StreamGuard guard(compute_.stream());  // the allocator's order is its stream's
      return std::make_shared<at::Tensor>(
          at::empty({static_cast<std::int64_t>(bytes)}, at::TensorOptions().dtype(at::kByte).device(device_)));
    });
    return {.owner = tensor,
            .data = static_cast<std::byte*>(tensor->data_ptr()),
            .size = bytes,
            .ready = compute_.record()};
  }

  [[nodiscard]] Seconds time_of(const Moment& moment) const override {
    if (!origin_) throw RunError(name(), "its clock has not been aligned");
    return on_device(name(), [&] {
      const double milliseconds = origin_->event().elapsedTime(dynamic_cast<const TorchMoment&>(moment).event());
      return origin_time_ + Seconds{milliseconds * 1e-3};
    });
  }

  // The shortest of several tries: between the event on an idle stream and the host's look at it lies only the way.
  void align_clock() override {
    on_device(name(), [this] {
      guard_.synchronizeStream(compute_.stream());
      constexpr int tries = 20;
      std::optional<Clock::duration> shortest;
      for (int i = 0; i < tries; ++i) {
        const Clock::time_point before = Clock::now();
        auto moment = std::make_shared<TorchMoment>(pool_, compute_.stream());
        moment->event().synchronize();
        const Clock::duration took = Clock::now() - before;
        if (shortest && took >= *shortest) continue;
        shortest = took;
        origin_ = std::move(moment);
        origin_time_ = seconds_of(before + took / 2);
      }
    });
  }

 private:
  c10::Device device_;
  Guard guard_;
  std::shared_ptr<EventPool> pool_;
  TorchStream compute_;
  std::shared_ptr<const TorchMoment> origin_;
  Seconds origin_time_{0};
};

}  // namespace

int accelerator_count() {
  try {
    const auto type = at::getAccelerator(false);
    return type ? static_cast<int>(Guard(*type).deviceCount()) : 0;
  } catch (const std::exception&) {  // no driver
    return 0;
  }
}

std::string libtorch_devices() { return at::getAccelerator(false) ? "for CUDA" : "for the CPU alone"; }

std::unique_ptr<Device> make_torch_device(int index) {
  const auto type = at::getAccelerator(false);
  if (!type) {
    throw InputError("--device", "this LibTorch was built for the CPU alone",
                     "build with a CUDA LibTorch: ./bootstrap --with-cuda-torch");
  }
  const int count = accelerator_count();
  if (index < 0 || index >= count) {
    throw InputError("--device", fmt::format("there is no device {}: this process sees {}", index, count),
                     "see nvidia-smi, and CUDA_VISIBLE_DEVICES");
  }
  return on_device("--device", [&] {
    return std::make_unique<TorchDevice>(c10::Device(*type, static_cast<c10::DeviceIndex>(index)));
  });
}

}  // namespace plumb::exec

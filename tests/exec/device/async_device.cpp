#include "tests/exec/device/async_device.hpp"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

namespace plumb::exec::test {
namespace {

constexpr int poison = 0xA5;

}  // namespace

bool AsyncMoment::has_come() const {
  const std::scoped_lock lock(mutex_);
  return time_.has_value();
}

Seconds AsyncMoment::time() const {
  const std::scoped_lock lock(mutex_);
  return seconds_of(time_.value());
}

void AsyncMoment::wait() const {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return time_.has_value(); });
}

void AsyncMoment::come() {
  const std::scoped_lock lock(mutex_);
  time_ = Clock::now();
  changed_.notify_all();
}

void AsyncStream::run(std::function<void()> work) {
  stream_->put([late = static_cast<std::uint32_t>(slowness_.count()), random = random_, work = std::move(work)] {
    if (late > 0) std::this_thread::sleep_for(std::chrono::microseconds(late / 2 + (*random)() % (late / 2 + 1)));
    work();
  });
}

void AsyncStream::wait(const MomentPtr& moment) {
  if (moment) stream_->put([moment] { dynamic_cast<const AsyncMoment&>(*moment).wait(); });
}

MomentPtr AsyncStream::record() {
  const auto moment = std::make_shared<AsyncMoment>();
  stream_->put([moment] { moment->come(); });
  return moment;
}

void AsyncStream::copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes > 0) run([=] { std::memcpy(to, from, bytes); });
}

void AsyncStream::add(float* to, const float* from, std::size_t count) {
  run([=] {
    for (std::size_t i = 0; i < count; ++i) to[i] += from[i];
  });
}

std::unique_ptr<Stream> AsyncDevice::make_stream(bool urgent) {
  return std::make_unique<AsyncStream>(++seed_, urgent ? speeds_.copies : speeds_.unhurried,
                                       speeds_.serial ? &compute_ : nullptr);
}

Payload AsyncDevice::allocate(std::size_t bytes) {
  std::byte* memory = nullptr;
  {
    const std::scoped_lock lock(mutex_);
    most_in_use_ = std::max(most_in_use_, ++in_use_);
    ++allocations_;
    allocated_ += Bytes{static_cast<std::int64_t>(bytes)};
    std::vector<std::byte*>& free = free_[bytes];
    if (free.empty()) {
      memory_.push_back(std::make_unique<std::byte[]>(bytes));
      free.push_back(memory_.back().get());
      std::memset(free.back(), poison, bytes);
    }
    memory = free.back();
    free.pop_back();
  }
  return {.owner = {memory, [this, bytes](void* of) { give_back(static_cast<std::byte*>(of), bytes); }},
          .data = memory,
          .size = bytes,
          .ready = compute_.record()};
}

void AsyncDevice::give_back(std::byte* memory, std::size_t bytes) {
  compute_.run([=] { std::memset(memory, poison, bytes); });
  const std::scoped_lock lock(mutex_);
  --in_use_;
  free_[bytes].push_back(memory);
}

Seconds AsyncDevice::time_of(const Moment& moment) const {
  if (!aligned_) throw RunError("test", "its clock has not been aligned");
  return dynamic_cast<const AsyncMoment&>(moment).time();
}

void AsyncDevice::align_clock() {
  const MomentPtr idle = compute_.record();
  dynamic_cast<const AsyncMoment&>(*idle).wait();
  aligned_ = true;
}

int AsyncDevice::in_use() {
  const std::scoped_lock lock(mutex_);
  return in_use_;
}

int AsyncDevice::most_in_use() {
  const std::scoped_lock lock(mutex_);
  return most_in_use_;
}

Bytes AsyncDevice::allocated() {
  const std::scoped_lock lock(mutex_);
  return allocated_;
}

int AsyncDevice::allocations() {
  const std::scoped_lock lock(mutex_);
  return allocations_;
}

}  // namespace plumb::exec::test

#include "exec/transport/gloo/gloo_parcels.hpp"

#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include <utility>

#include "common/base/error.hpp"
#include "exec/transport/gloo/gloo_error.hpp"

namespace plumb::exec {
namespace {

int next_tag(std::uint64_t& messages) { return tag_of(QueueKind::parcel, Leg::payload, messages++); }

at::Tensor view_of(const Payload& part) {
  return at::from_blob(part.data, {static_cast<std::int64_t>(part.size)}, at::kByte);
}
at::Tensor view_of_count(const SizeTable& table) { return at::from_blob(table.count.get(), {1}, at::kLong); }
at::Tensor view_of_sizes(const SizeTable& table) {
  return at::from_blob(table.bytes->data(), {static_cast<std::int64_t>(table.bytes->size())}, at::kLong);
}

}  // namespace

OutgoingParcels::OutgoingParcels(GlooFabric& fabric, int peer)
    : fabric_(fabric), peer_(peer), thread_([this] { run(); }) {}

OutgoingParcels::~OutgoingParcels() {
  {
    const std::scoped_lock lock(mutex_);
    closing_ = true;
    for (const Sending& message : sending_) message.work->abort();
  }
  changed_.notify_all();
  thread_.join();
}

void OutgoingParcels::push(Parcel parcel) {
  SizeTable table;
  *table.count = static_cast<std::int64_t>(parcel.size());
  for (const Payload& part : parcel) table.bytes->push_back(static_cast<std::int64_t>(part.size));
  {
    const std::scoped_lock lock(mutex_);
    const auto post = [&](const at::Tensor& tensor, Payload part) {
      GlooWork work = fabric_.post(tensor, peer_, next_tag(sent_), true);
      sending_.push_back({.part = std::move(part), .table = table, .work = std::move(work)});
    };
    post(view_of_count(table), {});
    if (!parcel.empty()) post(view_of_sizes(table), {});
    for (Payload& part : parcel) {
      if (part.size == 0) continue;  // Gloo has no empty messages; the table says it all
      const at::Tensor view = view_of(part);
      post(view, std::move(part));
    }
  }
  changed_.notify_all();
}

void OutgoingParcels::release() {
  std::vector<Payload> released;
  const std::scoped_lock lock(mutex_);
  released.swap(delivered_);
}

void OutgoingParcels::drain(Clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, deadline, [this] { return sending_.empty(); });
}

void OutgoingParcels::run() {
  std::unique_lock lock(mutex_);
  try {
    while (true) {
      changed_.wait(lock, [this] { return closing_ || !sending_.empty(); });
      if (closing_) return;
      const GlooWork work = sending_.front().work;
      lock.unlock();
      work->wait(gloo_never);
      lock.lock();
      if (closing_) return;
      delivered_.push_back(std::move(sending_.front().part));
      sending_.pop_front();
      changed_.notify_all();
    }
  } catch (const std::exception& error) {
    if (!lock.owns_lock()) lock.lock();
    if (closing_) return;
    fabric_.ending.fail(
        fmt::format("lost rank {} while sending evicted activations to it ({})", peer_, gloo_cause(error)));
  }
}

IncomingParcels::IncomingParcels(GlooFabric& fabric, int peer, std::function<Payload(std::size_t bytes)> allocate)
    : fabric_(fabric), peer_(peer), allocate_(std::move(allocate)), arrivals_(fabric.ending), thread_([this] {
        run();
      }) {}

IncomingParcels::~IncomingParcels() {
  {
    const std::scoped_lock lock(mutex_);
    closing_ = true;
    for (const GlooWork& work : reading_) work->abort();
  }
  changed_.notify_all();
  thread_.join();
}

void IncomingParcels::expect(int count) {
  unreceived_ += count;
  {
    const std::scoped_lock lock(mutex_);
    expected_ += count;
  }
  changed_.notify_all();
}

bool IncomingParcels::has_arrived() { return unreceived_ > 0 && arrivals_.any(); }

ReceivedParcel IncomingParcels::receive(Clock::time_point deadline) {
  if (unreceived_ == 0) {
    throw RunError(fmt::format("rank {}", fabric_.ending.rank), fmt::format("expects no parcel from rank {}", peer_));
  }
  ReceivedParcel received = arrivals_.take(
      deadline, [this] { return fmt::format("lost rank {} while receiving evicted activations from it", peer_); },
      [this] { return fmt::format("no evicted activations from rank {} before the deadline", peer_); });
  --unreceived_;
  return received;
}

void IncomingParcels::run() {
  try {
    while (take_next()) {
    }
  } catch (const std::exception& error) {
    const std::scoped_lock lock(mutex_);
    if (closing_) return;
    arrivals_.lose(gloo_cause(error));
  }
}

bool IncomingParcels::read(const std::vector<at::Tensor>& into, std::unique_lock<std::mutex>& lock) {
  for (const at::Tensor& part : into) reading_.push_back(fabric_.post(part, peer_, next_tag(posted_ever_), false));
  const std::vector<GlooWork> works = reading_;
  lock.unlock();
  for (const GlooWork& work : works) work->wait(gloo_never);
  lock.lock();
  reading_.clear();
  return !closing_;
}

bool IncomingParcels::take_next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return closing_ || expected_ > 0; });
  if (closing_) return false;
  --expected_;
  SizeTable table;
  if (!read({view_of_count(table)}, lock)) return false;
  table.bytes->resize(static_cast<std::size_t>(*table.count));
  if (*table.count > 0 && !read({view_of_sizes(table)}, lock)) return false;
  ReceivedParcel received{.parcel = {}, .arrived = {}};
  std::vector<at::Tensor> views;
  for (const std::int64_t bytes : *table.bytes) {
    received.parcel.push_back(allocate_(static_cast<std::size_t>(bytes)));
    if (bytes > 0) views.push_back(view_of(received.parcel.back()));
  }
  if (!read(views, lock)) return false;
  received.arrived = Clock::now();
  arrivals_.put(std::move(received));
  return true;
}

}  // namespace plumb::exec

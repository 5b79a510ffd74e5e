#include "exec/transport/gloo/keep_alive.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace plumb::exec {
namespace {

using namespace std::chrono_literals;

constexpr auto sign_of_life_every = 200ms;

}  // namespace

std::string KeepAlive::sign_of_life(std::uint64_t count, const std::string& doing) {
  return fmt::format("{} {}", count, doing);
}

KeepAlive::KeepAlive(KeepAliveOptions options, Ending& ending, std::shared_ptr<RunStore> store)
    : options_(std::move(options)), ending_(ending), store_(std::move(store)), thread_([this] { run(); }) {}

KeepAlive::~KeepAlive() {
  {
    const std::scoped_lock lock(mutex_);
    closing_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void KeepAlive::wake() {
  {
    const std::scoped_lock lock(mutex_);
    woken_ = true;
  }
  wake_.notify_all();
}

void KeepAlive::run() {
  try {
    std::unique_lock lock(mutex_);
    while (!closing_) {
      lock.unlock();
      tick();
      lock.lock();
      wake_.wait_for(lock, sign_of_life_every, [this] { return closing_ || woken_; });
      woken_ = false;
    }
    lock.unlock();
    announce();
    store_->say(options_.rank, fmt::format("{} {}", gone, options_.doing ? options_.doing() : ""));
  } catch (const std::exception& error) {
    ending_.fail(error.what());
  }
}

void KeepAlive::tick() {
  announce();
  store_->say(options_.rank, sign_of_life(++ticks_, options_.doing ? options_.doing() : ""));
  const std::string reason = store_->stop_reason();
  if (!reason.empty()) ending_.stop(reason, false);
  if (options_.size > 1) watch((options_.rank + 1) % options_.size);
}

void KeepAlive::announce() {
  std::optional<std::string> reason;
  {
    const std::scoped_lock lock(ending_.mutex);
    reason = std::exchange(ending_.to_announce, std::nullopt);
  }
  if (reason) store_->stop(*reason);
}

// Counts our own ticks, not time: when the whole machine pauses, nobody is to blame.
void KeepAlive::watch(int peer) {
  const std::string said = store_->said(peer);
  if (said.empty() || is_gone(said) || said != last_said_) {
    last_said_ = said;
    silent_ticks_ = 0;
    return;
  }
  const auto silence = std::chrono::duration<double>(sign_of_life_every * ++silent_ticks_);
  if (silence.count() < options_.silence_limit.value) return;
  const std::string doing = doing_of(said);
  ending_.stop(fmt::format("rank {}{}: gives no sign of life since {:.1f} s", peer,
                           doing.empty() ? "" : ", " + (options_.describe ? options_.describe(peer, doing) : doing),
                           silence.count()),
               true);
  announce();
}

}  // namespace plumb::exec

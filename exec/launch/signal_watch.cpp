#include "exec/launch/signal_watch.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/end_requests.hpp"

namespace plumb::exec {
namespace {

using namespace std::chrono_literals;

constexpr std::chrono::milliseconds watch_every{20};

std::atomic<int> first_signal = 0;
std::atomic<bool> was_caught = false;
EndRequests requests;
std::atomic<bool> is_taken = false;
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free,
              "a signal handler writes them");

// The first signal counts: a terminal's Ctrl-C may be followed by a launcher's SIGTERM.
void remember_signal(int signal) {
  int none = 0;
  first_signal.compare_exchange_strong(none, signal);
  was_caught = true;
  requests.take();
}

std::string reason_to_end() {
  const int signal = first_signal;
  return signal == 0 ? "" : signal == SIGINT ? "interrupted (SIGINT)" : "told to end (SIGTERM)";
}

}  // namespace

struct SignalWatch::State {
  SignalActions on;
  struct sigaction old_interrupt = {};
  struct sigaction old_terminate = {};
  bool closing = false;
  std::thread thread;

  struct All {
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<const State*> watches;  // the innermost last
  };
  static All& all() {
    static All& made = *new All;  // never destroyed: a thread that is left behind may wait on it
    return made;
  }

  [[nodiscard]] bool is_innermost() const { return all().watches.back() == this; }

  // Counts looks, not time: a pause of the process is no waiting.
  void watch() {
    std::unique_lock lock(all().mutex);
    const auto wait = [&] { all().changed.wait_for(lock, watch_every, [&] { return closing; }); };
    while (!closing && !(is_innermost() && was_caught)) wait();
    if (closing) return;
    is_taken = true;
    const std::string reason = reason_to_end();
    lock.unlock();
    if (on.on_signal) on.on_signal(reason);
    if (!on.on_stuck) return;
    const double looks = on.grace().value * 1e3 / static_cast<double>(watch_every.count());
    lock.lock();
    for (double look = 0; look < looks && !closing && !(on.twice_is_stuck && requests.count() > 1); ++look) wait();
    if (closing) return;
    lock.unlock();
    on.on_stuck(reason);
  }
};

SignalWatch::SignalWatch(SignalActions actions) : state_(std::make_unique<State>()) {
  state_->on = std::move(actions);
  {
    const std::scoped_lock lock(State::all().mutex);
    if (State::all().watches.empty()) {
      first_signal = 0;
      was_caught = false;
      requests.reset();
      is_taken = false;
    }
    State::all().watches.push_back(state_.get());
  }
  struct sigaction action = {};
  action.sa_handler = remember_signal;
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGINT, &action, &state_->old_interrupt);
  ::sigaction(SIGTERM, &action, &state_->old_terminate);
  if (state_->on.on_signal || state_->on.on_stuck) {
    state_->thread = std::thread([state = state_.get()] { state->watch(); });
  }
}

std::string SignalWatch::reason() const {
  std::string reason = reason_to_end();
  if (!reason.empty()) is_taken = true;
  return reason;
}

int SignalWatch::times() const { return requests.count(); }

Stop SignalWatch::stop() const { return {&was_caught, std::nullopt}; }

SignalWatch::~SignalWatch() {
  bool is_last = false;
  {
    const std::scoped_lock lock(State::all().mutex);
    state_->closing = true;
    std::erase(State::all().watches, state_.get());
    is_last = State::all().watches.empty();
  }
  State::all().changed.notify_all();
  if (state_->thread.joinable()) state_->thread.join();
  ::sigaction(SIGINT, &state_->old_interrupt, nullptr);
  ::sigaction(SIGTERM, &state_->old_terminate, nullptr);
  if (is_last && was_caught && !is_taken) std::raise(first_signal);
}

}  // namespace plumb::exec

#include "exec/launch/launch.hpp"

#include <fmt/format.h>
#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <csignal>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <thread>

namespace plumb::exec {
namespace {

using namespace std::chrono_literals;

std::atomic<int> caught_signal = 0;
std::atomic<bool> was_caught = false;
std::atomic<int> caught_times = 0;
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free,
              "a signal handler writes them");

// The first: who is told by a terminal and then by a launcher, was interrupted.
void remember_signal(int signal) {
  int none = 0;
  caught_signal.compare_exchange_strong(none, signal);
  was_caught = true;
  ++caught_times;
}

std::string reason_to_end() {
  const int signal = caught_signal;
  return signal == 0 ? "" : signal == SIGINT ? "interrupted (SIGINT)" : "told to end (SIGTERM)";
}

// The error that explains the run: a rank's own before one that only says that another failed.
class FirstError {
 public:
  void offer(const std::exception_ptr& error, bool own) {
    const std::scoped_lock lock(mutex_);
    if (error_ && (own_ || !own)) return;
    error_ = error;
    own_ = own;
  }
  void rethrow_if_any() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr error_;
  bool own_ = false;
};

}  // namespace

void run_threads(std::size_t count, const std::function<void(std::size_t)>& body,
                 const std::function<void(std::size_t, const std::string&)>& refused) {
  std::vector<std::thread> threads;
  threads.reserve(count);
  try {
    for (std::size_t index = 0; index < count; ++index) threads.emplace_back(body, index);
  } catch (const std::system_error& error) {
    refused(threads.size(), error.what());
  }
  for (std::thread& thread : threads) thread.join();
}

void run_on_threads(const std::vector<std::unique_ptr<Transport>>& transports, const RankMain& rank_main) {
  FirstError first;
  const auto run_rank_main = [&](std::size_t rank) {
    ::pthread_setname_np(::pthread_self(), fmt::format("rank {}", rank).c_str());  // for top, perf and debuggers
    Transport& transport = *transports[rank];
    try {
      rank_main(transport);
    } catch (const Stopped&) {
      first.offer(std::current_exception(), false);
    } catch (const std::exception& error) {
      first.offer(std::current_exception(), true);
      transport.abort(error.what());
    }
  };
  run_threads(transports.size(), run_rank_main, [&](std::size_t rank, const std::string& reason) {
    const std::string problem = "no thread for it could be started: " + reason;
    const RunError error("rank " + std::to_string(rank), problem, "take fewer ranks, or see `ulimit -u`");
    first.offer(std::make_exception_ptr(error), true);
    for (const auto& transport : transports) transport->abort(problem);
  });
  first.rethrow_if_any();
}

struct SignalWatch::State {
  std::function<void(const std::string&)> on_signal;
  std::mutex mutex;
  std::condition_variable stop_changed;
  bool stop = false;
  struct sigaction old_interrupt = {};
  struct sigaction old_terminate = {};
  std::thread thread;

  void watch() {
    std::unique_lock lock(mutex);
    while (!stop) {
      if (const std::string reason = reason_to_end(); !reason.empty()) {
        lock.unlock();
        return on_signal(reason);
      }
      stop_changed.wait_for(lock, 50ms);
    }
  }
};

SignalWatch::SignalWatch(std::function<void(const std::string& reason)> on_signal, bool keeps_caught)
    : state_(std::make_unique<State>()) {
  if (!keeps_caught) {
    caught_signal = 0;
    was_caught = false;
    caught_times = 0;
  }
  state_->on_signal = std::move(on_signal);
  struct sigaction action = {};
  action.sa_handler = remember_signal;
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGINT, &action, &state_->old_interrupt);
  ::sigaction(SIGTERM, &action, &state_->old_terminate);
  if (state_->on_signal) state_->thread = std::thread([state = state_.get()] { state->watch(); });
}

std::string SignalWatch::reason() const { return reason_to_end(); }

int SignalWatch::times() const { return caught_times; }

Stop SignalWatch::stop() const { return {&was_caught, std::nullopt}; }

SignalWatch::~SignalWatch() {
  if (state_->thread.joinable()) {
    {
      const std::scoped_lock lock(state_->mutex);
      state_->stop = true;
    }
    state_->stop_changed.notify_one();
    state_->thread.join();
  }
  ::sigaction(SIGINT, &state_->old_interrupt, nullptr);
  ::sigaction(SIGTERM, &state_->old_terminate, nullptr);
}

}  // namespace plumb::exec

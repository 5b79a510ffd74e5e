#include "exec/launch/launch.hpp"

#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>

namespace plumb::exec {
namespace {

// Error that explains the run: a rank's own comes before one that only reports another rank's failure.
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

void leave_at_once(const Error& error) {
  const std::string message = fmt::format("plumb-exec: {}\n", error.what());
  (void)!::write(STDERR_FILENO, message.data(), message.size());
  std::_Exit(static_cast<int>(error.status()));
}

}  // namespace plumb::exec

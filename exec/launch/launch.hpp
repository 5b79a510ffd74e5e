// Starts the ranks of a run as threads of this process.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/stop.hpp"
#include "exec/transport/transport.hpp"

namespace plumb::exec {

// What one rank does, on its own thread; returns when it is done.
using RankMain = std::function<void(Transport& transport)>;

// body(0), body(1) … body(count − 1), each on a thread of its own; returns when all have ended. When the system has no
// more threads, `refused` gets the index of the first that could not be started and the reason, and is to see to it
// that those that run come to an end.
void run_threads(std::size_t count, const std::function<void(std::size_t)>& body,
                 const std::function<void(std::size_t, const std::string&)>& refused);

// Runs rank_main on one thread per transport. When one throws, the others are told to stop; after all have ended, the
// first error that is a rank's own (not Stopped) is rethrown.
void run_on_threads(const std::vector<std::unique_ptr<Transport>>& transports, const RankMain& rank_main);

// While it lives, SIGINT and SIGTERM call `on_signal`, if there is one, with the reason, on a thread of its own,
// instead of ending the process. One may live inside another; the inner one acts. `keeps_caught`: what came to the one
// before counts here, if it came too late for that one to act on.
class SignalWatch {
 public:
  explicit SignalWatch(std::function<void(const std::string& reason)> on_signal = {}, bool keeps_caught = false);
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;
  ~SignalWatch();

  // Of the signal that came first, at once; empty: none did.
  [[nodiscard]] std::string reason() const;
  // So many came: who sends a second one does not want to wait.
  [[nodiscard]] int times() const;
  // Ended by the signal, at once.
  [[nodiscard]] Stop stop() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace plumb::exec

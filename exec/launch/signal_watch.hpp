// SIGINT and SIGTERM as requests to end, which a part of the program takes for as long as it runs.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "common/base/stop.hpp"
#include "common/base/units.hpp"

namespace plumb::exec {

// Actions of a watch, on a thread of its own.
struct SignalActions {
  std::function<void(const std::string& reason)> on_signal = {};  // once, for the first signal
  // Once, if the watch still lives `grace` after the first signal, or with `twice_is_stuck` when a second one comes.
  std::function<void(const std::string& reason)> on_stuck = {};
  std::function<Seconds()> grace = {};  // asked when the first signal has come; needed with `on_stuck`
  bool twice_is_stuck = false;
};

// Catches SIGINT and SIGTERM while it lives, instead of what they did before. Watches nest, and the innermost acts. A
// signal that no watch has acted on, and whose reason nobody has asked for, is raised again when the last watch ends.
class SignalWatch {
 public:
  explicit SignalWatch(SignalActions actions = {});
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;
  ~SignalWatch();

  // Returns the first signal in words, "interrupted (SIGINT)"; empty if none came. Whoever asks acts on it.
  [[nodiscard]] std::string reason() const;
  // Returns the number of signals that came: a second one does not want to wait.
  [[nodiscard]] int times() const;
  // Ends with the first signal.
  [[nodiscard]] Stop stop() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace plumb::exec

// Signs of life: tells the other ranks that this one lives and what it does, listens for a stop, watches the next rank.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "common/base/units.hpp"
#include "exec/transport/ending.hpp"
#include "exec/transport/gloo/run_store.hpp"

namespace plumb::exec {

struct KeepAliveOptions {
  int rank = 0;
  int size = 1;
  Seconds silence_limit{5};
  std::function<std::string()> doing = {};
  std::function<std::string(int rank, const std::string& doing)> describe = {};
};

// On a thread of its own, from construction to destruction.
class KeepAlive {
 public:
  // A rank's signs of life are "COUNT DOING", the last is "gone DOING".
  [[nodiscard]] static std::string sign_of_life(std::uint64_t count, const std::string& doing);
  static constexpr std::string_view gone = "gone";
  [[nodiscard]] static bool is_gone(std::string_view said) { return said.starts_with(gone); }
  [[nodiscard]] static std::string doing_of(const std::string& said) {
    return said.substr(std::min(said.size(), said.find(' ') + 1));
  }

  KeepAlive(KeepAliveOptions options, Ending& ending, std::shared_ptr<RunStore> store);
  KeepAlive(const KeepAlive&) = delete;
  KeepAlive& operator=(const KeepAlive&) = delete;
  ~KeepAlive();

  // Announces at once what `ending` has to announce.
  void wake();

 private:
  void run();
  void tick();
  void announce();
  void watch(int peer);

  KeepAliveOptions options_;
  Ending& ending_;
  std::shared_ptr<RunStore> store_;
  std::uint64_t ticks_ = 0;
  std::string last_said_;
  int silent_ticks_ = 0;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool closing_ = false;
  bool woken_ = false;
  std::thread thread_;
};

}  // namespace plumb::exec

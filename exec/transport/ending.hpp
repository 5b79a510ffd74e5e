// How a rank's run comes to an end before its time: by its own failure, or because others say stop.
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>

#include "exec/transport/host_links.hpp"

namespace plumb::exec {

// Shared by the threads of one rank's transport. Whoever waits for a message waits on `changed`, at a link with `over`.
struct Ending {
  int rank = 0;
  std::mutex mutex = {};
  std::condition_variable changed = {};
  Bell over = {};
  std::optional<std::string> failure = {};      // this rank's own
  std::optional<std::string> stop_reason = {};  // another's
  std::optional<std::string> to_announce = {};  // of either, what the other ranks do not know yet

  void fail(const std::string& problem);
  void stop(const std::string& reason, bool announce);

  // With `mutex` held: RunError for an own failure, Stopped for another's.
  void throw_if_over() const;
};

}  // namespace plumb::exec

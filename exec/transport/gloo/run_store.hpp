// What the processes of one run tell each other beside the payload: that they live, what they do, that all must stop.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/error.hpp"
#include "common/base/units.hpp"

namespace plumb::exec {

// A key-value store that one process hosts and all can reach (c10d's TCPStore). Calls throw RunError when the host does
// not answer. Any thread may call.
class RunStore {
 public:
  enum class Reach { this_host, all_hosts };

  // Without an answer for so long the process that hosts the store counts as lost.
  static constexpr Seconds silence_limit{10};

  // Port 0: any free one. Throws RunError when the port is taken.
  [[nodiscard]] static std::shared_ptr<RunStore> host(int port, Reach reach = Reach::this_host);
  // What an attempt before this one has left there is not seen. Throws RunError where there is no such store within
  // `timeout`, or something else listens there.
  [[nodiscard]] static std::shared_ptr<RunStore> join(const std::string& address, int port, Seconds timeout,
                                                      int attempt = 0);

  struct Connection;
  RunStore(std::unique_ptr<Connection> connection, int attempt);
  RunStore(const RunStore&) = delete;
  RunStore& operator=(const RunStore&) = delete;
  ~RunStore();

  [[nodiscard]] int port() const;

  void say(int rank, const std::string& text);
  [[nodiscard]] std::string said(int rank);  // empty: nothing yet

  // Anything else that ranks tell each other, by a name of theirs.
  void put(const std::string& name, const std::string& value);
  [[nodiscard]] std::optional<std::string> find(const std::string& name);  // none yet: nothing

  // The first reason counts, with the status that it ends a process with.
  void stop(const std::string& reason, ExitStatus status = ExitStatus::run_failed);
  [[nodiscard]] std::string stop_reason();  // empty: nobody has stopped the run
  [[nodiscard]] ExitStatus stop_status();   // `done`: so too

 private:
  [[nodiscard]] std::string key(const std::string& name) const;

  std::unique_ptr<Connection> connection_;
  int attempt_;
};

}  // namespace plumb::exec

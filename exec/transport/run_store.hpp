// What the processes of one run tell each other beside the payload: that they live, what they do, that all must stop.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/units.hpp"

namespace plumb::exec {

// A key-value store that one process hosts and all can reach (c10d's TCPStore). Calls throw RunError when the host does
// not answer. Any thread may call.
class RunStore {
 public:
  enum class Reach { this_host, all_hosts };

  // Port 0: any free one. Throws RunError when the port is taken.
  [[nodiscard]] static std::shared_ptr<RunStore> host(int port, Reach reach = Reach::this_host);
  [[nodiscard]] static std::shared_ptr<RunStore> join(const std::string& address, int port, Seconds timeout);

  struct Connection;
  explicit RunStore(std::unique_ptr<Connection> connection);
  RunStore(const RunStore&) = delete;
  RunStore& operator=(const RunStore&) = delete;
  ~RunStore();

  [[nodiscard]] int port() const;

  void say(int rank, const std::string& text);
  [[nodiscard]] std::string said(int rank);  // empty: nothing yet

  // Anything else that ranks tell each other, by a key of theirs.
  void put(const std::string& key, const std::string& value);
  [[nodiscard]] std::optional<std::string> find(const std::string& key);  // none yet: nothing

  void stop(const std::string& reason);     // the first reason counts
  [[nodiscard]] std::string stop_reason();  // empty: nobody has stopped the run

 private:
  std::unique_ptr<Connection> connection_;
};

}  // namespace plumb::exec

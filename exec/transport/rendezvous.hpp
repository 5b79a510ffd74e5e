// Where ranks leave each other short texts by name, before they have a transport between them.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>

namespace plumb::exec {

// A key-value store that all ranks reach: exec/transport/gloo/run_store.hpp, or a board.
struct Rendezvous {
  std::function<void(const std::string& key, const std::string& value)> put;
  std::function<std::optional<std::string>(const std::string& key)> find;  // none yet: nothing
};

// Of ranks that are threads of one process. Must outlive each rendezvous at it.
class Board {
 public:
  [[nodiscard]] Rendezvous rendezvous() {
    return {.put =
                [this](const std::string& key, const std::string& value) {
                  const std::scoped_lock lock(mutex_);
                  texts_[key] = value;
                },
            .find = [this](const std::string& key) -> std::optional<std::string> {
              const std::scoped_lock lock(mutex_);
              const auto found = texts_.find(key);
              return found == texts_.end() ? std::nullopt : std::optional(found->second);
            }};
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::string> texts_;
};

}  // namespace plumb::exec

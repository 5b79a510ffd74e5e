// Work on independent items by worker processes: for engines of which a process can have one at a time.
#pragma once

#include <cstddef>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "common/base/stop.hpp"

namespace plumb {

struct Workers {
  int processes = 1;                           // one: the caller's own process does it all
  const Stop* stop = nullptr;                  // once it has: workers are ended, what is missing stays missing
  std::function<void(std::size_t)> done = {};  // called with the number of answers so far
};

// The answer of `work(item)` for each item below `count`, by item: the same for any number of processes, if the answers
// depend on nothing but the item. Each process is a fork of the caller and sees all that it had; what it changes is
// lost. No other thread may run meanwhile.
//
// An Error that `work` throws is thrown here, of several that of the smallest item. Throws RunError for a worker that
// crashes, with its signal or status and the item that it was at, and where no process can be made. No worker outlives
// the call, nor the caller (Linux). Ctrl-C is the caller's: it ends the workers through `stop`.
[[nodiscard]] std::vector<std::optional<std::string>> in_workers(const Workers& workers, std::size_t count,
                                                                 const std::function<std::string(std::size_t)>& work);

// A plain value as an answer, and back: both ends are the same program.
template <class Value>
void append_bytes(std::string& to, const Value& value) {
  static_assert(std::is_trivially_copyable_v<Value>);
  to.append(reinterpret_cast<const char*>(&value), sizeof(value));
}
template <class Value>
[[nodiscard]] Value take_bytes(const std::string& from, std::size_t& at) {
  static_assert(std::is_trivially_copyable_v<Value>);
  Value value{};
  std::memcpy(&value, from.data() + at, sizeof(value));
  at += sizeof(value);
  return value;
}

}  // namespace plumb

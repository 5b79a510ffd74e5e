// What LibTorch's errors say, for people.
#pragma once

#include <exception>
#include <string>

namespace plumb::exec {

// Without the page of stack that follows.
[[nodiscard]] inline std::string first_line(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

}  // namespace plumb::exec

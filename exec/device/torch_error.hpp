// What LibTorch's errors say, for people.
#pragma once

#include <cstddef>
#include <exception>
#include <new>
#include <string>

namespace plumb::exec {

// Without the page of stack that follows.
[[nodiscard]] inline std::string first_line(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

// Of work that failed: an allocation that was refused is said in words, everything else by its first line.
[[nodiscard]] inline std::string work_error(const std::exception& error) {
  const std::string line = first_line(error);
  const std::string tried = "you tried to allocate ";
  const std::size_t bytes = line.find(tried);
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return "there is no more memory";
  if (bytes == std::string::npos) return line;
  const std::size_t number = bytes + tried.size();
  return "there is no memory for " + line.substr(number, line.find(' ', number) - number) + " bytes more";
}

}  // namespace plumb::exec

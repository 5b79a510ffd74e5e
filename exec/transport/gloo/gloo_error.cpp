#include "exec/transport/gloo/gloo_error.hpp"

#include <algorithm>
#include <cstddef>

#include "exec/device/torch_error.hpp"

namespace plumb::exec {
namespace {

// How long the "[FILE.cc:LINE] " at the front of `text` is; 0: there is none. IPv6 addresses stand in brackets, too.
std::size_t place_length(std::string_view text) {
  constexpr std::string_view file_end = ".cc:";
  if (!text.starts_with('[')) return 0;
  const std::size_t end = text.find(']');
  if (end == std::string_view::npos) return 0;
  const std::string_view inside = text.substr(0, end);
  const std::size_t file = inside.rfind(file_end);
  if (file == std::string_view::npos) return 0;
  const std::string_view line = inside.substr(file + file_end.size());
  if (line.empty() || !std::ranges::all_of(line, [](char c) { return c >= '0' && c <= '9'; })) return 0;
  return text.substr(end + 1).starts_with(' ') ? end + 2 : end + 1;
}

}  // namespace

std::string gloo_cause(std::string_view line) {
  std::string cause;
  // Errors that pass on another's have a place within, too.
  while (!line.empty()) {
    const std::size_t place = place_length(line);
    if (place == 0) cause += line.front();
    line.remove_prefix(std::max<std::size_t>(place, 1));
  }
  const std::size_t wishes = cause.find("GLHF");
  if (wishes == std::string::npos) return cause;
  cause.resize(wishes);
  const std::size_t last = cause.find_last_not_of(" .,;:");
  cause.resize(last == std::string::npos ? 0 : last + 1);
  return cause;
}

std::string gloo_cause(const std::exception& error) { return gloo_cause(first_line(error)); }

}  // namespace plumb::exec

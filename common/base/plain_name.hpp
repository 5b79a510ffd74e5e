// Names of files in one folder, as files from others give them.
#pragma once

#include <string_view>

namespace plumb {

// Whether it names a file in a folder, and nothing that leads out of it or is the folder itself: no "", ".", "..",
// nothing hidden, no path, no byte 0, at most 255 bytes (NAME_MAX).
[[nodiscard]] constexpr bool is_plain_name(std::string_view name) {
  constexpr std::size_t longest = 255;
  return !name.empty() && name.size() <= longest && name.front() != '.' &&
         name.find_first_of(std::string_view("/\0", 2)) == std::string_view::npos;
}

}  // namespace plumb

// What somebody wrote, as a message may quote it on a terminal.
#pragma once

#include <string>
#include <string_view>

namespace plumb {

// For messages: UTF-8 as it is, but control bytes and what is not UTF-8 as "\x1b".
[[nodiscard]] std::string printable(std::string_view text);

// The first 40 characters of what somebody wrote, printable and on one line; "…" where there are more.
[[nodiscard]] std::string excerpt(std::string_view text);

}  // namespace plumb

// What Gloo's errors say, for people.
#pragma once

#include <exception>
#include <string>
#include <string_view>

namespace plumb::exec {

// The cause alone: without where in Gloo's sources it was thrown ("[/…/pair.cc:553] "), and without what it wishes its
// readers behind it. A text that has neither stays as it is.
[[nodiscard]] std::string gloo_cause(std::string_view line);

// Of an error: its first line, which a page of stack may follow.
[[nodiscard]] std::string gloo_cause(const std::exception& error);

}  // namespace plumb::exec

// What pictures and pages share of HTML and SVG.
#pragma once

#include <string>
#include <string_view>

#include "common/schedule/action.hpp"

namespace plumb::html {

// Text as it may stand in an element or an attribute.
[[nodiscard]] std::string escaped(std::string_view text);

// The class that colours an action, as the style sheet names it: F, B, I, W, R, step, message, reduction.
[[nodiscard]] std::string_view colour_class(ActionKind kind);

}  // namespace plumb::html

#include "common/timeline/chart/markup.hpp"

namespace plumb::html {

std::string escaped(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      case '\'':
        result += "&#39;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

std::string_view colour_class(ActionKind kind) {
  switch (kind) {
    case ActionKind::forward:
      return "F";
    case ActionKind::backward:
      return "B";
    case ActionKind::input_gradient:
      return "I";
    case ActionKind::weight_gradient:
      return "W";
    case ActionKind::recompute:
      return "R";
    case ActionKind::optimizer_step:
      return "step";
    case ActionKind::broadcast:
    case ActionKind::all_reduce:
    case ActionKind::reduce:
    case ActionKind::reduce_tied:
    case ActionKind::reduce_gradient:
    case ActionKind::unshard:
    case ActionKind::clip_gradients:
      return "reduction";
    default:
      return "message";
  }
}

}  // namespace plumb::html

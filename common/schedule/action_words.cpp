#include "common/schedule/action_words.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "common/base/error.hpp"
#include "common/schedule/vocabulary_parts.hpp"

namespace plumb {
namespace {

std::string numbered(const Action& action, int slices) {
  if (slices == 1) return fmt::format("microbatch {}", action.microbatch);
  return fmt::format("slice {} of microbatch {}", action.microbatch % slices, action.microbatch / slices);
}

bool is_numeral(char c) { return c >= '0' && c <= '9'; }
bool is_of_word(char c) { return is_numeral(c) || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_'; }

std::optional<Action> action_named(std::string_view word) {
  if (word.empty() || !is_numeral(word.front()) || std::ranges::all_of(word, is_numeral)) return std::nullopt;
  try {
    return parse_action(word);
  } catch (const InputError&) {
    return std::nullopt;
  }
}

}  // namespace

std::string spelled_out(const Action& action, int slices) {
  const int stage = action.stage;
  switch (action.kind) {
    case ActionKind::forward:
      return fmt::format("stage {}'s forward of {}", stage, numbered(action, slices));
    case ActionKind::backward:
      return fmt::format("stage {}'s backward of {}", stage, numbered(action, slices));
    case ActionKind::input_gradient:
      return fmt::format("stage {}'s input gradient of {}", stage, numbered(action, slices));
    case ActionKind::weight_gradient:
      return fmt::format("stage {}'s weight gradient of {}", stage, numbered(action, slices));
    case ActionKind::recompute:
      return fmt::format("stage {}'s recompute of {}", stage, numbered(action, slices));
    case ActionKind::send_forward:
      return fmt::format("stage {} sends the activation of {} to stage {}", stage, numbered(action, slices),
                         consumer_stage(action));
    case ActionKind::receive_forward:
      return fmt::format("stage {} receives the activation of {} from stage {}", stage, numbered(action, slices),
                         producer_stage(action));
    case ActionKind::send_backward:
      return fmt::format("stage {} sends the gradient of {} to stage {}", stage, numbered(action, slices),
                         consumer_stage(action));
    case ActionKind::receive_backward:
      return fmt::format("stage {} receives the gradient of {} from stage {}", stage, numbered(action, slices),
                         producer_stage(action));
    case ActionKind::evict:
      return fmt::format("stage {}'s activations of {} go to a partner rank", stage, numbered(action, slices));
    case ActionKind::load:
      return fmt::format("stage {}'s activations of {} come back from a partner rank", stage, numbered(action, slices));
    case ActionKind::broadcast:
      return fmt::format("the broadcast of {} to stage {}, a part of the vocabulary", numbered(action, slices), stage);
    case ActionKind::all_reduce:
      return fmt::format("the softmax's statistics of {} over all parts of the vocabulary, of them stage {}",
                         numbered(action, slices), stage);
    case ActionKind::reduce:
      return fmt::format("the sum of {} over all parts of the vocabulary, of them stage {}", numbered(action, slices),
                         stage);
    case ActionKind::reduce_tied:
      return fmt::format("stage {}'s part in the sum of the tied embedding's gradients", stage);
    case ActionKind::reduce_gradient:
      return fmt::format("the sum of stage {}'s gradients over its replicas", stage);
    case ActionKind::unshard:
      return fmt::format("the gathering of stage {}'s weights", stage);
    case ActionKind::reshard:
      return fmt::format("the release of stage {}'s gathered weights", stage);
    case ActionKind::clip_gradients:
      return "the norm of the whole gradient, for clipping";
    case ActionKind::optimizer_step:
      break;
  }
  const std::string step = fmt::format("stage {}'s optimizer step", stage);
  return action.microbatch == no_microbatch ? step : fmt::format("{}, update {}", step, action.microbatch);
}

std::string spelled_out(const Action& action, const Schedule& schedule) {
  const std::string_view part = part_name(schedule, action.stage);
  return spelled_out(action, schedule.slices) + (part.empty() ? "" : fmt::format(" ({})", part));
}

std::string legend_of(std::string_view text, int slices) {
  while (!text.empty()) {
    const std::string_view word =
        text.substr(0, static_cast<std::size_t>(std::ranges::find_if_not(text, is_of_word) - text.begin()));
    if (const std::optional<Action> action = action_named(word)) {
      return fmt::format("({}: {})", word, spelled_out(*action, slices));
    }
    text.remove_prefix(std::max<std::size_t>(word.size(), 1));
  }
  return "";
}

}  // namespace plumb

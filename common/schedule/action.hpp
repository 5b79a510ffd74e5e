// One step of a rank's program: what it does, for which stage, for which microbatch.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

namespace plumb {

// The closed set of what a rank can do. Letters as in torch.distributed.pipelining: B = full backward,
// I = input gradient, W = weight gradient; R = recompute of the forward.
enum class ActionKind : std::uint8_t {
  forward,           // F
  backward,          // B
  input_gradient,    // I
  weight_gradient,   // W
  recompute,         // R
  send_forward,      // SEND_F: the activation of `stage` to the rank of stage+1
  receive_forward,   // RECV_F: the activation for `stage` from the rank of stage−1
  send_backward,     // SEND_B: the input gradient of `stage` to the rank of stage−1
  receive_backward,  // RECV_B: the output gradient for `stage` from the rank of stage+1
  evict,             // EVICT: the activations of `stage` to a partner rank; stands in both ranks' lists
  load,              // LOAD: and back; in both lists as well
  broadcast,         // BCAST: to all parts of a divided vocabulary, each of which names itself: the last stage's output
                     // to the head's parts, the gradient of the first stage's input to the embedding's
  all_reduce,        // ALLRED: the softmax's statistics over all parts of a divided head
  reduce,            // REDUCE: the parts' summands to the one that needs the sum: of the gradient of the last stage's
                     // output to its rank, of the embedding to the first stage's
  reduce_tied,       // REDUCE_TIED: sum of the tied embedding's gradients over the ranks of the first and last stage
  reduce_gradient,   // REDUCE_GRAD: sum of a stage's gradients over the ranks that hold a replica of it
  unshard,           // UNSHARD: gathers a stage's weights, of which each data-parallel rank has or updates a part
  reshard,           // RESHARD
  clip_gradients,    // CLIP: all ranks find the norm of the whole gradient; each names the first stage that it holds
  optimizer_step,    // STEP; with several updates a step: STEP0, STEP1, … count them
};

// When UNSHARD gathers a stage's weights: of ranks that keep a part of them before the stage's first F, of ranks that
// have updated a part each behind all STEPs of the rank (FSDP without resharding; ZeRO-1 and ZeRO-2).
enum class WeightGathering : std::uint8_t { none, before_forward, behind_steps };

// The kinds that compute, each at the place of its own number.
inline constexpr std::array compute_kinds{ActionKind::forward, ActionKind::backward, ActionKind::input_gradient,
                                          ActionKind::weight_gradient, ActionKind::recompute};

inline constexpr std::int32_t no_microbatch = -1;

struct Action {
  ActionKind kind = ActionKind::forward;
  std::int32_t stage = 0;
  std::int32_t microbatch = no_microbatch;  // none for REDUCE_*, UNSHARD, RESHARD, CLIP; of STEP the update, or none

  friend auto operator<=>(const Action&, const Action&) = default;
};

[[nodiscard]] constexpr bool is_compute(ActionKind kind) { return kind <= compute_kinds.back(); }
[[nodiscard]] constexpr bool is_send(ActionKind kind) {
  return kind == ActionKind::send_forward || kind == ActionKind::send_backward;
}
[[nodiscard]] constexpr bool is_receive(ActionKind kind) {
  return kind == ActionKind::receive_forward || kind == ActionKind::receive_backward;
}
[[nodiscard]] constexpr bool is_eviction(ActionKind kind) {
  return kind == ActionKind::evict || kind == ActionKind::load;
}
[[nodiscard]] constexpr bool makes_input_gradient(ActionKind kind) {
  return kind == ActionKind::backward || kind == ActionKind::input_gradient;
}
// The kinds beside which activations that stand on the host go there or come back.
[[nodiscard]] constexpr bool copies_activations(ActionKind kind) {
  return kind == ActionKind::forward || makes_input_gradient(kind);
}
// The kinds that gather weights which data-parallel ranks share out, where each action gathers its own.
[[nodiscard]] constexpr bool gathers_weights(ActionKind kind) {
  return copies_activations(kind) || kind == ActionKind::recompute;
}
// The kinds that name a microbatch, always; they stand before all others.
[[nodiscard]] constexpr bool has_microbatch(ActionKind kind) { return kind <= ActionKind::reduce; }
// What the parts of a divided vocabulary do together for one microbatch.
[[nodiscard]] constexpr bool joins_parts(ActionKind kind) {
  return kind >= ActionKind::broadcast && kind <= ActionKind::reduce;
}

// Activations go forward through the stages, gradients backward: which way goes what F, B, I, a send or a receive hands
// on, and the stages at both ends of it. They may lie outside the pipeline.
[[nodiscard]] constexpr bool goes_forward(ActionKind kind) {
  return kind == ActionKind::forward || kind == ActionKind::send_forward || kind == ActionKind::receive_forward;
}
[[nodiscard]] constexpr std::int32_t producer_stage(const Action& action) {
  return goes_forward(action.kind) ? action.stage - 1 : action.stage + 1;
}
[[nodiscard]] constexpr std::int32_t consumer_stage(const Action& action) {
  return goes_forward(action.kind) ? action.stage + 1 : action.stage - 1;
}

// The receive of a send, the send of a receive.
[[nodiscard]] constexpr Action other_end(const Action& message) {
  const bool sent = is_send(message.kind);
  const ActionKind forward = sent ? ActionKind::receive_forward : ActionKind::send_forward;
  const ActionKind backward = sent ? ActionKind::receive_backward : ActionKind::send_backward;
  return {goes_forward(message.kind) ? forward : backward, sent ? consumer_stage(message) : producer_stage(message),
          message.microbatch};
}

// "F", "SEND_F", "STEP": the letters above.
[[nodiscard]] std::string_view letters(ActionKind kind);

// "3F7", "0SEND_F2", "1STEP".
[[nodiscard]] std::string to_string(const Action& action);

// The same, behind what `text` already holds: a plan's lists are long.
void append_text(std::string& text, const Action& action);

// The inverse of to_string. Throws InputError (where = "action") for anything else.
[[nodiscard]] Action parse_action(std::string_view text);

}  // namespace plumb

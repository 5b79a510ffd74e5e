#include "common/schedule/action.hpp"

#include "common/base/error.hpp"
#include "common/schedule/interchange/interchange.hpp"
#include "tests/catch.hpp"

using namespace plumb;

TEST_CASE("every kind of action survives its text") {
  for (int kind = 0; kind <= static_cast<int>(ActionKind::optimizer_step); ++kind) {
    for (const int stage : {0, 7, 2147483647}) {
      Action action{static_cast<ActionKind>(kind), stage, no_microbatch};
      if (has_microbatch(action.kind)) action.microbatch = 12;
      CHECK(parse_action(to_string(action)) == action);
    }
  }
  CHECK(to_string(Action{ActionKind::forward, 3, 7}) == "3F7");
  CHECK(to_string(Action{ActionKind::send_forward, 0, 2}) == "0SEND_F2");
  CHECK(to_string(Action{ActionKind::optimizer_step, 1, no_microbatch}) == "1STEP");
}

TEST_CASE("activations go forward and gradients backward, and a message has two ends") {
  using enum ActionKind;
  for (const ActionKind kind : {forward, send_forward}) CHECK(consumer_stage({kind, 3, 0}) == 4);
  for (const ActionKind kind : {backward, input_gradient, send_backward}) CHECK(consumer_stage({kind, 3, 0}) == 2);
  for (const ActionKind kind : {forward, receive_forward}) CHECK(producer_stage({kind, 3, 0}) == 2);
  for (const ActionKind kind : {backward, input_gradient, receive_backward}) CHECK(producer_stage({kind, 3, 0}) == 4);
  CHECK(other_end({send_forward, 3, 7}) == Action{receive_forward, 4, 7});
  CHECK(other_end({send_backward, 3, 7}) == Action{receive_backward, 2, 7});
  for (const ActionKind kind : {send_forward, send_backward}) {
    CHECK(other_end(other_end({kind, 3, 7})) == Action{kind, 3, 7});
  }
}

TEST_CASE("every kind that computes stands at the place of its number") {
  for (std::size_t i = 0; i < compute_kinds.size(); ++i) CHECK(static_cast<std::size_t>(compute_kinds[i]) == i);
}

TEST_CASE("malformed actions are refused with the expected form") {
  for (const char* text : {"", "F", "F0", "0", "0F", "0X1", "0f1", "-1F0", "+1F0", "0F-1", "0F+1", "0F1 ", "0F1x",
                           "0UNSHARD1", "99999999999F0", "0F99999999999", "0BW0", "0F1F2"}) {
    CAPTURE(text);
    CHECK_THROWS_AS(parse_action(text), InputError);
  }
  CHECK_THROWS_WITH(parse_action("0Q1"), ContainsSubstring("expected one of F, B, I, W, R"));
  CHECK_THROWS_WITH(parse_action("0F99999999999"), ContainsSubstring("microbatch is too large"));
}

TEST_CASE("a list of actions survives its text, and an error counts to the action") {
  const std::vector<Action> actions = {{ActionKind::forward, 0, 0},
                                       {ActionKind::send_forward, 0, 0},
                                       {ActionKind::backward, 0, 0},
                                       {ActionKind::optimizer_step, 0, no_microbatch}};
  CHECK(to_text(actions) == "0F0 0SEND_F0 0B0 0STEP");
  CHECK(parse_actions(to_text(actions)) == actions);
  CHECK(parse_actions("  0F0\n0SEND_F0\t0B0 0STEP \n") == actions);
  CHECK(parse_actions("").empty());
  CHECK_THROWS_WITH(parse_actions("0F0 0F1 1Z0"), ContainsSubstring("action 3: '1Z0'"));
}

#include "common/schedule/action_words.hpp"

#include <set>

#include "common/schedule/generators/registry.hpp"
#include "tests/catch.hpp"

using namespace plumb;

TEST_CASE("actions in words: stage, what, microbatch, and of a message both ends") {
  const Schedule divided = generate_schedule("1f1b", {.ranks = 2, .microbatches = 1, .vocabulary_barriers = 1});
  CHECK(spelled_out(parse_action("1F0"), divided) == "stage 1's forward of microbatch 0");
  CHECK(spelled_out(parse_action("3F0"), divided) == "stage 3's forward of microbatch 0 (head part)");
  CHECK(spelled_out(parse_action("4F0"), divided) == "stage 4's forward of microbatch 0 (embedding part)");
  CHECK(spelled_out(parse_action("0B1")) == "stage 0's backward of microbatch 1");
  CHECK(spelled_out(parse_action("2W7")) == "stage 2's weight gradient of microbatch 7");
  CHECK(spelled_out(parse_action("1RECV_F0")) == "stage 1 receives the activation of microbatch 0 from stage 0");
  CHECK(spelled_out(parse_action("0SEND_F0")) == "stage 0 sends the activation of microbatch 0 to stage 1");
  CHECK(spelled_out(parse_action("1SEND_B4")) == "stage 1 sends the gradient of microbatch 4 to stage 0");
  CHECK(spelled_out(parse_action("0RECV_B4")) == "stage 0 receives the gradient of microbatch 4 from stage 1");
  CHECK(spelled_out(parse_action("1STEP")) == "stage 1's optimizer step");
  CHECK(spelled_out(parse_action("1STEP2")) == "stage 1's optimizer step, update 2");
}

TEST_CASE("actions of a schedule that cuts sequences count slices") {
  CHECK(spelled_out(parse_action("3F9"), 4) == "stage 3's forward of slice 1 of microbatch 2");
  CHECK(legend_of("step 1, 0B3", 2) == "(0B3: stage 0's backward of slice 1 of microbatch 1)");
}

TEST_CASE("every kind of action has words of its own") {
  std::set<std::string> all;
  for (int kind = 0; kind <= static_cast<int>(ActionKind::optimizer_step); ++kind) {
    all.insert(spelled_out({static_cast<ActionKind>(kind), 1, 2}));
  }
  CHECK(all.size() == static_cast<std::size_t>(ActionKind::optimizer_step) + 1);
}

TEST_CASE("a message's legend is of the first action that it names") {
  CHECK(legend_of("rank 1, step 2, 1RECV_F3 waits for rank 0's 0SEND_F3, 2 actions later there") ==
        "(1RECV_F3: stage 1 receives the activation of microbatch 3 from stage 0)");
  CHECK(legend_of("rank 3: 0B1") == "(0B1: stage 0's backward of microbatch 1)");
  for (const char* none :
       {"", "rank 1: step 2 took 5.0 s", "0F", "10.0.0.2:29500", "80GB", "x0F1 a0F1", "99999999999F1"}) {
    CHECK(legend_of(none).empty());
  }
}

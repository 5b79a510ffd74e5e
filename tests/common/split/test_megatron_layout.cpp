#include "common/split/megatron_layout.hpp"

#include <random>

#include "common/base/error.hpp"
#include "common/schedule/schedule.hpp"
#include "tests/catch.hpp"

using namespace plumb;

// Megatron-LM's documentation: DeepSeek-V3 on PP16 VPP2, and Llama3-70B.
TEST_CASE("the examples of Megatron-LM's documentation are read and placed") {
  const MegatronLayout deepseek = parse_megatron_layout("Et*3|(tt|)*29,m|L");
  REQUIRE(deepseek.layers.size() == 32);
  CHECK(deepseek.layers.front() == 3);
  CHECK(deepseek.layers[29] == 2);
  CHECK(deepseek.layers[30] == 0);
  CHECK(deepseek.mtp_modules == 1);
  CHECK(deepseek.mtp_stage == 30);
  CHECK(megatron_placement(deepseek, 16) == loop_placement(16, 2));
  CHECK(to_megatron_layout(deepseek) == "Et*3|(tt|)*29,m|L");
  const MegatronLayout seventy = parse_megatron_layout("Et*2|(t*2|)*34,t*3|(t*2|)*3,tL");
  CHECK(to_megatron_layout(seventy) == "Ett|(tt|)*34,t*3|(tt|)*3,tL");
}

TEST_CASE("a layout survives its string, empty stages included") {
  std::mt19937 random(3);
  const auto pick = [&](int most) { return std::uniform_int_distribution<int>(0, most)(random); };
  for (int n = 0; n < 500; ++n) {
    MegatronLayout layout;
    for (int stages = 1 + pick(11); stages > 0; --stages) layout.layers.push_back(pick(4) == 0 ? pick(5) : 2);
    if (pick(2) == 0) {
      layout.mtp_modules = 1 + pick(3);
      layout.mtp_stage = static_cast<int>(layout.layers.size()) - 1;
    }
    const std::string text = to_megatron_layout(layout);
    CAPTURE(text);
    CHECK(parse_megatron_layout(text) == layout);
  }
}

TEST_CASE("a split in Megatron's placement has a layout string") {
  CHECK(to_megatron_layout(Split{{6, 7, 7, 5}}, loop_placement(4, 1), 0) == "Et*6|(t*7|)*2,t*5,L");
  CHECK(to_megatron_layout(Split{{1, 1, 1, 1, 1, 0}}, loop_placement(3, 2), 1) == "Et|(t|)*4,mL");
  CHECK(to_megatron_layout(Split{{2}}, {0}, 2) == "EttmmL");
  CHECK_THROWS_WITH(to_megatron_layout(Split{{1, 1, 1, 1}}, wave_placement(2, 2), 0),
                    ContainsSubstring("stage 2 stands on rank 1, but Megatron-LM puts it on rank 0"));
  CHECK_THROWS_WITH(to_megatron_layout(Split{{1, 1, 1}}, {0, 1, 0}, 0), ContainsSubstring("3 stages do not divide"));
  CHECK_THROWS_WITH(to_megatron_layout(Split{{1, 1, 1}}, {0, 1}, 0), ContainsSubstring("there are 2"));
}

TEST_CASE("layouts that Megatron refuses are refused") {
  const auto fails = [](const char* text, const char* with) {
    CAPTURE(text);
    CHECK_THROWS_WITH(parse_megatron_layout(text), ContainsSubstring(with));
  };
  fails("Etm|mL", "split:1:5: MTP modules in a second stage");
  fails("Et|mtL", "split:1:5: a layer behind an MTP module");
  fails("Et|tmt|L", "split:1:6: a layer behind");
  fails("E()*444444444|tL", "split:1:2: nothing stands in this parenthesis");  // took half a minute
  fails("Et|t", "split:1:4: expected L");
  CHECK_THROWS_WITH(megatron_placement(parse_megatron_layout("Et|t|tL"), 2), ContainsSubstring("do not divide"));
  CHECK_THROWS_WITH(megatron_placement(parse_megatron_layout("Et|tm||L"), 2),
                    ContainsSubstring("expected them on the last stage of a rank: 2 or later"));
}

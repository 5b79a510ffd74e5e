#include "common/split/split.hpp"

#include "common/base/error.hpp"
#include "tests/catch.hpp"

using namespace plumb;

TEST_CASE("uniform: the first stages get what is left over") {
  CHECK(describe(uniform_split(10, 4)) == "[3, 3, 2, 2]");
  CHECK(describe(uniform_split(4, 4)) == "[1, 1, 1, 1]");
  CHECK(describe(uniform_split(0, 1)) == "[0]");
  CHECK_THROWS_WITH(uniform_split(6, 8), ContainsSubstring("8 stages are more than the model's 6 layers"));
  CHECK_THROWS_AS(uniform_split(6, 0), InputError);
  CHECK_THROWS_AS(uniform_split(6, -1), InputError);
}

TEST_CASE("the blocks of the stages are the whole chain, embedding first and head last") {
  const Split split{{0, 3, 2, 0}};
  CHECK(blocks_of_stage(split, 0) == BlockRange{0, 1});
  CHECK(blocks_of_stage(split, 1) == BlockRange{1, 4});
  CHECK(blocks_of_stage(split, 2) == BlockRange{4, 6});
  CHECK(blocks_of_stage(split, 3) == BlockRange{6, 7});
  CHECK(blocks_of_stage(Split{{5}}, 0) == BlockRange{0, 7});
  CHECK_THROWS_AS(blocks_of_stage(split, 4), InputError);
}

TEST_CASE("an explicit split must have as many stages and layers as there are, and both numbers are said") {
  CHECK(explicit_split({6, 7, 7, 5}, 25, 4).layers == std::vector<int>{6, 7, 7, 5});
  CHECK(explicit_split({0, 3, 0}, 3, 3).layers == std::vector<int>{0, 3, 0});
  CHECK_THROWS_WITH(explicit_split({7, 7, 7, 7}, 30, 4),
                    ContainsSubstring("sums to 28 layers") && ContainsSubstring("the model has 30"));
  CHECK_THROWS_WITH(explicit_split({15, 15}, 30, 4), ContainsSubstring("for 2 stages, but there are 4"));
  CHECK_THROWS_WITH(explicit_split({15, 0, 15}, 30, 3), ContainsSubstring("stage 1 has 0 layers"));
  CHECK_THROWS_AS(explicit_split({31, -1}, 30, 2), InputError);
  CHECK_THROWS_AS(explicit_split({2147483647, 2147483647}, 30, 2), InputError);
  CHECK_THROWS_AS(explicit_split({1, 1, 1, 1}, 2, 4), InputError);
}

TEST_CASE("Megatron layout strings, its documentation's examples among them") {
  CHECK(megatron_split("Et|(t|)*2t|tL", 5, 5).layers == std::vector<int>{1, 1, 1, 1, 1});
  CHECK(megatron_split("Ettt|tt|L", 5, 3).layers == std::vector<int>{3, 2, 0});
  CHECK(megatron_split("E|t*4,|(tt|)*3,tmmL", 11, 6).layers == std::vector<int>{0, 4, 2, 2, 2, 1});
  const Split deepseek = megatron_split("Et*3|(tt|)*29,L", 61, 31);
  CHECK(deepseek.layers.size() == 31);
  CHECK(deepseek.layers.front() == 3);
  CHECK(deepseek.layers[29] == 2);
  CHECK(deepseek.layers.back() == 0);
  const Split seventy = megatron_split("Et*2|(t*2|)*34,t*3|(t*2|)*3,tL", 80, 40);
  CHECK(seventy.layers[34] == 2);
  CHECK(seventy.layers[35] == 3);
  CHECK(seventy.layers.back() == 1);
}

TEST_CASE("a layout string that cannot be read names its column") {
  const auto fails = [](const char* text, const char* with) {
    CAPTURE(text);
    CHECK_THROWS_WITH(megatron_split(text, 4, 2), ContainsSubstring(with));
  };
  fails("Ett|txL", "split:1:6: unexpected 'x'");
  fails("tt|ttL", "split:1:1: expected E");
  fails("", "split:1:1: expected E");
  fails("Ett|tt", "split:1:6: expected L");
  fails("Ett|ttLL", "split:1:7: L before the end");
  fails("EtE|tttL", "split:1:3: a second E");
  fails("E(tt|tL", "split:1:2: this parenthesis is never closed");
  fails("E((tt)|)*2L", "split:1:3: parentheses do not nest");
  fails("Et*|tttL", "split:1:3: expected a number");
  fails("Et*0|tttL", "split:1:3: expected a number");
  fails("Et*99999999999|L", "split:1:3: expected a number");
  fails("E(t*60000)*60000|L", "longer than");
  fails("Ett|mtt|L", "a layer behind an MTP");
  fails("Ett|ttm|L", "split:1:7: an MTP module on another stage");
  fails("Ett|tL", "sums to 3 layers, but the model has 4");
  fails("Ett|t|tL", "for 3 stages, but there are 2");
}

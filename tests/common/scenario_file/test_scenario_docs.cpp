// docs/reference/keys.md names every key that a scenario, a machine or a software block may have.
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "common/base/error.hpp"
#include "common/scenario/scenario.hpp"
#include "tests/catch.hpp"
#include "tests/common/plan/scenarios.hpp"

using namespace plumb;
using namespace plumb::testing;

namespace {

std::string docs() {
  std::ifstream file(std::string(PLUMB_SOURCE_DIR) + "/docs/reference/keys.md");
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// What the refusal of an unknown key names as possible ones.
std::vector<std::string> keys_of(const std::string& scenario) {
  std::string hint;
  try {
    (void)read_text(scenario);
  } catch (const InputError& error) {
    REQUIRE_THAT(error.problem(), ContainsSubstring("unknown key 'zzzzzzzz'"));
    hint = error.hint();
  }
  const std::string head = "one of: ";
  REQUIRE(hint.starts_with(head));
  std::vector<std::string> keys;
  std::stringstream list(hint.substr(head.size(), hint.find('\n') - head.size()));  // others follow
  for (std::string key; std::getline(list, key, ',');) keys.push_back(key.substr(key.find_first_not_of(' ')));
  return keys;
}

bool is_word_of(const std::string& text, const std::string& word) {
  const auto part = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    if (!part(text[at - 1]) && !part(text[at + word.size()])) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("the page on scenarios names every key") {
  const std::string page = docs();
  REQUIRE_FALSE(page.empty());
  const std::string model = "model: {vocabulary: 64, hidden: 64, heads: 4, ffn: 64, layers: \"full/dense*4\"}\n";
  const std::string machine = "cluster: {machine: {name: x, devices: 2, device: {type: cuda}, ";
  for (const std::string& text :
       {model + "zzzzzzzz: 1\n", model + "training: {zzzzzzzz: 1}\n", model + "training: {lora: {zzzzzzzz: 1}}\n",
        model + "cluster: {zzzzzzzz: 1}\n", model + "layout: {zzzzzzzz: 1}\n",
        model + "layout: {tensor: {zzzzzzzz: 1}}\n", model + "layout: {data: {zzzzzzzz: 1}}\n",
        model + "schedule: {zzzzzzzz: 1}\n", model + "software: {name: x, source: y, zzzzzzzz: 1}\n",
        model + machine + "zzzzzzzz: 1}}\n"}) {
    CAPTURE(text);
    for (const std::string& key : keys_of(text)) {
      CAPTURE(key);
      CHECK(is_word_of(page, key));
    }
  }
}

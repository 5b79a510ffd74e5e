// What tests of the program `plumb` ask of its answers, and a scenario to ask with.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "tests/sim/cli.hpp"

namespace plumb::tests {

using Json = nlohmann::json;

// Parses the whole of standard output: anything beside one object fails.
inline Json json_of(const Outcome& outcome) {
  INFO(outcome.err);
  REQUIRE(outcome.status == 0);
  CHECK(outcome.err.empty());
  return Json::parse(outcome.out);
}

inline void require_keys(const Json& object, const std::vector<std::string>& keys) {
  for (const std::string& key : keys) {
    INFO(key);
    CHECK(object.contains(key));
  }
}

// A problem of the user's: status 2, nothing on standard output, one message that contains all of these.
inline void refuses(const Outcome& outcome, const std::vector<std::string>& parts) {
  INFO(outcome.err);
  CHECK(outcome.status == 2);
  CHECK(outcome.out.empty());
  CHECK(outcome.err.substr(0, 5) == "plumb");
  for (const std::string& part : parts) CHECK_THAT(outcome.err, ContainsSubstring(part));
}

inline std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

inline const std::string small = R"(model:
  name: small
  vocabulary: 128
  hidden: 64
  heads: 4
  ffn: 128
  layers: "full/dense*6"
cluster: {machine: local-cpu, ranks: 2, cores: 2}
training: {sequence: 32, global_batch: 8, microbatch: 1}
layout: {pipeline: 2}
schedule: 1f1b
split: dynamic
)";

}  // namespace plumb::tests

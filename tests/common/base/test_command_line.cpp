#include "common/base/command_line.hpp"

#include <CLI/CLI.hpp>
#include <vector>

#include "common/base/document/number_check.hpp"
#include "tests/catch.hpp"

using namespace plumb;

namespace {

std::string complaint(std::vector<const char*> words) {
  CLI::App app("A tool.", "tool");
  app.require_subcommand(1);
  int steps = 0;
  std::string plan;
  CLI::App& run = add_command(app, "run", "Runs.", "tool run plan.json");
  run.add_option("--steps", steps, "How many.");
  run.add_option("PLAN", plan, "What.")->required();
  words.insert(words.begin(), "tool");
  try {
    static_cast<void>(parse_command_line(app, static_cast<int>(words.size()), words.data()));
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a right command line is accepted") { CHECK(complaint({"run", "plan.json", "--steps", "3"}).empty()); }

TEST_CASE("help in front of a command is its --help") {
  CLI::App app("A tool.", "tool");
  add_command(app, "run", "Runs.", "tool run plan.json");
  for (const std::vector<const char*>& words : {std::vector{"tool", "help", "run"}, std::vector{"tool", "help"}}) {
    CHECK(parse_command_line(app, static_cast<int>(words.size()), words.data()) == ExitStatus::done);
  }
  CHECK_THAT(complaint({"help", "runn"}), ContainsSubstring("did you mean 'run'?"));
}

TEST_CASE("unknown options and commands are named, with the nearest one that exists") {
  CHECK(complaint({"run", "plan.json", "--step", "3"}) ==
        "tool run: unknown option '--step'\n  hint: did you mean '--steps'?");
  CHECK(complaint({"run", "plan.json", "--step=3"}) ==
        "tool run: unknown option '--step'\n  hint: did you mean '--steps'?");
  CHECK(complaint({"rnu", "plan.json"}) == "tool: unknown command 'rnu'\n  hint: did you mean 'run'?");
  CHECK(complaint({"warp"}) == "tool: unknown command 'warp'\n  hint: one of: run");
  CHECK(complaint({"train"}) == "tool: unknown command 'train'\n  hint: did you mean 'run'?");
  CHECK(complaint({"run", "plan.json", "--tensor-parallel-degree", "2"}) ==
        "tool run: unknown option '--tensor-parallel-degree'\n  hint: write it into the scenario, as layout: {tensor: "
        "…}");
  CHECK(complaint({"runn", "plan.json"}) == "tool: unknown command 'runn'\n  hint: did you mean 'run'?");
}

TEST_CASE("a number that is none, or out of its bounds, is refused with what was expected") {
  const auto says = [](const CLI::Validator& check, std::string word) { return check(word); };
  CHECK(says(whole_number(0, 8), "8").empty());
  CHECK(says(number_from(0), "0").empty());
  CHECK(says(number_from(0), "1e300").empty());
  CHECK(says(number_from(0, 1), "0.5").empty());
  CHECK(says(number_above(0), "1e-9").empty());
  for (const std::string word : {"-1", "9", "1.5", "nan", "", "0x2", "4GiB", "99999999999999999999"}) {
    CHECK(says(whole_number(0, 8), word) == "expected a whole number from 0 to 8, found '" + word + "'");
  }
  for (const std::string word : {"nan", "-nan", "inf", "-inf", "-1", "1e999", "", "4GiB", "1,5"}) {
    CHECK(says(number_from(0), word) == "expected a number from 0 on, found '" + word + "'");
    CHECK(says(number_above(0), word) == "expected a number above 0, found '" + word + "'");
  }
  CHECK(says(number_from(0, 1), "nan") == "expected a number from 0 to 1, found 'nan'");
  CHECK(says(number_above(0), "0") == "expected a number above 0, found '0'");
}

TEST_CASE("an unknown option is told before a missing argument") {
  CHECK(complaint({"run", "--step", "3"}) == "tool run: unknown option '--step'\n  hint: did you mean '--steps'?");
}

TEST_CASE("missing, superfluous and malformed arguments are told") {
  CHECK_THAT(complaint({"run"}), ContainsSubstring("PLAN") && ContainsSubstring("see tool run --help"));
  CHECK_THAT(complaint({"run", "a", "b"}), ContainsSubstring("unexpected argument 'b'"));
  CHECK_THAT(complaint({"run", "a", "--steps", "many"}), ContainsSubstring("many"));
  CHECK_THAT(complaint({}), ContainsSubstring("see tool --help"));
}

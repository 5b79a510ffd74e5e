#include "common/base/command_line.hpp"

#include <CLI/CLI.hpp>
#include <vector>

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

TEST_CASE("unknown options and commands are named, with the nearest one that exists") {
  CHECK(complaint({"run", "plan.json", "--step", "3"}) ==
        "tool run: unknown option '--step'\n  hint: did you mean '--steps'?");
  CHECK(complaint({"run", "plan.json", "--step=3"}) ==
        "tool run: unknown option '--step'\n  hint: did you mean '--steps'?");
  CHECK(complaint({"rnu", "plan.json"}) == "tool: unknown command 'rnu'\n  hint: one of: run");
  CHECK(complaint({"runn", "plan.json"}) == "tool: unknown command 'runn'\n  hint: did you mean 'run'?");
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

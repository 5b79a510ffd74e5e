#include "common/base/command_help.hpp"

#include <CLI/CLI.hpp>

#include "common/base/command_line.hpp"
#include "common/base/completion.hpp"
#include "common/base/document/number_check.hpp"
#include "tests/catch.hpp"

using namespace plumb;

namespace {

// A program with one command that has each sort of option.
struct Program {
  Program() {
    CLI::App& run = add_command(app, "run", "Runs a plan.", "tool run plan.json\ntool run - --steps 3");
    run.add_option("PLAN", plan, "The plan.")->required();
    run.add_option("--steps", steps, "Number of steps.")->check(whole_number(1, 9))->capture_default_str();
    run.add_option("--device", device, "Device")->type_name("cpu|cuda");
    run.add_option("--hidden", plan, "Not for users.")->group("");
    complete_program(app);
  }

  CLI::App app{"A tool.", "tool"};
  std::string plan;
  int steps = 10;
  std::string device;
};

std::vector<std::string> words_of(const Completions& found) {
  std::vector<std::string> words;
  for (const CompletedWord& one : found.words) words.push_back(one.word);
  return words;
}

}  // namespace

TEST_CASE("help has usage, arguments, values, defaults and examples") {
  const Program program;
  const CommandHelp help = command_help(program.app);
  REQUIRE(help.commands.size() == 1);
  const std::string text = help_text(help.commands.front());
  CHECK(text.starts_with("Runs a plan.\n\nUsage: tool run [OPTIONS] PLAN\n"));
  CHECK_THAT(text, ContainsSubstring("--steps N") && ContainsSubstring("Number of steps. Default: 10."));
  CHECK_THAT(text, ContainsSubstring("--device cpu|cuda") && ContainsSubstring("  Device.\n"));
  CHECK_THAT(text, ContainsSubstring("Global options:") && ContainsSubstring("--color auto|always|never"));
  CHECK_THAT(text, ContainsSubstring("\nExamples:\n  tool run plan.json\n  tool run - --steps 3\n"));
  CHECK_THAT(text, !ContainsSubstring("--hidden"));
}

TEST_CASE("help is wrapped at the columns that are asked for") {
  const Program program;
  const std::string text = help_text(command_help(program.app).commands.front(), 60);
  std::size_t begin = 0;
  for (std::size_t end = 0; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    CHECK(end - begin <= 60);
  }
}

TEST_CASE("the reference page and the man page have every command and option once") {
  const Program program;
  const CommandHelp help = command_help(program.app);
  const std::string page = command_reference(help);
  CHECK_THAT(page, ContainsSubstring("## tool run\n") && ContainsSubstring("- `--steps N`: Number of steps."));
  const std::string man = man_page(help, "tool 1");
  CHECK(man.starts_with(".TH \"TOOL\" 1 \"\" \"tool 1\"\n.SH NAME\ntool \\- A tool.\n"));
  CHECK_THAT(man, ContainsSubstring(".TP\n\\fB\\-\\-steps\\fR N\nNumber of steps."));
  const std::size_t first = man.find("\\-\\-steps\\fR");
  CHECK(man.find("\\-\\-steps\\fR", first + 1) == std::string::npos);
}

TEST_CASE("completion follows commands, options and their values") {
  const Program program;
  const NamesOfValue names{{"PLAN", [] { return std::vector<CompletedWord>{{"demo", "The demo."}}; }}};
  const auto offered = [&](const std::vector<std::string>& words) { return completions(program.app, words, names); };
  CHECK(words_of(offered({""})) == std::vector<std::string>{"run"});
  CHECK(words_of(offered({"run", "d"})) == std::vector<std::string>{"demo"});
  CHECK(offered({"run", "d"}).files);
  CHECK(words_of(offered({"run", "demo", "d"})).empty());
  CHECK(words_of(offered({"run", "--device", "c"})) == std::vector<std::string>{"cpu", "cuda"});
  CHECK(words_of(offered({"run", "--device=cu"})) == std::vector<std::string>{"--device=cuda"});
  CHECK(words_of(offered({"run", "--device", "=", "cu"})) == std::vector<std::string>{"cuda"});
  CHECK(words_of(offered({"run", "--st"})) == std::vector<std::string>{"--steps"});
  CHECK(words_of(offered({"run", "--hid"})).empty());
  CHECK(words_of(offered({"run", "--steps", "3", "de"})) == std::vector<std::string>{"demo"});
  CHECK(to_text(offered({"run", "d"})) == ":files\ndemo\tThe demo.\n");
}

TEST_CASE("completion scripts are for bash and zsh") {
  CHECK_THAT(completion_script("bash", "plumb-exec"),
             ContainsSubstring("complete -F _plumb_exec_complete plumb-exec\n"));
  CHECK(completion_script("zsh", "plumb").starts_with("#compdef plumb\n"));
  CHECK_THROWS_AS(completion_script("fish", "plumb"), InputError);
}

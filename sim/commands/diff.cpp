#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <iostream>
#include <memory>
#include <optional>
#include <string>

#include "common/base/command_line.hpp"
#include "common/base/json.hpp"
#include "common/base/number_check.hpp"
#include "common/base/program.hpp"
#include "common/base/text.hpp"
#include "common/cost/profile.hpp"
#include "common/timeline/diff.hpp"
#include "common/timeline/trace.hpp"
#include "sim/commands/command.hpp"

namespace plumb::sim {
namespace {

struct DiffOptions {
  std::string predicted;
  std::string measured;
  std::optional<double> fail_above;
  std::string profile_before;
  std::string profile_after;
  bool json = false;
};

// Two calibrations of a machine at rest agree within this; a larger change says nothing about the prediction.
constexpr double steady_fraction = 0.02;

struct Verdict {
  double error_fraction = 0;  // |predicted − measured| / measured
  std::optional<double> moved_fraction;
  bool within = true;

  [[nodiscard]] bool conclusive() const { return !moved_fraction || *moved_fraction <= steady_fraction; }
};

void require_sense(const DiffOptions& options) {
  if (options.profile_before.empty() != options.profile_after.empty()) {
    throw InputError("plumb diff", "--profile-before and --profile-after belong together",
                     "give both, or neither: they say whether the machine itself changed");
  }
}

Verdict judge(const DiffOptions& options, const TimelineDiff& difference) {
  Verdict verdict;
  verdict.error_fraction = std::abs(difference.predicted / difference.measured - 1);
  if (!options.profile_before.empty()) {
    verdict.moved_fraction = moved_fraction(read_profile(options.profile_before), read_profile(options.profile_after));
  }
  verdict.within = !options.fail_above || verdict.error_fraction <= *options.fail_above;
  return verdict;
}

std::string word(const Verdict& verdict) {
  if (!verdict.conclusive()) return "inconclusive";
  return verdict.within ? "within" : "above";
}

Json to_json(const DiffOptions& options, const TimelineDiff& difference, const Verdict& verdict) {
  Json causes = Json::array();
  for (const DiffCause& cause : difference.causes) {
    causes.push_back({{"cause", cause.cause}, {"seconds", cause.seconds.value}, {"actions", cause.actions}});
  }
  Json result{{"predicted_s", difference.predicted.value},
              {"measured_s", difference.measured.value},
              {"replay_s", difference.replay.value},
              {"error_fraction", verdict.error_fraction},
              {"causes", causes}};
  if (verdict.moved_fraction) {
    result["moved_fraction"] = *verdict.moved_fraction;
    result["inconclusive"] = !verdict.conclusive();
  }
  if (options.fail_above) {
    result["fail_above_fraction"] = *options.fail_above;
    result["verdict"] = word(verdict);
  }
  return result;
}

void print_verdict(const DiffOptions& options, const Verdict& verdict) {
  if (!verdict.conclusive()) {
    std::cout << fmt::format(
        "\ninconclusive: the machine itself moved by {} between the two calibrations (more than {})\n",
        percent_text(*verdict.moved_fraction), percent_text(steady_fraction));
  } else if (verdict.moved_fraction) {
    std::cout << fmt::format("\nthe machine moved by {} between the two calibrations: the comparison counts\n",
                             percent_text(*verdict.moved_fraction));
  }
  if (options.fail_above && verdict.conclusive()) {
    std::cout << fmt::format("\n{} the limit of {}\n", verdict.within ? "within" : "above",
                             percent_text(*options.fail_above));
  }
}

void print(const DiffOptions& options, const TimelineDiff& difference, const Verdict& verdict) {
  std::cout << fmt::format("predicted   {}\nmeasured    {}  (median step; prediction off by {})\n",
                           to_text(difference.predicted), to_text(difference.measured),
                           percent_text(verdict.error_fraction));
  std::cout << fmt::format("replay      {}  (the step rebuilt from its own measured durations: {:+.2f}%)\n\n",
                           to_text(difference.replay), (difference.replay / difference.measured - 1) * 100);
  Table table{.header = {"cause", "seconds", "of the step", "largest contributors"},
              .rows = {},
              .left_columns = 1,
              .left_last = true};
  for (const DiffCause& cause : difference.causes) {
    std::string actions;
    for (const std::string& action : cause.actions) actions += (actions.empty() ? "" : "; ") + action;
    const double share = cause.seconds / difference.measured;
    table.rows.push_back({cause.cause, (cause.seconds.value >= 0 ? "+" : "") + to_text(cause.seconds),
                          fmt::format("{:+.1f}%", share * 100), actions});
  }
  const Seconds gap = difference.measured - difference.predicted;
  table.rows.push_back({"sum", (gap.value >= 0 ? "+" : "") + to_text(gap),
                        fmt::format("{:+.1f}%", gap / difference.measured * 100), "measured − predicted"});
  std::cout << to_text(table, colour_allowed(Stream::out));
  std::cout
      << "  Each line puts the measured durations of one kind in place of the predicted ones; + makes the step "
         "longer.\n"
         "  Largest contributors: the actions of that kind whose own duration changed most, those on the critical "
         "path first.\n";
  print_verdict(options, verdict);
}

ExitStatus diff_command(const DiffOptions& options) {
  require_sense(options);
  const Timeline predicted = read_timeline(options.predicted);
  const Timeline measured = read_timeline(options.measured);
  const TimelineDiff difference = diff(predicted, measured);
  const Verdict verdict = judge(options, difference);
  if (options.json) {
    std::cout << to_text(to_json(options, difference, verdict));
  } else {
    print(options, difference, verdict);
  }
  return verdict.conclusive() && !verdict.within ? ExitStatus::answer_is_no : ExitStatus::done;
}

}  // namespace

void add_diff(CLI::App& program, Body& body) {
  CLI::App& command = add_command(program, "diff", "Says what differs between a prediction and a run, where and why.",
                                  "plumb diff predicted.json measured.json --fail-above 0.05");
  const auto options = std::make_shared<DiffOptions>();
  command.add_option("PREDICTED", options->predicted, "What plumb simulate wrote with -o.")->required();
  command.add_option("MEASURED", options->measured, "What plumb-exec run wrote with -o.")->required();
  command
      .add_option("--fail-above", options->fail_above,
                  "Exit status 1 if the predicted step is off by more than this fraction of the measured one: 0.05 "
                  "allows 5%.")
      ->check(number_from(0));
  command.add_option("--profile-before", options->profile_before, "Calibration before the run …");
  command.add_option("--profile-after", options->profile_after,
                     "… and after it: if the machine moved by more than 2%, the answer is `inconclusive`.");
  command.add_flag("--json", options->json, "Writes one JSON object to standard output.");
  command.callback([&body, options] { body = [options] { return diff_command(*options); }; });
}

}  // namespace plumb::sim

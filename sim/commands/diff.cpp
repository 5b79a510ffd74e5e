#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/command_line.hpp"
#include "common/base/document/json.hpp"
#include "common/base/document/number_check.hpp"
#include "common/base/program.hpp"
#include "common/base/text.hpp"
#include "common/block_cost/block_costs.hpp"
#include "common/cost/profile/profile_noise.hpp"
#include "common/timeline/diff/diff.hpp"
#include "common/timeline/statistics.hpp"
#include "common/timeline/trace/trace.hpp"
#include "sim/commands/calibrations.hpp"
#include "sim/commands/command.hpp"
#include "sim/commands/input.hpp"

namespace plumb::sim {
namespace {

struct DiffOptions {
  std::string predicted;
  std::string measured;
  std::optional<double> fail_above;
  Calibrations calibrations;
  bool json = false;
};

// The most that a rank receives in a step, by axis, as either file says; empty where one of them does not.
struct AxisOfBoth {
  const char* name;
  Bytes first;
  Bytes second;
};
std::vector<AxisOfBoth> traffic_of_both(const Timeline& predicted, const Timeline& measured) {
  const std::optional<AxisTraffic> first = most_received(predicted);
  const std::optional<AxisTraffic> second = most_received(measured);
  if (!first || !second) return {};
  return {{"tensor", first->tensor, second->tensor},
          {"data", first->data, second->data},
          {"pipeline", first->pipeline, second->pipeline}};
}

// Communication times of the median step of either file.
struct CommunicationOfBoth {
  CommunicationTimes first;
  CommunicationTimes second;
};
CommunicationOfBoth communication_of_both(const Timeline& predicted, const Timeline& measured) {
  return {communication_times(predicted, median_step(predicted)), communication_times(measured, median_step(measured))};
}

struct Verdict {
  double error_fraction = 0;  // |predicted − measured| / measured
  MachineMove move;
  bool within = true;
};

// Kinds of the two files: a prediction and a run, or two of one kind, such as predictions by two engines.
struct Sides {
  std::string first;
  std::string second;
  std::string second_by;

  [[nodiscard]] bool alike() const { return first == second; }
};

Sides sides_of(const Timeline& first, const Timeline& second) {
  const auto word_of = [](const Timeline& timeline) {
    return timeline.source == TimelineSource::predicted ? "predicted" : "measured";
  };
  return {.first = word_of(first), .second = word_of(second), .second_by = second.producer};
}

Verdict judge(const DiffOptions& options, const TimelineDiff& difference) {
  Verdict verdict;
  verdict.error_fraction = std::abs(difference.prediction_gap());
  verdict.move = machine_move(options.calibrations);
  verdict.within =
      !options.fail_above || verdict.error_fraction <= *options.fail_above || difference.step_within_clocks();
  return verdict;
}

// Sums the time of each kind of compute action of each stage in a step.
std::map<std::pair<int, ActionKind>, Seconds> compute_times(const Timeline& timeline) {
  std::map<std::pair<int, ActionKind>, Seconds> times;
  for (const Event& event : median_step(timeline).events) {
    if (is_compute(event.action.kind)) times[{event.action.stage, event.action.kind}] += event.end - event.start;
  }
  return times;
}

// True if all kinds of action of all stages differ by about the same fraction: the machine has changed, no action.
bool differ_alike(const Timeline& predicted, const Timeline& measured) {
  std::vector<double> changes;
  const auto expected = compute_times(predicted);
  for (const auto& [kind, time] : compute_times(measured)) {
    const auto found = expected.find(kind);
    if (found != expected.end() && found->second > Seconds{}) changes.push_back(time / found->second - 1);
  }
  if (changes.size() < 2) return false;
  const auto [least, most] = std::ranges::minmax(changes);
  return least * most > 0 && std::abs(most - least) < std::abs(most + least) / 4;
}

bool divides_vocabulary(const Timeline& timeline) { return timeline.schedule.vocabulary_barriers > 0; }

// Advice for a run that is far off without an action that stands out.
std::string proposal(const Timeline& predicted) {
  const std::string& provenance = predicted.costs.provenance;
  if (provenance.starts_with(measured_provenance)) {
    return "No kind of action stands out. Was the machine as fast as when it was calibrated? Calibrate before and "
           "after the run, and give both with --profile-before and --profile-after.";
  }
  const std::string unmeasured =
      "No kind of action stands out, and nothing was measured for the prediction: its costs are from " + provenance +
      ". ";
  if (divides_vocabulary(predicted)) {
    return unmeasured +
           "A profile covers whole heads alone, and is refused with a sharded vocabulary. The prediction depends on "
           "the "
           "machine's matmul_efficiency and memory_bandwidth (`machine: {like: …, device: {…}}`). A run of the same "
           "scenario without `vocabulary`, which `plumb-exec calibrate` takes, shows by how much.";
  }
  return unmeasured +
         "`plumb-exec calibrate SCENARIO -o profile.yaml` measures this machine, `plumb plan --profile profile.yaml` "
         "plans by it.";
}

// Note on the exchanges of vocabulary shards, which the two sides count at other ranks; empty if both count alike.
std::string traffic_note(const Timeline& predicted, const Sides& sides) {
  if (sides.alike() || !divides_vocabulary(predicted)) return "";
  return "The exchanges of vocabulary shards are predicted over rings; a run on hosts sends them directly. The rank "
         "that "
         "reduces hidden states then receives all partial sums, though all ranks together receive as much. Of the "
         "statistics, three numbers a token, each rank receives those of all others.";
}

// Remarks on the causes, in whole sentences.
std::vector<std::string> remarks_on(const Timeline& predicted, const Timeline& measured, const TimelineDiff& difference,
                                    const Calibrations& calibrations) {
  std::vector<std::string> remarks;
  if (has_noise_mark(predicted.costs.provenance)) remarks.emplace_back(noise_warning);
  constexpr double far_off_fraction = 0.05;
  const bool one_stands_out = std::ranges::any_of(difference.causes, [&](const DiffCause& cause) {
    return cause.seconds / (difference.measured - difference.predicted) >= 0.5;
  });
  const bool none_stands_out = !one_stands_out || differ_alike(predicted, measured);
  const bool is_run = measured.source == TimelineSource::measured;
  if (is_run && std::abs(difference.prediction_gap()) > far_off_fraction && none_stands_out &&
      calibrations.before.empty()) {
    remarks.push_back(proposal(predicted));
  }
  return remarks;
}

std::string word(const Verdict& verdict) {
  if (!verdict.move.conclusive()) return "inconclusive";
  return verdict.within ? "within" : "above";
}

Json to_json(const std::vector<AxisOfBoth>& traffic) {
  Json json = Json::object();
  for (const AxisOfBoth& axis : traffic) {
    json[axis.name] = {{"predicted_bytes", axis.first.value}, {"measured_bytes", axis.second.value}};
  }
  return json;
}

Json to_json(const CommunicationTime& time) {
  return {{"on_its_way_s", time.on_its_way.value}, {"hidden_s", time.hidden.value}, {"exposed_s", exposed(time).value}};
}

Json to_json(const CommunicationOfBoth& communication) {
  Json json = Json::object();
  for (const CommunicationUse use : communication_uses) {
    const auto at = static_cast<std::size_t>(use);
    json[std::string(key_of(use))] = {{"predicted", to_json(communication.first[at])},
                                      {"measured", to_json(communication.second[at])}};
  }
  return json;
}

void print(const CommunicationOfBoth& communication, const Sides& sides) {
  bool within = false;
  const auto on_its_way = [](const CommunicationTime& time) {
    return time.on_its_way > Seconds{} ? to_text(time.on_its_way) : "–";
  };
  const auto hidden = [](const CommunicationTime& time) {
    return time.on_its_way > Seconds{} ? percent_text(time.hidden / time.on_its_way) : "";
  };
  Table table{.header = {"in flight, mean of the ranks", sides.first, "hidden", sides.second, "hidden"}, .rows = {}};
  for (const CommunicationUse use : communication_uses) {
    const CommunicationTime& first = communication.first[static_cast<std::size_t>(use)];
    const CommunicationTime& second = communication.second[static_cast<std::size_t>(use)];
    if (first.on_its_way == Seconds{} && second.on_its_way == Seconds{}) continue;
    within = within || is_within_actions(use);
    table.rows.push_back(
        {std::string(name_of(use)), on_its_way(first), hidden(first), on_its_way(second), hidden(second)});
  }
  if (table.rows.empty()) return;
  std::cout << "\n" << to_text(table, colour_allowed(Stream::out));
  std::cout << "  Hidden: while the rank itself computes. The rest is exposed.\n";
  if (within) std::cout << "  Within actions: F, B, I and W take longer for what is exposed.\n";
}

void print(const std::vector<AxisOfBoth>& traffic, const Sides& sides, const std::string& note) {
  Table table{.header = {"received by a rank", sides.first, sides.second, "differs"}, .rows = {}};
  for (const auto& [name, first, second] : traffic) {
    if (first == Bytes{} && second == Bytes{}) continue;
    const std::string change = first > Bytes{} ? change_text(second / first - 1) : "";
    table.rows.push_back({name, to_text(first), to_text(second), change});
  }
  if (table.rows.empty()) return;
  std::cout << "\n" << to_text(table, colour_allowed(Stream::out));
  if (!note.empty()) std::cout << "  " << note << "\n";
}

Json to_json(const DiffOptions& options, const TimelineDiff& difference, const Sides& sides, const Verdict& verdict,
             const std::vector<std::string>& remarks) {
  Json causes = Json::array();
  for (const DiffCause& cause : difference.causes) {
    causes.push_back({{"cause", cause.cause}, {"seconds", cause.seconds.value}, {"actions", cause.actions}});
    if (difference.clock_uncertainty > Seconds{}) causes.back()["within_clock_uncertainty"] = cause.within_clocks;
  }
  Json result{{"sources", Json::array({sides.first, sides.second})},
              {"predicted_s", difference.predicted.value},
              {"measured_s", difference.measured.value},
              {"replay_s", difference.replay.value},
              {"error_fraction", verdict.error_fraction},
              {"gap_fraction", difference.prediction_gap()},
              {"causes", causes},
              {"remarks", remarks}};
  if (difference.clock_uncertainty > Seconds{}) result["clock_uncertainty_s"] = difference.clock_uncertainty.value;
  add_to(result, verdict.move);
  if (options.fail_above) {
    result["fail_above_fraction"] = *options.fail_above;
    result["verdict"] = word(verdict);
  }
  return result;
}

void print_verdict(const DiffOptions& options, const Verdict& verdict) {
  if (const std::string moved = describe(verdict.move); !moved.empty()) std::cout << "\n" << moved << "\n";
  if (options.fail_above && verdict.move.conclusive()) {
    std::cout << fmt::format("\n{} the limit of {}\n", verdict.within ? "within" : "above",
                             percent_text(*options.fail_above));
  }
}

std::string how_far(const TimelineDiff& difference, const Sides& sides) {
  const bool of_clocks = difference.step_within_clocks();
  if (!sides.alike()) {
    return of_clocks ? "median step; as predicted, as far as the clocks agree"
                     : "median step; prediction off by " + change_text(difference.prediction_gap());
  }
  return fmt::format("{} too, by {}; the first {}", sides.second, sides.second_by,
                     of_clocks ? "takes as long, as far as the clocks agree"
                               : "differs by " + change_text(difference.prediction_gap()) + " from it");
}

void print_steps(const TimelineDiff& difference, const Sides& sides) {
  std::cout << fmt::format("{:<12}{}\n{:<12}{}  ({})\n", sides.first, to_text(difference.predicted), sides.second,
                           to_text(difference.measured), how_far(difference, sides));
  std::cout << fmt::format("replay      {}  (the step rebuilt from {} durations: {:+.2f}%)\n\n",
                           to_text(difference.replay), sides.alike() ? "the second file's" : "its own measured",
                           100 * difference.replay_gap());
}

void print(const TimelineDiff& difference, const Sides& sides) {
  print_steps(difference, sides);
  Table table{.header = {"cause", "seconds", "of the step", "largest contributors"},
              .rows = {},
              .left_columns = 1,
              .left_last = true};
  for (const DiffCause& cause : difference.causes) {
    std::string actions;
    for (const std::string& action : cause.actions) actions += (actions.empty() ? "" : "; ") + action;
    if (cause.within_clocks) actions = no_finding;
    const double share = cause.seconds / difference.measured;
    table.rows.push_back({cause.cause, (cause.seconds.value >= 0 ? "+" : "") + to_text(cause.seconds),
                          fmt::format("{:+.1f}%", share * 100), actions});
  }
  const Seconds gap = difference.measured - difference.predicted;
  table.rows.push_back({"sum", (gap.value >= 0 ? "+" : "") + to_text(gap),
                        fmt::format("{:+.1f}%", gap / difference.measured * 100),
                        sides.alike() ? "second − first" : "measured − predicted"});
  std::cout << to_text(table, colour_allowed(Stream::out));
  std::cout << fmt::format(
      "  Each line puts the {} durations of one kind in place of the {} ones; + makes the step longer.\n"
      "  Largest contributors: the actions of that kind whose own duration changed most, those on the critical path "
      "first. 0F3 is\n  stage 0's forward of microbatch 3.\n",
      sides.alike() ? "second file's" : "measured", sides.alike() ? "first's" : "predicted");
  if (difference.clock_uncertainty > Seconds{}) {
    std::cout << fmt::format(
        "  {}\n  Such messages, collectives and pauses are summed in one line, a finding only if their sum is "
        "larger.\n",
        clocks_sentence(difference.clock_uncertainty));
  }
}

ExitStatus diff_command(const DiffOptions& options) {
  require_both(options.calibrations, "plumb diff");
  const Timeline predicted = timeline_in(options.predicted);
  const Timeline measured = timeline_in(options.measured);
  const TimelineDiff difference = diff(predicted, measured);
  const Sides sides = sides_of(predicted, measured);
  const Verdict verdict = judge(options, difference);
  const std::vector<std::string> remarks = remarks_on(predicted, measured, difference, options.calibrations);
  const std::vector<AxisOfBoth> traffic = traffic_of_both(predicted, measured);
  const std::string note = traffic_note(predicted, sides);
  const CommunicationOfBoth communication = communication_of_both(predicted, measured);
  if (options.json) {
    Json result = to_json(options, difference, sides, verdict, remarks);
    result["uneven_profile"] = has_noise_mark(predicted.costs.provenance);
    if (!traffic.empty()) result["received_by_axis"] = to_json(traffic);
    if (!traffic.empty() && !note.empty()) result["received_note"] = note;
    result["communication"] = to_json(communication);
    std::cout << to_text(result);
  } else {
    print(difference, sides);
    print(traffic, sides, note);
    print(communication, sides);
    print_verdict(options, verdict);
    for (const std::string& remark : remarks) std::cout << "\n" << remark << "\n";
  }
  return verdict.move.conclusive() && !verdict.within ? ExitStatus::answer_is_no : ExitStatus::done;
}

}  // namespace

void add_diff(CLI::App& program, Body& body) {
  CLI::App& command =
      add_command(program, "diff", "Explains the gap between a prediction and a run: actions, ranks and causes.",
                  "plumb diff predicted.json measured.json --fail-above 0.05");
  const auto options = std::make_shared<DiffOptions>();
  command.add_option("PREDICTED", options->predicted, "Timeline that plumb simulate -o wrote.")->required();
  command.add_option("MEASURED", options->measured, "Timeline that plumb-exec run -o wrote, or another prediction.")
      ->required();
  command
      .add_option("--fail-above", options->fail_above,
                  "Exits with status 1 if the prediction is off by more than this fraction of the measured step: 0.05 "
                  "allows 5%.")
      ->check(number_from(0));
  add_options(command, options->calibrations);
  command.add_flag("--json", options->json, "Prints one JSON object.");
  command.callback([&body, options] { body = [options] { return diff_command(*options); }; });
}

}  // namespace plumb::sim

#include "exec/calibrate/calibrate.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "common/base/command_line.hpp"
#include "common/base/document/number_check.hpp"
#include "common/base/error.hpp"
#include "common/base/files.hpp"
#include "common/base/first_signals.hpp"
#include "common/base/program.hpp"
#include "common/base/text.hpp"
#include "common/cost/profile/profile_noise.hpp"
#include "common/scenario_file/read_scenario.hpp"
#include "common/scenario_file/shipped.hpp"
#include "exec/commands/commands.hpp"
#include "exec/commands/rates_text.hpp"
#include "exec/launch/launch.hpp"
#include "exec/launch/membership.hpp"
#include "exec/launch/signal_watch.hpp"

namespace plumb::exec {
namespace {

using nlohmann::ordered_json;

struct CalibrateArguments {
  std::string scenario;
  std::string output;
  int rounds = CalibrationOptions{}.rounds;
  std::int64_t microbatch = 0;  // 0: the scenario's first
  std::string transport = CalibrationOptions{}.transport;
  std::string device = CalibrationOptions{}.device;
  bool json = false;
};

ordered_json to_json(const Profile& profile) {
  ordered_json json{{"machine", profile.machine},
                    {"samples", profile.samples},
                    {"rejected", profile.rejected},
                    {"busy_ranks", profile.busy_ranks},
                    {"blocks", ordered_json::array()},
                    {"transport", profile.transport},
                    {"latency_s", profile.transfer.latency.value},
                    {"bandwidth_bytes_per_s", profile.transfer.bandwidth.value}};
  for (const MeasuredBlock& block : profile.blocks) {
    json["blocks"].push_back({{"block", block.block},
                              {"forward_s", block.cost.forward.value},
                              {"input_gradient_s", block.cost.input_gradient.value},
                              {"weight_gradient_s", block.cost.weight_gradient.value},
                              {"spread_fraction", block.spread_fraction},
                              {"median_uncertainty_fraction", median_uncertainty_fraction(block, profile.samples)}});
  }
  json["noisy_blocks"] = noisy_blocks_json(profile);
  if (!profile.rates.empty()) json["rates"] = rates_json(profile.rates);
  return json;
}

// Between threads on the host the bandwidth is of a pointer, which takes as long at every size.
std::string transfer_text(const Profile& profile, bool on_host) {
  const std::string latency = to_text(profile.transfer.latency);
  if (on_host && profile.transport == "local") {
    return fmt::format("local transport: {} for a message of any size: its pointer is handed over, nothing is copied\n",
                       latency);
  }
  return fmt::format("{} transport: {} + {}/s\n", profile.transport, latency,
                     to_text(Bytes{static_cast<std::int64_t>(profile.transfer.bandwidth.value)}));
}

void print(const Profile& profile, bool on_host) {
  std::cout << fmt::format("{}: {} rounds kept, {} rejected as disturbed, {} ranks busy at once\n", profile.machine,
                           profile.samples, profile.rejected, profile.busy_ranks);
  Table table{.header = {"block", "F", "I", "W", "spread"}, .rows = {}};
  for (const MeasuredBlock& block : profile.blocks) {
    // A key begins with the kind; the sizes after it fill the profile, and would fill the screen.
    const std::string kind = block.block.substr(0, block.block.find(' '));
    table.rows.push_back({block.count > 1 ? fmt::format("{} ({} times)", kind, block.count) : kind,
                          to_text(block.cost.forward), to_text(block.cost.input_gradient),
                          to_text(block.cost.weight_gradient), percent_text(block.spread_fraction)});
  }
  std::cout << to_text(table, colour_allowed(plumb::Stream::out));
  if (const std::string noise = noise_text(profile); !noise.empty()) std::cout << noise << '\n';
  if (!profile.rates.empty()) std::cout << to_text(rates_table(profile.rates), colour_allowed(plumb::Stream::out));
  std::cout << transfer_text(profile, on_host);
}

// A profile is of one microbatch size: what was asked for, or the first that the scenario has.
void settle_microbatch(Scenario& scenario, std::int64_t asked) {
  std::vector<std::int64_t>& sizes = scenario.microbatches;
  if (asked > 0) {
    if (std::ranges::find(sizes, asked) == sizes.end()) {
      std::string known;
      for (const std::int64_t size : sizes) known += (known.empty() ? "" : ", ") + std::to_string(size);
      throw InputError("--microbatch", fmt::format("the scenario has no microbatch of {}", asked), "it has " + known);
    }
    sizes = {asked};
  } else if (sizes.size() > 1) {
    print_note(fmt::format("measures a microbatch of {}, the first of the scenario's {}; --microbatch names another",
                           sizes.front(), sizes.size()));
    sizes.resize(1);
  }
}

// Calibrates until a signal ends it.
Profile measured(const Scenario& scenario, const CalibrateArguments& arguments) {
  Progress progress("calibrating: rounds");
  std::atomic<int> rounds = 0;
  CalibrationOptions options{.rounds = arguments.rounds, .transport = arguments.transport, .device = arguments.device};
  options.progress = [&](int done, int total) {
    rounds = done;
    progress.update(done, total);
  };
  const auto ended = [&](const std::string& reason) {
    return RunError(
        "", reason,
        fmt::format("after {} of {} rounds of calibration: no profile is made", rounds.load(), options.rounds));
  };
  // A round of large blocks may take minutes, and leaves nothing behind.
  const SignalWatch signals({.on_stuck = [&](const std::string& reason) { leave_at_once(ended(reason)); },
                             .grace = [] { return Seconds{10}; },
                             .twice_is_stuck = true});
  options.stop = signals.stop();
  try {
    return calibrate(scenario, options);
  } catch (const plumb::Stopped&) {
    throw ended(signals.reason());
  }
}

ExitStatus calibrate_command(CalibrateArguments arguments) {
  set_state_at_signal("no profile was made");
  require_one_process(environment_variable, "calibrate");
  arguments.scenario = input_file(arguments.scenario, {ShippedKind::scenario});
  if (!arguments.output.empty()) require_writable(arguments.output, {arguments.scenario});
  Scenario scenario = read_scenario(arguments.scenario);
  settle_microbatch(scenario, arguments.microbatch);
  const Profile profile = measured(scenario, arguments);
  const std::string yaml = to_yaml(profile);
  if (!arguments.output.empty()) write_file(arguments.output, yaml);
  if (arguments.json) {
    std::cout << to_json(profile).dump(2) << '\n';
  } else if (arguments.output.empty()) {
    std::cout << yaml;
    if (const std::string noise = noise_text(profile); !noise.empty()) std::cerr << noise << '\n';
  } else {
    print(profile, arguments.device == "cpu");
    std::cout << "profile: " << arguments.output << '\n';
  }
  return ExitStatus::done;
}

}  // namespace

void add_calibrate(CLI::App& app, Command& chosen) {
  const auto arguments = std::make_shared<CalibrateArguments>();
  CLI::App& command =
      add_command(app, "calibrate", "Measures this machine for a scenario's shapes; it should be idle otherwise.",
                  "plumb-exec calibrate demo -o profile.yaml");
  command
      .add_option("SCENARIO", arguments->scenario,
                  "A file (YAML) or a name of plumb list scenarios: its model and shapes are measured.")
      ->required();
  command.add_option("-o,--output", arguments->output, "Writes the profile to this file; default: standard output.")
      ->type_name("FILE");
  command.add_option("--rounds", arguments->rounds, "Rounds that measure every block once.")
      ->check(whole_number(1, 100'000))
      ->capture_default_str();
  command.add_option("--microbatch", arguments->microbatch, "Microbatch to measure; default: the scenario's first.")
      ->check(whole_number(1, std::int64_t{1} << 31));
  command.add_option("--device", arguments->device, "cpu, or cuda with a CUDA build of LibTorch.")
      ->type_name("cpu|cuda")
      ->capture_default_str();
  command
      .add_option("--transport", arguments->transport,
                  "local or gloo; with --device cuda local if ranks share a GPU, or nccl if each has its own.")
      ->type_name("local|gloo|nccl")
      ->capture_default_str();
  command.add_flag("--json", arguments->json, "Prints one JSON object.");
  command.callback([arguments, &chosen] { chosen = [arguments] { return calibrate_command(*arguments); }; });
}

}  // namespace plumb::exec

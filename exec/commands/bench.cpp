#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "common/base/command_line.hpp"
#include "common/base/program.hpp"
#include "exec/calibrate/calibrate.hpp"
#include "exec/calibrate/device_rates.hpp"
#include "exec/commands/commands.hpp"
#include "exec/commands/rates_text.hpp"
#include "exec/host/host.hpp"
#include "exec/launch/membership.hpp"

namespace plumb::exec {
namespace {

struct BenchArguments {
  std::string transport = "local";
  bool json = false;
};

ExitStatus bench_command(const BenchArguments& arguments) {
  require_one_process(environment_variable, "bench");
  const CalibrationOptions options{.transport = arguments.transport, .device = "cuda"};
  const Host host = this_host();
  const auto devices = devices_to_measure(options, host);
  const Provenance provenance = provenance_of(options, host);
  const DeviceRates measured = measure_rates(devices, {.transport = arguments.transport});
  if (arguments.json) {
    const nlohmann::ordered_json json{{"machine", provenance.machine},
                                      {"versions", provenance.versions},
                                      {"transport", arguments.transport},
                                      {"rates", rates_json(measured.rates)}};
    std::cout << json.dump(2) << '\n';
    return ExitStatus::done;
  }
  std::cout << provenance.machine << "; " << provenance.versions << '\n'
            << to_text(rates_table(measured.rates), colour_allowed(plumb::Stream::out));
  return ExitStatus::done;
}

}  // namespace

void add_bench(CLI::App& app, Command& chosen) {
  const auto arguments = std::make_shared<BenchArguments>();
  CLI::App& command = add_command(app, "bench", "Measures copies, sums and messages of this host's GPUs.",
                                  "plumb-exec bench --transport nccl");
  command
      .add_option("--transport", arguments->transport,
                  "local: two ranks that share a GPU. nccl: all GPUs, with collectives of 2, 4, … ranks (not run on "
                  "several GPUs yet).")
      ->type_name("local|nccl")
      ->capture_default_str();
  command.add_flag("--json", arguments->json, "Prints one JSON object.");
  command.callback([arguments, &chosen] { chosen = [arguments] { return bench_command(*arguments); }; });
}

}  // namespace plumb::exec

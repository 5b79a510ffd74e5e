#include "exec/commands/session_arguments.hpp"

#include <CLI/CLI.hpp>

#include "common/base/document/number_check.hpp"

namespace plumb::exec {

void add_session_arguments(CLI::App& command, SessionArguments& arguments) {
  SessionOptions& options = arguments.options;
  constexpr std::int64_t most_bytes = std::int64_t{1} << 32;
  command.add_option("--steps", options.steps, "Steps to measure")
      ->check(whole_number(1, most_steps_of_run))
      ->capture_default_str();
  command.add_option("--warm-up", options.warm_up, "Steps before them, trained and reported apart")
      ->check(whole_number(0, most_steps_of_run))
      ->capture_default_str();
  command.add_option("--device", options.device, "cpu, or cuda: with a CUDA build of LibTorch")->capture_default_str();
  command
      .add_option("--transport", arguments.transport,
                  "local: ranks are threads; gloo: processes, started here or by torchrun, Slurm or Open MPI; "
                  "nccl: likewise, each with a GPU of its own (not run on several GPUs yet)")
      ->default_str("where one of these has started it gloo, with --device cuda nccl; else local");
  command.add_option("--data", arguments.data, "Text to train on (default: the licence texts of this system)");
  command.add_flag("--deterministic", options.stage.deterministic,
                   "Only operations whose result does not depend on timing");
  command.add_flag("--emulate", options.emulate,
                   "Wait the predicted times instead of computing and of summing and gathering among ranks");
  command.add_option("--emulate-bytes", arguments.emulate_bytes, "With --emulate: bytes of a stage boundary")
      ->check(whole_number(0, most_bytes));
  command
      .add_option("--deadline", arguments.deadline_s, "Seconds that any action may take before its rank counts as hung")
      ->check(number_above(0))
      ->capture_default_str();
}

std::string chosen_transport(const std::string& wanted, const std::string& device, const Environment& environment) {
  const std::optional<Membership> member = membership(environment);
  const bool one_of_several = member && member->size > 1;
  if (wanted.empty() && one_of_several) return device == "cuda" ? "nccl" : "gloo";
  if (wanted.empty()) return "local";
  if (wanted == "local" && one_of_several) {
    throw InputError("--transport",
                     "'local' ranks are threads of one process, but " + member->launcher + " has started " +
                         std::to_string(member->size) + " processes",
                     "each would train alone: leave --transport out, or start one process");
  }
  return wanted;
}

SessionOptions session_options(const SessionArguments& arguments) {
  SessionOptions options = arguments.options;
  options.transport = chosen_transport(arguments.transport, options.device, environment_variable);
  options.deadline = {arguments.deadline_s};
  options.stage.data = arguments.data;
  if (arguments.emulate_bytes) {
    if (!options.emulate) throw InputError("--emulate-bytes", "only with --emulate");
    options.emulate_bytes = *arguments.emulate_bytes;
  }
  return options;
}

}  // namespace plumb::exec

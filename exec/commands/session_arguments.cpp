#include "exec/commands/session_arguments.hpp"

#include <CLI/CLI.hpp>
#include <cmath>

namespace plumb::exec {

void add_session_arguments(CLI::App& command, SessionArguments& arguments) {
  SessionOptions& options = arguments.options;
  command.add_option("--steps", options.steps, "Steps to measure")->capture_default_str();
  command.add_option("--warm-up", options.warm_up, "Steps before them, trained and reported apart")
      ->capture_default_str();
  command.add_option("--device", options.device, "cpu (cuda is not built yet)")->capture_default_str();
  command
      .add_option("--transport", arguments.transport,
                  "local: ranks are threads; gloo: processes, started here or by torchrun, Slurm or Open MPI "
                  "(nccl is not built yet)")
      ->default_str("gloo where one of these has started it, else local");
  command.add_option("--data", arguments.data, "Text to train on (default: the licence texts of this system)");
  command.add_flag("--deterministic", options.stage.deterministic,
                   "Only operations whose result does not depend on timing");
  command.add_flag("--emulate", options.emulate, "Wait the predicted times instead of computing");
  command.add_option("--emulate-bytes", arguments.emulate_bytes, "With --emulate: bytes of a stage boundary");
  command
      .add_option("--deadline", arguments.deadline_s, "Seconds that any action may take before its rank counts as hung")
      ->capture_default_str();
}

std::string chosen_transport(const std::string& wanted, const Environment& environment) {
  const std::optional<Membership> member = membership(environment);
  const bool one_of_several = member && member->size > 1;
  if (wanted.empty()) return one_of_several ? "gloo" : "local";
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
  options.transport = chosen_transport(arguments.transport, environment_variable);
  constexpr int most_steps = 1'000'000;
  if (options.steps < 1 || options.steps > most_steps) throw InputError("--steps", "expected 1 to 1000000");
  if (options.warm_up < 0 || options.warm_up > most_steps) throw InputError("--warm-up", "expected 0 to 1000000");
  if (!std::isfinite(arguments.deadline_s) || arguments.deadline_s <= 0) {
    throw InputError("--deadline", "expected a number of seconds above 0");
  }
  options.deadline = {arguments.deadline_s};
  options.stage.data = arguments.data;
  if (arguments.emulate_bytes != -1) {
    if (!options.emulate) throw InputError("--emulate-bytes", "only with --emulate");
    constexpr std::int64_t most_bytes = std::int64_t{1} << 32;
    if (arguments.emulate_bytes < 0 || arguments.emulate_bytes > most_bytes) {
      throw InputError("--emulate-bytes", "expected 0 to 4294967296");
    }
    options.emulate_bytes = arguments.emulate_bytes;
  }
  return options;
}

}  // namespace plumb::exec

#include "exec/commands/session_arguments.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "common/base/document/number_check.hpp"
#include "common/base/files.hpp"

namespace plumb::exec {

void add_session_arguments(CLI::App& command, SessionArguments& arguments) {
  SessionOptions& options = arguments.options;
  constexpr std::int64_t most_bytes = std::int64_t{1} << 32;
  command.add_option("--steps", options.steps, "Steps to measure.")
      ->check(whole_number(1, most_steps_of_run))
      ->capture_default_str();
  command.add_option("--warm-up", options.warm_up, "Steps before them; they train, and are reported apart.")
      ->check(whole_number(0, most_steps_of_run))
      ->capture_default_str();
  command.add_option("--device", options.device, "cpu, or cuda with a CUDA build of LibTorch.")
      ->type_name("cpu|cuda")
      ->capture_default_str();
  command
      .add_option(
          "--transport", arguments.transport,
          "local: ranks are threads. gloo: ranks are processes, started here or by torchrun, Slurm or Open MPI. "
          "nccl: the same, each with its own GPU (not run on several GPUs yet).")
      ->type_name("local|gloo|nccl")
      ->default_str("local; under one of these launchers gloo, or nccl with --device cuda");
  command.add_option("--data", arguments.data, "Text to train on; default: the licence texts of this system.")
      ->type_name("FILE");
  command.add_flag("--deterministic", options.stage.deterministic,
                   "Uses only operations whose result does not depend on timing.");
  command.add_flag("--emulate", options.emulate,
                   "Sleeps for the predicted time in place of each compute, reduction and gather.");
  command
      .add_option("--emulate-bytes", arguments.emulate_bytes,
                  "With --emulate: size of each message between stages, in bytes.")
      ->check(whole_number(0, most_bytes));
  command
      .add_option("--deadline", arguments.deadline_s,
                  "Seconds that an action may take before its rank counts as hung. A rank that is stopped (SIGSTOP) or "
                  "silent counts as hung after 5 s at most, a silent launcher after 10 s.")
      ->check(number_above(0))
      ->capture_default_str();
  command
      .add_option("--start-deadline", arguments.start_deadline_s,
                  "Seconds for all ranks to join and to connect, and ten times that for each to build its model and "
                  "to read a checkpoint.")
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

void require_readable(const std::vector<std::string>& plans, const SessionOptions& options) {
  if (options.transport == "local" || std::ranges::count(plans, standard_stream) == 0) return;
  throw InputError(standard_stream, "every process reads the plan, and standard input can be read by one",
                   "name a file, or --transport local");
}

SessionOptions session_options(const SessionArguments& arguments) {
  SessionOptions options = arguments.options;
  options.transport = chosen_transport(arguments.transport, options.device, environment_variable);
  options.deadline = {arguments.deadline_s};
  options.start_deadline = {arguments.start_deadline_s};
  options.stage.data = arguments.data;
  if (arguments.emulate_bytes) {
    if (!options.emulate) throw InputError("--emulate-bytes", "only with --emulate");
    options.emulate_bytes = *arguments.emulate_bytes;
  }
  return options;
}

}  // namespace plumb::exec

// Options that `run` and `compare` have in common.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "exec/commands/session.hpp"
#include "exec/launch/membership.hpp"

namespace CLI {
class App;
}

namespace plumb::exec {

inline constexpr std::int64_t most_steps_of_run = 1'000'000;  // of --steps, and of --warm-up

// Values of the command line, which `session_options` turns into options.
struct SessionArguments {
  SessionOptions options;
  std::optional<std::int64_t> emulate_bytes = {};
  double deadline_s = SessionOptions{}.deadline.value;
  double start_deadline_s = SessionOptions{}.start_deadline.value;
  std::string data;
  std::string transport;  // `chosen_transport` decides if it is empty
};

void add_session_arguments(CLI::App& command, SessionArguments& arguments);
// Returns the transport that `--transport` names. Empty text is the default: gloo if a launcher has started ranks, nccl
// if it has on GPUs, else local. Throws InputError for threads in each of several processes.
[[nodiscard]] std::string chosen_transport(const std::string& wanted, const std::string& device,
                                           const Environment& environment);

// Throws InputError if a plan is standard input and several processes would read it.
void require_readable(const std::vector<std::string>& plans, const SessionOptions& options);

[[nodiscard]] SessionOptions session_options(const SessionArguments& arguments);

}  // namespace plumb::exec

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

// What the command line fills in; `session_options` turns it into options.
struct SessionArguments {
  SessionOptions options;
  std::optional<std::int64_t> emulate_bytes = {};
  double deadline_s = 60;
  std::string data;
  std::string transport;  // empty: `chosen_transport` says which
};

void add_session_arguments(CLI::App& command, SessionArguments& arguments);
// What `--transport` means here; empty text is the default: where a launcher has started ranks gloo, on GPUs nccl, else
// local. Throws InputError for threads in each of several processes.
[[nodiscard]] std::string chosen_transport(const std::string& wanted, const std::string& device,
                                           const Environment& environment);

// Throws InputError if a plan is standard input and several processes would read it.
void require_readable(const std::vector<std::string>& plans, const SessionOptions& options);

[[nodiscard]] SessionOptions session_options(const SessionArguments& arguments);

}  // namespace plumb::exec

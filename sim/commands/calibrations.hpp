// Two calibrations around a run: whether the machine itself changed, so that a comparison with a prediction counts.
#pragma once

#include <optional>
#include <string>

#include "common/base/document/json.hpp"

namespace CLI {
class App;
}

namespace plumb::sim {

// Files of --profile-before and --profile-after; both empty: not given.
struct Calibrations {
  std::string before = {};
  std::string after = {};
};

// Change of the machine between the two; nullopt if they were not given.
struct MachineMove {
  std::optional<double> fraction = {};

  [[nodiscard]] bool conclusive() const;
};

void add_options(CLI::App& command, Calibrations& calibrations);

// Throws InputError, of `command`, when only one was given.
void require_both(const Calibrations& calibrations, const std::string& command);

[[nodiscard]] MachineMove machine_move(const Calibrations& calibrations);

// One sentence, without an end; empty where no calibrations were given.
[[nodiscard]] std::string describe(const MachineMove& move);

// `moved_fraction` and `inconclusive`, or nothing.
void add_to(Json& json, const MachineMove& move);

}  // namespace plumb::sim

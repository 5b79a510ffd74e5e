#include "sim/commands/calibrations.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "common/base/error.hpp"
#include "common/base/text.hpp"
#include "common/cost/profile/profile.hpp"

namespace plumb::sim {
namespace {

// Two calibrations of a machine at rest agree within this; a larger change says nothing about the prediction.
constexpr double steady_fraction = 0.02;

}  // namespace

bool MachineMove::conclusive() const { return !fraction || *fraction <= steady_fraction; }

void add_options(CLI::App& command, Calibrations& calibrations) {
  command.add_option("--profile-before", calibrations.before, "Profile calibrated before the run.")->type_name("FILE");
  command
      .add_option(
          "--profile-after", calibrations.after,
          "Profile calibrated after it: the answer is `inconclusive` if the machine's speed changed by more than 2%.")
      ->type_name("FILE");
}

void require_both(const Calibrations& calibrations, const std::string& command) {
  if (calibrations.before.empty() != calibrations.after.empty()) {
    throw InputError(command, "--profile-before and --profile-after belong together",
                     "give both, or neither: they say whether the machine itself changed");
  }
}

MachineMove machine_move(const Calibrations& calibrations) {
  if (calibrations.before.empty()) return {};
  return {.fraction = moved_fraction(read_profile(calibrations.before), read_profile(calibrations.after))};
}

std::string describe(const MachineMove& move) {
  if (!move.fraction) return "";
  if (move.conclusive()) {
    return fmt::format("the machine moved by {} between the two calibrations: the comparison counts",
                       percent_text(*move.fraction));
  }
  return fmt::format("inconclusive: the machine itself moved by {} between the two calibrations (more than {})",
                     percent_text(*move.fraction), percent_text(steady_fraction));
}

void add_to(Json& json, const MachineMove& move) {
  if (!move.fraction) return;
  json["moved_fraction"] = *move.fraction;
  json["inconclusive"] = !move.conclusive();
}

}  // namespace plumb::sim

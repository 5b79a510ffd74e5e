// A whole training from one step's speed: time and device-hours for a number of tokens.
#pragma once

#include <optional>
#include <string>

#include "common/base/document/json.hpp"
#include "common/base/units.hpp"

namespace CLI {
class App;
}

namespace plumb::sim {

// Reads "15T", "300B", "64k" (powers of 1,000) or "1.5e12"; nullopt if it is no positive count.
[[nodiscard]] std::optional<double> token_count(const std::string& text);

struct TrainingRun {
  double tokens = 0;
  double steps = 0;
  Seconds time = {};
  double device_hours = 0;
};

// `devices`: those that the ranks take.
[[nodiscard]] TrainingRun training_run(double tokens, double tokens_per_step, double tokens_per_s, int devices);

// "15.00 T tokens: 3,576,279 steps, 41.2 days, 1,012,000 device-hours on 1024 devices".
[[nodiscard]] std::string describe(const TrainingRun& run, int devices);

// Adds training_tokens, training_steps, training_time_s, training_days and device_hours.
void add_to(Json& json, const TrainingRun& run);

// Adds --tokens; `tokens` stays 0 without it.
void add_tokens(CLI::App& command, double& tokens);

}  // namespace plumb::sim

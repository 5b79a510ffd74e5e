#include "sim/commands/training_run.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "common/base/error.hpp"
#include "common/base/text.hpp"
#include "sim/commands/describe.hpp"

namespace plumb::sim {
namespace {

constexpr double seconds_per_hour = 3600;
constexpr double hours_per_day = 24;

// "1,012,345"
std::string grouped(double number) {
  std::string digits = fmt::format("{:.0f}", number);
  for (std::size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, 1, ',');
  return digits;
}

std::string duration_text(Seconds time) {
  const double hours = time.value / seconds_per_hour;
  if (hours < 1) return to_text(time);
  return hours < 2 * hours_per_day ? fmt::format("{:.1f} hours", hours)
                                   : fmt::format("{:.1f} days", hours / hours_per_day);
}

}  // namespace

std::optional<double> token_count(const std::string& text) {
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [behind, problem] = std::from_chars(text.data(), end, number);
  if (problem != std::errc()) return std::nullopt;
  double factor = 1;
  if (behind != end) {
    if (behind + 1 != end) return std::nullopt;
    for (const auto& [letter, power] : {std::pair{'k', 1e3}, {'K', 1e3}, {'M', 1e6}, {'B', 1e9}, {'T', 1e12}}) {
      if (*behind == letter) factor = power;
    }
    if (factor == 1) return std::nullopt;
  }
  constexpr double most_tokens = 1e18;
  const double tokens = number * factor;
  return tokens >= 1 && tokens <= most_tokens ? std::optional(tokens) : std::nullopt;
}

TrainingRun training_run(double tokens, double tokens_per_step, double tokens_per_s, int devices) {
  const Seconds time{tokens / tokens_per_s};
  return {.tokens = tokens,
          .steps = std::ceil(tokens / tokens_per_step),
          .time = time,
          .device_hours = time.value / seconds_per_hour * devices};
}

std::string describe(const TrainingRun& run, int devices) {
  return fmt::format("{} tokens: {} steps, {}, {} device-hours on {} {}", tokens_text(run.tokens), grouped(run.steps),
                     duration_text(run.time),
                     run.device_hours < 10 ? fmt::format("{:.2f}", run.device_hours) : grouped(run.device_hours),
                     devices, devices == 1 ? "device" : "devices");
}

void add_to(Json& json, const TrainingRun& run) {
  json["training_tokens"] = run.tokens;
  json["training_steps"] = run.steps;
  json["training_time_s"] = run.time.value;
  json["training_days"] = run.time.value / seconds_per_hour / hours_per_day;
  json["device_hours"] = run.device_hours;
}

void add_tokens(CLI::App& command, double& tokens) {
  command
      .add_option_function<std::string>(
          "--tokens",
          [&tokens](const std::string& text) {
            const auto count = token_count(text);
            if (!count) {
              throw InputError("--tokens", "expected a number of tokens, found '" + text + "'",
                               "15T, 300B, 500M or 1.5e12");
            }
            tokens = *count;
          },
          "Tokens of the whole training, such as 15T, 300B or 1.5e12: prints days and device-hours.")
      ->type_name("N");
}

}  // namespace plumb::sim

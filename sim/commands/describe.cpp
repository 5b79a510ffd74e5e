#include "sim/commands/describe.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

#include "common/base/text.hpp"

namespace plumb::sim {

std::string describe(const Recompute& recompute) {
  switch (recompute.mode) {
    case RecomputeMode::none:
      return "none";
    case RecomputeMode::selective:
      return "selective";
    case RecomputeMode::full:
      return "full";
    case RecomputeMode::first_layers:
      return std::to_string(recompute.layers) + " layers";
  }
  return "";
}

std::string describe(const SplitChoice& split) {
  switch (split.method) {
    case SplitMethod::uniform:
      return "uniform";
    case SplitMethod::parameters:
      return "parameters";
    case SplitMethod::dynamic:
      return "dynamic";
    case SplitMethod::counts:
      return plumb::describe(Split{.layers = split.counts});
    case SplitMethod::megatron:
      return split.megatron;
  }
  return "";
}

std::string describe(const ScheduleChoice& choice) {
  return choice.chunks > 1 ? choice.name + ", " + std::to_string(choice.chunks) + " chunks" : choice.name;
}

std::string describe(ElementType type) {
  switch (type) {
    case ElementType::fp32:
      return "fp32";
    case ElementType::bf16:
      return "bf16";
    case ElementType::fp16:
      return "fp16";
    case ElementType::fp64:
      return "fp64";
    case ElementType::int64:
      return "int64";
  }
  return "";
}

std::string tokens_text(double tokens) { return tokens < 1e6 ? fmt::format("{:.0f}", tokens) : count_text(tokens); }

double flops_utilisation(const Plan& plan, Flops model_flops, Seconds iteration) {
  const double possible = plan.cluster.machine.device.peak.value.value * plan.cluster.ranks * iteration.value;
  return possible > 0 ? model_flops.value / possible : 0;
}

int chart_width() {
  constexpr int without_terminal = 100;
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return without_terminal;
  constexpr int beside = 26;  // the rank before a line and its share of busy time behind
  return std::clamp<int>(size.ws_col - beside, 40, 200);
}

}  // namespace plumb::sim

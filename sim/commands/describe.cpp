#include "sim/commands/describe.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

#include "common/base/input_errors.hpp"
#include "common/base/text.hpp"
#include "common/model/model_features.hpp"
#include "common/plan/host_memory.hpp"
#include "common/plan/plan_costs.hpp"
#include "common/plan/plan_features.hpp"
#include "common/scenario/used_features.hpp"
#include "common/schedule/slices.hpp"

namespace plumb::sim {

std::string describe(const SplitChoice& split) {
  if (split.method == SplitMethod::counts) return plumb::describe(Split{.layers = split.counts});
  if (split.method == SplitMethod::megatron) return split.megatron;
  return std::string(name_of(split.method));
}

std::string describe(const ScheduleChoice& choice) {
  std::string text = choice.name;
  if (choice.chunks > 1) text += fmt::format(", {} chunks", choice.chunks);
  if (!choice.slice_tokens.empty()) {
    text += ", slices of " + describe_slices(choice.slice_tokens);
  } else if (choice.slices > 1) {
    text += fmt::format(", {} slices{}", choice.slices, choice.slices_by == SlicesBy::work ? " by work" : "");
  }
  if (choice.group > 0) text += fmt::format(", groups of {}", choice.group);
  if (choice.update_every > 0) text += fmt::format(", an update every {}", choice.update_every);
  if (choice.in_flight > 0) text += fmt::format(", {} in flight", choice.in_flight);
  return choice.overlap ? text + ", overlapped" : text;
}

std::string layout_text(const Layout& layout) {
  std::string text = plumb::describe(layout);
  if (layout.tensor.degree > 1 && layout.tensor.sequence_parallel) text += ", sp";
  const auto nesting = [&](const auto& order) {
    std::vector<MeshAxis> axes;
    for (const MeshAxis axis : order) {
      if (degree(layout, axis) > 1) axes.push_back(axis);
    }
    return axes;
  };
  const std::vector<MeshAxis> axes = nesting(layout.order);
  if (axes == nesting(Layout{}.order)) return text;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    text += (i == 1 ? " innermost, then " : ", ") + std::string(axis_name(axes[i]));
  }
  return text;
}

std::string layers_text(const Split& split) {
  constexpr std::size_t all_shown = 8;
  constexpr std::size_t longest = 36;
  if (split.layers.size() <= all_shown) return plumb::describe(split);
  std::string text;
  for (std::size_t first = 0; first < split.layers.size();) {
    std::size_t last = first;
    while (last < split.layers.size() && split.layers[last] == split.layers[first]) ++last;
    const std::string run = last - first == 1 ? std::to_string(split.layers[first])
                                              : fmt::format("{} × {}", split.layers[first], last - first);
    if (text_width(text) + text_width(run) > longest)
      return fmt::format("[{}, …] {} stages", text, split.layers.size());
    text += (text.empty() ? "" : ", ") + run;
    first = last;
  }
  return "[" + text + "]";
}

std::string plan_title(const Plan& plan) {
  const bool by_name =
      plan.split_method != name_of(SplitMethod::counts) && plan.split_method != name_of(SplitMethod::megatron);
  return fmt::format("{}, {}, {}", plan.name, describe(choice_of(plan.schedule)),
                     by_name ? plan.split_method + " split" : "split " + layers_text(plan.split));
}

std::string tokens_text(double tokens) { return tokens < 1e6 ? fmt::format("{:.0f}", tokens) : count_text(tokens); }

double flops_utilisation(const Plan& plan, Flops model_flops, Seconds iteration) {
  const double possible = plan.cluster.machine.device.peak.value.value * plan.cluster.ranks * iteration.value;
  return possible > 0 ? model_flops.value / possible : 0;
}

std::string link_text(const Link& link) {
  return fmt::format("{} ({}) + bytes / {:.4g} GB/s ({})", to_text(link.latency.value), link.latency.source,
                     link.bandwidth.value.value / 1e9, link.bandwidth.source);
}

std::string host_text(const HostProfile& host) {
  return fmt::format("{} ({}) for each device, updated at {:.4g} GB/s ({}), over {}{}", to_text(host.memory.value),
                     host.memory.source, host.memory_bandwidth.value.value / 1e9, host.memory_bandwidth.source,
                     link_text(host.link),
                     host.devices_per_link > 1 ? fmt::format(", which {} devices share", host.devices_per_link) : "");
}

std::string host_text(const Plan& plan, int rank) {
  const Machine& machine = plan.cluster.machine;
  if (!has_host(machine)) return {};
  const Bytes there = machine.host.memory.value;
  const std::vector<OffloadChoice> choices = offload_choices(plan, rank);
  std::string could;
  for (const OffloadChoice& choice : choices) {
    could +=
        fmt::format("{}offload: {} would free {} of rank {} and keep {} of {} on its host", could.empty() ? "" : "; ",
                    describe(choice.offload), to_text(choice.freed), rank, to_text(choice.on_host), to_text(there));
  }
  if (offloads(plan.training.offload)) {
    const RankOnHost most = fullest_on_host(plan.costs.stages, plan.schedule);
    return fmt::format("{} of {} on the host of rank {}, the fullest; a step {} go down and {} up{}{}",
                       to_text(most.kept), to_text(there), most.rank, to_text(most.down), to_text(most.up),
                       could.empty() ? "" : "; ", could);
  }
  return could;
}

int chart_width() {
  constexpr int without_terminal = 100;
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return without_terminal;
  constexpr int beside = 26;  // the rank before a line and its share of busy time behind
  return std::clamp<int>(size.ws_col - beside, 10, 200);
}

std::string framework_text(const Scenario& scenario) {
  if (!scenario.framework) return "";
  std::string text = "for " + name_of(*scenario.framework) + "; left out: ";
  if (scenario.left_out.empty()) text += "nothing";
  for (std::size_t n = 0; n < scenario.left_out.size(); ++n) text += (n > 0 ? ", " : "") + scenario.left_out[n];
  const std::string like = scenario.framework == Framework::megatron     ? "megatron-2024"
                           : scenario.framework == Framework::torchtitan ? "torchtitan-2025"
                                                                         : "";
  if (!like.empty() && !is_stated(scenario.software))
    text += "; software: " + like + " states its kernels and overlaps";
  return text;
}

std::string experts_text(const Model& model) {
  return features_of(model)[index_of(Feature::experts)] ? "experts whole on each data-parallel rank" : "";
}

void add_framework(Json& json, const Scenario& scenario) {
  if (!scenario.framework) return;
  json["for"] = name_of(*scenario.framework);
  json["left_out"] = scenario.left_out;
}

void add_experts(Json& json, const Model& model) {
  if (const std::string text = experts_text(model); !text.empty()) json["experts"] = text;
}

void require_run_by(const std::string& framework, const Plan& plan, const std::string& file) {
  const auto found = std::ranges::find(framework_names(), framework);
  if (found == framework_names().end()) {
    throw InputError("--for", "there is no framework '" + framework + "'", did_you_mean(framework, framework_names()));
  }
  Scenario scenario = scenario_of(plan);
  scenario.framework = static_cast<Framework>(found - framework_names().begin());
  InputErrors errors;
  for (const Refusal& refusal : refusals(scenario, used_features(plan, has_measured_costs(plan)))) {
    errors.add(InputError(file, refusal.problem, refusal.hint));
  }
  errors.throw_if_any();
}

}  // namespace plumb::sim

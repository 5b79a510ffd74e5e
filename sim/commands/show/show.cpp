#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/command_line.hpp"
#include "common/base/document/json.hpp"
#include "common/base/document/number_check.hpp"
#include "common/base/error.hpp"
#include "common/base/files.hpp"
#include "common/base/program.hpp"
#include "common/base/text.hpp"
#include "common/layout/sharding.hpp"
#include "common/model/files/config_json.hpp"
#include "common/model/files/read_model.hpp"
#include "common/model/lora.hpp"
#include "common/model/operations.hpp"
#include "common/model/parameters.hpp"
#include "common/planner/make_plan.hpp"
#include "common/scenario_file/read_scenario.hpp"
#include "common/scenario_file/shipped.hpp"
#include "common/schedule/vocabulary_parts.hpp"
#include "sim/commands/command.hpp"
#include "sim/commands/describe.hpp"
#include "sim/commands/input.hpp"
#include "sim/commands/profile_remark.hpp"
#include "sim/commands/show/show_numbers.hpp"
#include "sim/commands/show/show_sites.hpp"

namespace plumb::sim {
namespace {

struct ShowOptions {
  std::string input;
  std::int64_t sequence = 0;  // 0: the scenario's, or the model's default
  bool json = false;
  std::string sites = {};    // the block whose sites are shown; empty if none
  TensorLayout tensor = {};  // for a model alone
  std::string tensor_kind = "1d";
  std::int64_t microbatch = 1;
  std::string of_model = {};  // the first given option that only a model alone takes
  std::string svg = {};
  std::string framework = {};
};

// One decoder layer, per token.
struct LayerFacts {
  std::string kind;
  std::int64_t parameters = 0;
  std::int64_t active_parameters = 0;
  std::int64_t trainable_parameters = 0;
  OperationTotals totals;

  bool operator==(const LayerFacts&) const = default;
};

struct Shown {
  Model model;
  std::vector<std::string> remarks;  // on the model's file
  std::optional<Scenario> scenario;
  std::optional<Plan> plan;  // from a plan, or from a scenario that leaves nothing open
  std::int64_t sequence = 0;
  ParameterCounts counts;
  std::optional<Lora> lora;  // then all totals are of what it runs
  std::int64_t trainable = 0;
  std::vector<LayerFacts> layers;
  OperationTotals embedding;
  OperationTotals head;
};

Shown gather(const ShowOptions& options) {
  Shown shown;
  ElementType activations = ElementType::bf16;
  switch (kind_of_input(options.input)) {
    case InputKind::model:
      shown.model = read_model(options.input);
      shown.remarks = model_remarks(options.input);
      break;
    case InputKind::plan:
      shown.plan = read_plan(options.input);
      if (!options.framework.empty()) require_run_by(options.framework, *shown.plan, options.input);
      break;
    case InputKind::machine:
    case InputKind::software:
    case InputKind::scenario: {
      shown.scenario = read_scenario(options.input, {.framework = options.framework});
      const Scenario& scenario = *shown.scenario;
      shown.model = scenario.model;
      shown.remarks = scenario.remarks;
      shown.sequence = scenario.training.sequence;
      activations = scenario.training.precision;
      shown.lora = scenario.training.lora;
      if (combinations(scenario) == 1) {
        shown.plan = make_plan(scenario, {scenario.microbatches[0], scenario.schedules[0], scenario.splits[0]});
      }
    }
  }
  if (shown.plan) {
    shown.model = shown.plan->model;
    shown.sequence = shown.plan->training.sequence;
    activations = shown.plan->training.precision;
    shown.lora = shown.plan->training.lora;
  }
  if (shown.sequence == 0) shown.sequence = default_sequence(shown.model);
  if (options.sequence > 0) shown.sequence = options.sequence;
  shown.counts = count_parameters(shown.model);
  shown.trainable = trained_parameters(shown.model, shown.lora) - (shown.lora ? 0 : shown.counts.mtp);
  const OperationContext context{.sequence = shown.sequence, .activations = activations};
  const auto totals_of = [&](std::vector<Operation> operations, std::size_t block) {
    if (!shown.lora) return totals(operations);
    return totals(with_adapters(std::move(operations), *shown.lora, static_cast<double>(element_bytes(activations)),
                                gradient_goes_below(shown.model, shown.lora, block)));
  };
  for (std::size_t i = 0; i < shown.model.layers.size(); ++i) {
    shown.layers.push_back({.kind = kind_name(shown.model.layers[i]),
                            .parameters = shown.counts.layers[i],
                            .active_parameters = shown.counts.layers_active[i],
                            .trainable_parameters = trained(layer_parameters(shown.model, i), shown.lora),
                            .totals = totals_of(layer_operations(shown.model, i, context), i + 1)});
  }
  shown.embedding = totals_of(embedding_operations(shown.model, context), 0);
  shown.head = totals_of(head_operations(shown.model, context), shown.model.layers.size() + 1);
  return shown;
}

Json to_json(const Shown& shown) {
  Json layers = Json::array();
  for (const LayerFacts& layer : shown.layers) {
    layers.push_back({{"kind", layer.kind},
                      {"parameters", layer.parameters},
                      {"active_parameters", layer.active_parameters},
                      {"trainable_parameters", layer.trainable_parameters},
                      {"forward_flops", layer.totals.forward.value},
                      {"input_gradient_flops", layer.totals.input_gradient.value},
                      {"weight_gradient_flops", layer.totals.weight_gradient.value},
                      {"kept_bytes", layer.totals.kept_bytes}});
  }
  Json result{{"model", shown.model.name},
              {"parameters", shown.counts.total},
              {"trainable_parameters", shown.trainable},
              {"active_parameters", shown.counts.active},
              {"mtp_parameters", shown.counts.mtp},
              {"embedding_parameters", shown.counts.embedding},
              {"head_parameters", shown.counts.head},
              {"final_norm_parameters", shown.counts.final_norm},
              {"sequence", shown.sequence},
              {"remarks", shown.remarks},
              {"text_only", is_text_part(shown.model)},
              {"head_forward_flops", shown.head.forward.value},
              {"layers", layers}};
  if (shown.scenario) add_noise(result, shown.scenario->profile);
  if (shown.scenario) add_framework(result, *shown.scenario);
  if (shown.scenario || shown.plan) add_experts(result, shown.model);
  if (shown.scenario || shown.plan) {
    const Software& software = shown.scenario ? shown.scenario->software : shown.plan->software;
    result["machine"] = (shown.scenario ? shown.scenario->cluster : shown.plan->cluster).machine.name;
    result["software"] = software.name;
    result["software_stated"] = is_stated(software);
  }
  if (shown.plan) {
    result["layout"] = describe(shown.plan->layout);
    result["schedule"] = shown.plan->schedule.name;
    result["chunks"] = shown.plan->schedule.chunks;
    result["split"] = shown.plan->split_method;
    result["split_layers"] = shown.plan->split.layers;
    result["microbatch"] = shown.plan->training.microbatch;
    result["ranks"] = shown.plan->cluster.ranks;
  }
  return result;
}

std::vector<std::string> flops_cells(const OperationTotals& totals) {
  return {to_text(totals.forward), to_text(totals.input_gradient), to_text(totals.weight_gradient),
          to_text(Bytes{std::llround(totals.kept_bytes)})};
}

// Equal layers share a row, which names them: "0-2, 6".
Table layer_table(const Shown& shown) {
  Table table{
      .header = {"layers", "kind", "parameters", "active", "F", "I", "W", "kept"}, .rows = {}, .left_columns = 2};
  const auto add = [&](std::vector<std::string> cells, const OperationTotals& totals) {
    for (std::string& cell : flops_cells(totals)) cells.push_back(std::move(cell));
    table.rows.push_back(std::move(cells));
  };
  add({"", "embedding", count_text(static_cast<double>(shown.counts.embedding)), ""}, shown.embedding);
  std::vector<bool> told(shown.layers.size(), false);
  for (std::size_t i = 0; i < shown.layers.size(); ++i) {
    if (told[i]) continue;
    std::string indices;
    for (std::size_t j = i; j < shown.layers.size(); ++j) {
      if (!(shown.layers[j] == shown.layers[i])) continue;
      std::size_t last = j;
      while (last + 1 < shown.layers.size() && shown.layers[last + 1] == shown.layers[i]) ++last;
      indices += (indices.empty() ? "" : ", ") + std::to_string(j) + (last > j ? "-" + std::to_string(last) : "");
      for (std::size_t k = j; k <= last; ++k) told[k] = true;
      j = last;
    }
    const LayerFacts& layer = shown.layers[i];
    add({indices, layer.kind, count_text(static_cast<double>(layer.parameters)),
         count_text(static_cast<double>(layer.active_parameters))},
        layer.totals);
  }
  add({"", "norm, head, loss", count_text(static_cast<double>(shown.counts.head + shown.counts.final_norm)), ""},
      shown.head);
  return table;
}

std::string number(const Sourced<FlopsPerSecond>& peak) {
  return fmt::format("{:.4g} TFLOP/s ({})", peak.value.value / 1e12, peak.source);
}

void print_cluster(const Cluster& cluster) {
  const Machine& machine = cluster.machine;
  std::cout << fmt::format("\ncluster: {} ranks on {} × {}\n", cluster.ranks, cluster.nodes, machine.name);
  const DeviceProfile& device = machine.device;
  const Bytes framework = device.framework_memory.value;
  std::cout << fmt::format("  device      {}, {} ({})", device.name, to_text(device.memory.value + framework),
                           device.memory.source);
  if (framework > Bytes{}) {
    std::cout << fmt::format(", of which ranks use {}: {} are the framework's ({})", to_text(device.memory.value),
                             to_text(framework), device.framework_memory.source);
  }
  std::cout << '\n';
  std::cout << fmt::format("  peak        {}, of which matmuls reach {} ({})\n", number(machine.device.peak),
                           percent_text(machine.device.matmul_efficiency.value),
                           machine.device.matmul_efficiency.source);
  if (machine.cores > 0)
    std::cout << fmt::format("  cores       {}, shared by the ranks of a machine\n", machine.cores);
  std::cout << "  inside      " << link_text(machine.inside) << '\n';
  if (cluster.nodes > 1) std::cout << "  outside     " << link_text(machine.outside) << '\n';
  if (has_host(machine)) std::cout << "  host        " << host_text(machine.host) << '\n';
}

void print_training(const Training& training, const Layout& layout) {
  std::cout << fmt::format("\ntraining: {} sequences of {} tokens a step, {}, recompute {}{}\n", training.global_batch,
                           training.sequence, name_of(training.precision), describe(training.recompute),
                           offloads(training.offload) ? ", offload " + describe(training.offload) : "");
  const std::string sharing = gathers_in_words(layout);
  std::cout << "layout:   " << describe(layout) << (sharing.empty() ? "" : "; ") << sharing << '\n';
}

template <class Choices>
std::string join(const Choices& choices) {
  std::string text;
  for (const auto& choice : choices) text += (text.empty() ? "" : " | ") + describe(choice);
  return text;
}

void print_open(const Scenario& scenario) {
  std::string microbatches;
  for (const std::int64_t size : scenario.microbatches) {
    microbatches += (microbatches.empty() ? "" : " | ") + std::to_string(size);
  }
  if (layouts_of(scenario).size() > 1) {
    std::cout << fmt::format("open:     {} layouts of {} ranks\n", scenario.layouts.size(), scenario.cluster.ranks);
  }
  if (recomputes_of(scenario).size() > 1) std::cout << "open:     recompute " << join(scenario.recomputes) << '\n';
  if (offloads_of(scenario).size() > 1) std::cout << "open:     offload " << join(scenario.offloads) << '\n';
  std::cout << fmt::format("open:     schedule {}; split {}; microbatch {}\n          plumb plan evaluates them\n",
                           join(scenario.schedules), join(scenario.splits), microbatches);
}

std::string ranks_of_stage(const Schedule& schedule, int stage) {
  std::string text = std::to_string(rank_in_replica(schedule, 0, stage));
  if (replicas(schedule) == 2) text += fmt::format(", {}", rank_in_replica(schedule, 1, stage));
  return text;
}

// Of a part of a vocabulary, what it is a part of.
std::string layers_text(const Plan& plan, int stage) {
  const StageSort sort = sort_of_stage(plan.schedule, stage);
  if (sort == StageSort::layers) return std::to_string(plan.split.layers.at(static_cast<std::size_t>(stage)));
  return sort == StageSort::head ? "head" : "embedding";
}

void print_plan(const Plan& plan) {
  std::cout << fmt::format("schedule: {}, {} microbatches of {}\nsplit:    {} {}\n\n",
                           describe(choice_of(plan.schedule)), whole_microbatches(plan.schedule),
                           plan.training.microbatch, plan.split_method, describe(plan.split));
  Table table{.header = {"stage", "rank", "layers", "parameters", "F", "I", "W", "kept"}, .rows = {}};
  for (std::size_t stage = 0; stage < plan.costs.stages.size(); ++stage) {
    const ComputeCost& cost = plan.costs.stages[stage];
    table.rows.push_back({std::to_string(stage), ranks_of_stage(plan.schedule, static_cast<int>(stage)),
                          layers_text(plan, static_cast<int>(stage)), count_text(static_cast<double>(cost.parameters)),
                          to_text(cost.forward), to_text(cost.input_gradient), to_text(cost.weight_gradient),
                          to_text(cost.kept_bytes)});
  }
  std::cout << to_text(table, colour_allowed(Stream::out));
  if (const std::string host = host_text(plan, 0); !host.empty()) std::cout << "  host: " << host << '\n';
  std::cout << fmt::format("  Times and kept bytes of one {}; costs from {}.\n",
                           plan.schedule.slices > 1 ? "slice, the mean of all" : "microbatch", plan.costs.provenance);
}

// Describes what a block reads and what it returns.
std::string ends_text(const Model& model) {
  if (!model.vision) {
    return fmt::format("vocabulary {}{}", model.vocabulary, model.tied_embeddings ? ", tied embeddings" : "");
  }
  return fmt::format("images {0} × {0} × {1} in {2} patches of {3} × {3}, {4} classes", model.vision->image_size,
                     model.vision->channels, tokens(*model.vision) - 1, model.vision->patch_size,
                     model.vision->classes);
}

void print(const Shown& shown) {
  const auto count = [](std::int64_t value) { return count_text(static_cast<double>(value)); };
  std::cout << fmt::format("{}: {} parameters ({})", shown.model.name, count(shown.counts.total), shown.counts.total);
  if (shown.counts.active != shown.counts.total)
    std::cout << fmt::format(", {} of them active per token", count(shown.counts.active));
  if (shown.lora) {
    std::cout << fmt::format("; frozen but for {} of LoRA ({})", count(shown.trainable), describe(*shown.lora));
  }
  if (shown.counts.mtp > 0) std::cout << fmt::format("; {} more for multi-token prediction", count(shown.counts.mtp));
  std::cout << fmt::format("\n{} layers, hidden {}, {}\n\n", shown.layers.size(), shown.model.hidden,
                           ends_text(shown.model));
  std::cout << to_text(layer_table(shown), colour_allowed(Stream::out));
  std::cout << fmt::format(
      "  F, I, W: FLOPs of forward, input and weight gradient of one token in a sequence of {}; kept: its "
      "activations.\n",
      shown.sequence);
  for (const std::string& remark : shown.remarks) std::cout << fmt::format("  {}: {}.\n", shown.model.name, remark);
  const Scenario* scenario = shown.scenario ? &*shown.scenario : nullptr;
  if (scenario != nullptr || shown.plan) {
    const std::string framework = scenario != nullptr ? framework_text(*scenario) : "";
    for (const std::string& line : {framework, experts_text(shown.model)}) {
      if (!line.empty()) std::cout << "  " << line << '\n';
    }
    print_cluster(scenario != nullptr ? scenario->cluster : shown.plan->cluster);
    print_training(scenario != nullptr ? scenario->training : shown.plan->training,
                   scenario != nullptr ? scenario->layout : shown.plan->layout);
    std::cout << "software: " << describe(scenario != nullptr ? scenario->software : shown.plan->software) << '\n';
  }
  if (shown.plan) {
    print_plan(*shown.plan);
  } else if (scenario != nullptr) {
    print_open(*scenario);
  }
  if (scenario != nullptr) std::cout << noise_line(scenario->profile);
}

// Shows a scenario or plan with its own layout and microbatch, a model alone with those of the options.
ExitStatus show_sites(const Shown& shown, const ShowOptions& options) {
  const Training* training = shown.plan ? &shown.plan->training : shown.scenario ? &shown.scenario->training : nullptr;
  if (!shown.plan && shown.scenario && layouts_of(*shown.scenario).size() > 1) {
    throw InputError("--sites", options.input + " leaves its layout open", "the plan that plumb plan -o writes");
  }
  const Layout* layout = shown.plan ? &shown.plan->layout : shown.scenario ? &shown.scenario->layout : nullptr;
  if (layout != nullptr && !options.of_model.empty()) {
    throw InputError(options.of_model, "is for a model alone; " + options.input + " says its layout and microbatch",
                     "change it there, or show the model");
  }
  Layout of_model;
  of_model.tensor = options.tensor;
  const BlockView view = view_of(
      shown.model, options.sites, layout != nullptr ? *layout : of_model,
      {.sequences = training != nullptr ? training->microbatch : options.microbatch, .sequence = shown.sequence},
      training != nullptr ? training->precision : ElementType::bf16);
  if (!options.svg.empty()) write_file(options.svg, sites_svg(view));
  std::cout << (options.json ? to_text(sites_json(view)) : sites_text(view));
  if (!options.svg.empty() && !options.json) print_written(options.svg);
  return ExitStatus::done;
}

TensorKind kind_named(const std::string& name) {
  const std::vector<std::string>& names = tensor_kind_names();
  const auto found = std::ranges::find(names, name);
  if (found != names.end()) return static_cast<TensorKind>(found - names.begin());
  throw InputError("--tensor-kind", "unknown tensor layout '" + name + "'", did_you_mean(name, names));
}

ExitStatus show_numbers(const ShowOptions& options) {
  if (!options.sites.empty()) throw InputError("--sites", options.input + " is no model, scenario or plan");
  const NumbersFile file = numbers_in(options.input);
  std::cout << (options.json ? to_text(numbers_json(file)) : numbers_text(file));
  return ExitStatus::done;
}

ExitStatus show(const ShowOptions& options) {
  if (options.sites.empty() && !(options.of_model.empty() && options.svg.empty())) {
    throw InputError(options.svg.empty() ? options.of_model : "--svg", "is of the sites of one block",
                     "--sites 0, or --sites embedding or head");
  }
  if (options.tensor.degree == 1 && (options.of_model == "--tensor-kind" || options.of_model == "--tensor-depth" ||
                                     options.of_model == "--sequence-parallel")) {
    throw InputError(options.of_model, "needs more than one rank to divide a layer", "--tensor RANKS");
  }
  const InputKind kind = kind_of_input(options.input);
  if (kind == InputKind::machine || kind == InputKind::software) return show_numbers(options);
  const Shown shown = [&] {
    const SignOfLife alive("show");
    return gather(options);
  }();
  if (!options.sites.empty()) return show_sites(shown, options);
  if (options.json) {
    std::cout << to_text(to_json(shown));
  } else {
    print(shown);
  }
  return ExitStatus::done;
}

}  // namespace

void add_show(CLI::App& program, Body& body) {
  CLI::App& command =
      add_command(program, "show", "Shows a model layer by layer, a scenario, a plan, or the numbers of a machine.",
                  "plumb show deepseek-v3\nplumb show dgx-h100\nplumb show scenario.yaml");
  const auto options = std::make_shared<ShowOptions>();
  command
      .add_option("SCENARIO|MODEL|MACHINE|SOFTWARE", options->input,
                  "A file (YAML, a Hugging Face config.json, a plan) or a name of plumb list; - reads standard input.")
      ->required();
  command.add_flag("--json", options->json, "Prints one JSON object.");
  command
      .add_option("--sequence", options->sequence,
                  "Tokens per sequence, for the FLOPs; default: the scenario's, or the model's.")
      ->check(whole_number(1, std::int64_t{1} << 30));
  command.add_option("--for", options->framework,
                     "Keeps only what this framework runs: megatron, torchtitan or plumb-exec.");
  command.add_option("--sites", options->sites,
                     "Shows the placement and the collectives of one block: a layer's index, embedding or head.");
  command.add_option("--tensor", options->tensor.degree, "With --sites and a model alone: tensor-parallel degree.")
      ->check(whole_number(1, 1 << 20));
  command.add_option("--tensor-kind", options->tensor_kind, "Tensor layout.")->type_name("1d|2d|2.5d|3d");
  command.add_option("--tensor-depth", options->tensor.depth, "Depth of a 2.5d layout.")
      ->check(whole_number(1, 1 << 10));
  command.add_option("--microbatch", options->microbatch, "Sequences of a microbatch.")
      ->check(whole_number(1, 1 << 20));
  command.add_flag("--sequence-parallel", options->tensor.sequence_parallel, "Shards tokens between the matmuls.");
  command.add_option("--svg", options->svg, "With --sites: also writes a picture to this file.")->type_name("FILE");
  command.callback([&body, &command, options] {
    for (const char* name : {"--tensor", "--tensor-kind", "--tensor-depth", "--sequence-parallel", "--microbatch"}) {
      if (options->of_model.empty() && command.count(name) > 0) options->of_model = name;
    }
    body = [options] {
      options->tensor.kind = kind_named(options->tensor_kind);
      options->input = input_file(options->input, {shipped_kinds.begin(), shipped_kinds.end()});
      return show(*options);
    };
  });
}

}  // namespace plumb::sim

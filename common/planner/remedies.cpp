#include "common/planner/remedies.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "common/base/error.hpp"
#include "common/base/text.hpp"
#include "common/layout/sharding.hpp"
#include "common/scenario_file/scenario_rules.hpp"

namespace plumb {
namespace {

constexpr std::size_t most_remedies = 5;
constexpr int most_tensor_factor = 64;

// The first change of a kind that fits is enough.
enum class Change : std::uint8_t {
  split,
  microbatch,
  schedule,
  recompute,
  offload,
  sharding,
  sequence_parallel,
  tensor,
  pipeline
};

// True if the file says `by_stage`, beside which there are no other data degrees.
bool may_have_stage_data(const Scenario& scenario) {
  return has_stage_data(scenario.layout) || scenario.stage_data_pipelines.has_value();
}

struct Proposal {
  Change kind;
  std::string text;
  Scenario scenario;
};

std::int64_t smallest_divisor_above_one(std::int64_t number) {
  for (std::int64_t divisor = 2; divisor * divisor <= number; ++divisor) {
    if (number % divisor == 0) return divisor;
  }
  return number;
}

// Values of the keys of `data` as a file that names each of them says them.
ShardingAsked stated(const DataLayout& data) {
  ShardingAsked asked{.reshard_after_forward = data.reshard_after_forward,
                      .reduces_each_microbatch = data.reduces_each_microbatch,
                      .prefetch = data.prefetch,
                      .layers_per_unit = data.layers_per_unit,
                      .quantized_weights = data.quantized_weights,
                      .secondary_shard = data.secondary_shard,
                      .quantized_gradients = data.quantized_gradients};
  if (data.sharding == Sharding::hsdp) {
    asked.shard = data.shard;
    asked.replicate = data.replicate;
  }
  return asked;
}

// Returns the layout with another data degree and groups that divide it: HSDP's copies and the groups of ZeRO++ shrink
// to a common divisor. nullopt if no such groups are left.
std::optional<Layout> with_data_degree(Layout layout, int degree) {
  DataLayout& data = layout.data;
  data.degree = degree;
  ShardingAsked asked = stated(data);
  if (data.sharding == Sharding::hsdp) {
    asked.shard = std::gcd(data.shard, degree);
    asked.replicate = degree / *asked.shard;
    if (*asked.shard == 1) data.sharding = Sharding::fsdp;  // one rank has a whole copy
    if (*asked.shard == 1 && degree > 1) return std::nullopt;
    data.shard = data.replicate = 1;
  }
  for (std::optional<int>* group : {&asked.secondary_shard, &asked.quantized_gradients}) {
    if (**group == 0) continue;
    **group = std::gcd(**group, degree);
    if (**group == 1 && degree > 1) return std::nullopt;  // no file can say so
  }
  data.reshard_after_forward = data.reduces_each_microbatch = data.quantized_weights = false;
  data.secondary_shard = data.quantized_gradients = 0;
  data.prefetch = data.layers_per_unit = 1;
  return settled_sharding(layout, asked);
}

std::string yes_or_no(bool value) { return value ? "true" : "false"; }

// The keys of `data` that a file must have for `after` to be read, whatever other keys of it gave `before`.
std::vector<std::string> data_keys(const Layout& before, const Layout& after) {
  const DataLayout& was = before.data;
  const DataLayout& is = after.data;
  std::vector<std::string> keys;
  if (is.degree != was.degree) keys.push_back(fmt::format("degree: {}", is.degree));
  const bool of_data_alone = after.pipeline == before.pipeline && after.tensor == before.tensor;
  const bool quantizes = has_zero_plus_plus(was) || has_zero_plus_plus(is);
  // The groups of `zero++` follow from the degrees, and a second copy among all ranks is read as none.
  const bool may_name_all = may_quantize(was.sharding) && was.reshard_after_forward && is.degree != was.degree;
  const bool other_groups = (quantizes && before != after) || may_name_all;
  // A file's hsdp with a copy on each rank was read as no sharding.
  const bool may_have_copies = was.sharding == Sharding::hsdp || (was.sharding == Sharding::none && was.degree > 1);
  const bool other_copies = may_have_copies && is.degree != was.degree;
  if (is.sharding == Sharding::hsdp && (is.shard != was.shard || is.replicate != was.replicate || other_copies)) {
    keys.push_back(fmt::format("sharding: {{kind: hsdp, shard: {}, replicate: {}}}", is.shard, is.replicate));
  } else if (is.sharding != was.sharding || other_groups || of_data_alone || other_copies) {
    keys.push_back("sharding: " + name_of(is.sharding));
  }
  ShardingAsked asked = stated(is);
  asked.reshard_after_forward = asked.reduces_each_microbatch = std::nullopt;
  const Layout usual = settled_sharding(after, asked).value_or(after);  // without the two keys
  const bool may_say_reshard = may_reshard(was.sharding) && is.reshard_after_forward != was.reshard_after_forward;
  const bool shares = state_shards(after) > 1;
  if (shares && may_reshard(is.sharding) &&
      (other_groups || may_say_reshard || is.reshard_after_forward != usual.data.reshard_after_forward)) {
    keys.push_back("reshard_after_forward: " + yes_or_no(is.reshard_after_forward));
  }
  const bool may_say_reduce =
      may_reduce_each_microbatch(was.sharding) && is.reduces_each_microbatch != was.reduces_each_microbatch;
  if (shares && may_reduce_each_microbatch(is.sharding) &&
      (may_say_reduce || is.reduces_each_microbatch != usual.data.reduces_each_microbatch)) {
    keys.push_back(std::string("reduce: ") + (is.reduces_each_microbatch ? "each_microbatch" : "last_microbatch"));
  }
  if (!other_groups || !shares || !may_quantize(is.sharding)) return keys;
  // No number stands for a group of one: `true` is the ranks of one machine.
  const auto group = [](int size) { return size > 1 ? std::to_string(size) : yes_or_no(size == 1); };
  keys.push_back("secondary_shard: " + group(is.secondary_shard));
  if (!quantizes) return keys;
  keys.push_back("quantized_weights: " + yes_or_no(is.quantized_weights));
  keys.push_back("quantized_gradients: " + group(is.quantized_gradients));
  return keys;
}

// "layout: {pipeline: 4, tensor: {degree: 2}}".
std::string layout_text(const Layout& before, const Layout& after) {
  std::vector<std::string> keys;
  if (after.pipeline != before.pipeline) keys.push_back(fmt::format("pipeline: {}", after.pipeline));
  std::vector<std::string> tensor;
  if (after.tensor.degree != before.tensor.degree) tensor.push_back(fmt::format("degree: {}", after.tensor.degree));
  if (after.tensor.sequence_parallel != before.tensor.sequence_parallel) {
    tensor.push_back("sequence_parallel: " + yes_or_no(after.tensor.sequence_parallel));
  }
  if (!tensor.empty()) keys.push_back(fmt::format("tensor: {{{}}}", fmt::join(tensor, ", ")));
  const std::vector<std::string> data = data_keys(before, after);
  if (!data.empty()) keys.push_back(fmt::format("data: {{{}}}", fmt::join(data, ", ")));
  return fmt::format("layout: {{{}}}", fmt::join(keys, ", "));
}

// Gives the cluster as many ranks; returns the keys that say so, empty if it has them.
std::string set_ranks(Cluster& cluster, int needed) {
  if (needed == cluster.ranks) return "";
  cluster.ranks = needed;
  const std::string text = fmt::format("ranks: {}}}", needed);
  Machine& machine = cluster.machine;
  const int nodes = (needed + machine.devices - 1) / machine.devices;
  if (machine.device.type == DeviceType::cpu) {
    machine.devices = std::max(1, (needed + cluster.nodes - 1) / cluster.nodes);  // as a file is read
    return "cluster: {" + text;
  }
  if (nodes <= cluster.nodes) return "cluster: {" + text;
  cluster.nodes = nodes;
  return fmt::format("cluster: {{nodes: {}, {}", nodes, text);
}

// True if the file may have left out its batch.
bool may_be_default_batch(const Scenario& scenario) {
  const std::int64_t batch = scenario.training.global_batch;
  return batch == default_batch(scenario, 1) ||
         batch == default_batch(scenario, std::ranges::max(scenario.microbatches));
}

// A scenario in which nothing but `scenario.layout` and sizes of microbatches changed, with the text that says it.
Proposal changed(Change kind, const Scenario& before, Scenario after, std::string text) {
  std::vector<std::string> beside;
  if (std::string cluster = set_ranks(after.cluster, ranks(after.layout)); !cluster.empty()) {
    beside.push_back(std::move(cluster));
  }
  after.layouts = {after.layout};
  const std::int64_t batch_of_file = default_batch(after, std::ranges::max(after.microbatches));
  if (may_be_default_batch(before) && after.training.global_batch != batch_of_file) {
    beside.push_back(fmt::format("training: {{global_batch: {}}}", after.training.global_batch));
  }
  if (!beside.empty()) text += fmt::format(" with {}", fmt::join(beside, " and "));
  return {kind, std::move(text), std::move(after)};
}

Proposal with_layout(Change kind, const Scenario& scenario, const Layout& layout) {
  Scenario after = scenario;
  after.layout = layout;
  return changed(kind, scenario, std::move(after), layout_text(scenario.layout, layout));
}

// The tensor degree times `factor`, of data-parallel ranks if that divides them, else of more ranks.
std::optional<Proposal> with_tensor(const Scenario& scenario, int factor) {
  Layout layout = scenario.layout;
  if (layout.tensor.degree > scenario.cluster.machine.devices / factor) return std::nullopt;  // stays in a machine
  layout.tensor.degree *= factor;
  const int data = layout.data.degree;
  const std::optional<Layout> settled = with_data_degree(layout, data % factor == 0 ? data / factor : data);
  return settled ? std::optional(with_layout(Change::tensor, scenario, *settled)) : std::nullopt;
}

// The modes that recompute more than the scenario does, from little to all.
std::vector<Proposal> with_recompute_modes(const Scenario& scenario) {
  const Recompute& now = scenario.training.recompute;
  std::vector<Proposal> list;
  const auto add = [&](const Recompute& recompute) {
    list.push_back({Change::recompute, "recompute: " + describe(recompute), scenario});
    list.back().scenario.training.recompute = recompute;
    list.back().scenario.recomputes = {recompute};
  };
  if (now.mode == RecomputeMode::full) return list;
  if (now.mode == RecomputeMode::none && !scenario.profile) add({.mode = RecomputeMode::selective});
  if (scenario.software.recompute_unit == RecomputeUnit::stage) {
    add({.mode = RecomputeMode::full});
    return list;
  }
  if (now.mode == RecomputeMode::every_nth_layer) {
    for (int n = now.layers - 1; n > 1; --n) {
      add({.mode = RecomputeMode::every_nth_layer, .layers = n});
    }
    add({.mode = RecomputeMode::full});
    return list;
  }
  const int stages = stages_of(scenario.schedules.front(), scenario.layout.pipeline);
  const int most = (static_cast<int>(scenario.model.layers.size()) + stages - 1) / stages;
  for (int layers = now.layers + 1; layers < most; ++layers) {
    if (now.mode == RecomputeMode::selective) break;  // the other layers would save all
    add({.mode = RecomputeMode::first_layers, .layers = layers});
  }
  add({.mode = RecomputeMode::full});
  return list;
}

// Rules that shard more than the scenario's does; then weights gathered and gradients reduced in each microbatch,
// HSDP's copies as one, weights without a second copy.
std::vector<Proposal> with_shardings(const Scenario& scenario) {
  std::vector<Proposal> list;
  const DataLayout& now = scenario.layout.data;
  if (now.degree == 1 || may_have_stage_data(scenario)) return list;
  const auto add = [&](Sharding sharding, const ShardingAsked& asked) {
    Layout layout = scenario.layout;
    layout.data = {.degree = now.degree, .sharding = sharding};
    const std::optional<Layout> settled = settled_sharding(layout, asked);
    const bool new_one = settled && settled->data != now && (list.empty() || list.back().scenario.layout != *settled);
    if (new_one) list.push_back(with_layout(Change::sharding, scenario, *settled));
  };
  ShardingAsked units;
  if (now.reshard_after_forward) {
    units.prefetch = now.prefetch;
    units.layers_per_unit = now.layers_per_unit;
  }
  for (const Sharding sharding : {Sharding::zero1, Sharding::zero2, Sharding::zero3}) {
    if (sharding > now.sharding) add(sharding, units);
  }
  if (has_zero_plus_plus(now)) {
    ShardingAsked asked = stated(now);
    asked.secondary_shard = 0;
    asked.reshard_after_forward = asked.reduces_each_microbatch = true;
    add(now.sharding, asked);
    return list;
  }
  units.reshard_after_forward = units.reduces_each_microbatch = true;
  add(now.sharding == Sharding::hsdp ? Sharding::fsdp : std::max(now.sharding, Sharding::zero3), units);
  return list;
}

// More on the host than any choice of the scenario has there, in the order of what it costs.
std::vector<Proposal> with_offloads(const Scenario& scenario) {
  std::vector<Proposal> list;
  if (!has_host(scenario.cluster.machine)) return list;
  const std::vector<Offload> tried = offloads_of(scenario);
  for (const Offload& offload :
       {Offload{.optimizer = true}, Offload{.parameters = true}, Offload{.activations = true},
        Offload{.optimizer = true, .parameters = true}, Offload{.optimizer = true, .activations = true},
        Offload{.optimizer = true, .activations = true, .parameters = true}}) {
    const auto is_more = [&](const Offload& other) {
      return offload != other && offload.optimizer >= other.optimizer && offload.activations >= other.activations &&
             offload.parameters >= other.parameters;
    };
    if (!std::ranges::all_of(tried, is_more)) continue;
    if (offload.parameters && !gathers_in_actions(scenario.layout)) continue;
    list.push_back({Change::offload, "offload: " + describe(offload), scenario});
    list.back().scenario.training.offload = offload;
    list.back().scenario.offloads = {offload};
  }
  return list;
}

// Changes of one block each, the cheapest in time first, each starting from the scenario as it is.
std::vector<Proposal> proposals(const Scenario& scenario) {
  std::vector<Proposal> list;
  for (const SplitMethod method : {SplitMethod::dynamic, SplitMethod::uniform}) {
    const SplitChoice split{.method = method};
    if (std::ranges::find(scenario.splits, split) != scenario.splits.end()) continue;
    list.push_back({Change::split, "split: " + std::string(name_of(method)), scenario});
    list.back().scenario.splits = {split};
  }
  std::int64_t microbatch = std::ranges::min(scenario.microbatches);
  while (microbatch > 1 && !scenario.profile) {
    microbatch /= smallest_divisor_above_one(microbatch);
    Scenario after = scenario;
    after.training.microbatch = microbatch;
    after.microbatches = {microbatch};
    list.push_back(changed(Change::microbatch, scenario, std::move(after), fmt::format("microbatch: {}", microbatch)));
  }
  const ScheduleChoice one_f_one_b{.name = "1f1b", .chunks = 1};
  if (std::ranges::find(scenario.schedules, one_f_one_b) == scenario.schedules.end()) {
    list.push_back({Change::schedule, "schedule: 1f1b", scenario});
    list.back().scenario.schedules = {one_f_one_b};
  }
  const auto append = [&](std::vector<Proposal> more) { std::ranges::move(more, std::back_inserter(list)); };
  append(with_recompute_modes(scenario));
  append(with_offloads(scenario));
  append(with_shardings(scenario));
  if (scenario.layout.tensor.degree > 1 && !scenario.layout.tensor.sequence_parallel) {
    Layout layout = scenario.layout;
    layout.tensor.sequence_parallel = true;
    list.push_back(with_layout(Change::sequence_parallel, scenario, layout));
  }
  if (may_have_stage_data(scenario)) return list;  // other degrees would need other data degrees by stage
  for (int factor = 2; factor <= most_tensor_factor && !scenario.profile; factor *= 2) {
    if (std::optional<Proposal> proposal = with_tensor(scenario, factor)) list.push_back(std::move(*proposal));
  }
  const std::int64_t layers = std::ssize(scenario.model.layers);
  for (std::int64_t pipeline = scenario.layout.pipeline * std::int64_t{2}; pipeline <= layers; pipeline *= 2) {
    Layout layout = scenario.layout;
    layout.pipeline = static_cast<int>(pipeline);
    const std::optional<Layout> settled = with_data_degree(layout, layout.data.degree);
    if (settled) list.push_back(with_layout(Change::pipeline, scenario, *settled));
  }
  return list;
}

bool is_valid(const Scenario& scenario) {
  try {
    require_valid(scenario);
  } catch (const InputError&) {
    return false;
  }
  return true;
}

constexpr std::int64_t most_tried = 12;  // candidates of one proposal

// The fastest candidate of its own splits that fits. Of a scenario with many, those with the schedule and the split of
// the candidate that lacks least.
std::optional<Candidate> fitting(Scenario scenario, const PlanChoice& shortfall) {
  if (combinations(scenario) > most_tried) {
    if (std::ranges::count(scenario.schedules, shortfall.schedule) > 0) scenario.schedules = {shortfall.schedule};
    if (std::ranges::count(scenario.splits, shortfall.split) > 0) scenario.splits = {shortfall.split};
  }
  PlanningResult result = plan_scenario(scenario, predict_by_path);
  for (Candidate& candidate : result.candidates) {
    if (candidate.own && candidate.fits) return std::move(candidate);
  }
  return std::nullopt;
}

// The scenario with nothing open but this choice.
Scenario settled(Scenario scenario, const PlanChoice& choice) {
  scenario.layout = choice.layout.value_or(scenario.layout);
  scenario.training.recompute = choice.recompute.value_or(scenario.training.recompute);
  scenario.training.offload = choice.offload.value_or(scenario.training.offload);
  scenario.training.microbatch = choice.microbatch;
  scenario.layouts = {scenario.layout};
  scenario.recomputes = {scenario.training.recompute};
  scenario.offloads = {scenario.training.offload};
  scenario.microbatches = {choice.microbatch};
  scenario.schedules = {choice.schedule};
  scenario.splits = {choice.split};
  scenario.stage_data_pipelines.reset();
  return scenario;
}

// Beside open layouts a file can say these, and the layout that fits stays among the candidates.
bool leaves_layouts_open(Change kind) {
  return kind == Change::microbatch || kind == Change::schedule || kind == Change::recompute || kind == Change::offload;
}

std::vector<Proposal> proposals_for(const Scenario& scenario, const Candidate& shortfall) {
  if (!leaves_layout_open(scenario)) return proposals(scenario);
  std::vector<Proposal> list = proposals(settled(scenario, shortfall.choice));
  std::erase_if(list, [](const Proposal& proposal) { return !leaves_layouts_open(proposal.kind); });
  if (!may_be_default_batch(scenario)) return list;
  for (Proposal& proposal : list) {
    if (proposal.kind != Change::microbatch) continue;
    proposal.text += fmt::format(" with training: {{global_batch: {}}}", scenario.training.global_batch);
  }
  return list;
}

}  // namespace

std::vector<Remedy> remedies(const Scenario& scenario, const Candidate& shortfall) {
  std::vector<Remedy> found;
  std::set<Change> kinds;
  for (Proposal& proposal : proposals_for(scenario, shortfall)) {
    const bool enough = found.size() >= most_remedies && proposal.kind != Change::offload;
    if (enough || kinds.contains(proposal.kind) || !is_valid(proposal.scenario)) continue;
    std::optional<Candidate> candidate = fitting(proposal.scenario, shortfall.choice);
    if (!candidate) continue;
    kinds.insert(proposal.kind);
    found.push_back({std::move(proposal.text), std::move(proposal.scenario), std::move(*candidate)});
  }
  return found;
}

std::string describe_remedies(const Scenario& scenario, const Candidate& shortfall) {
  const Seconds now = predict_by_path(shortfall.plan).steps.front().duration;  // the engine of the remedies
  std::vector<std::string> texts;
  for (const Remedy& remedy : remedies(scenario, shortfall)) {
    texts.push_back(fmt::format("{} ({}, step {})", remedy.text, to_text(remedy.candidate.peak_bytes),
                                change_text(remedy.candidate.iteration / now - 1)));
  }
  if (texts.empty() && leaves_layout_open(scenario)) {
    return "more devices, or more layouts to choose from: smaller microbatches, 1f1b, recompute and offload were tried";
  }
  if (texts.empty()) {
    return "no single change fits (other splits, smaller microbatch, 1f1b, recompute, offload, sharding over "
           "data-parallel ranks, sequence parallelism, a larger tensor degree, more pipeline ranks were tried)";
  }
  return fmt::format("this would fit: {}; steps against the {} that this one would take if it fitted",
                     fmt::join(texts, "; or "), to_text(now));
}

}  // namespace plumb

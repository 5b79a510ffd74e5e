#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>
#include <initializer_list>
#include <numeric>
#include <tuple>

#include "common/base/error.hpp"
#include "common/base/files.hpp"
#include "common/base/input_errors.hpp"
#include "common/block_cost/missing_numbers.hpp"
#include "common/cost/costs_json.hpp"
#include "common/layout/layout_features.hpp"
#include "common/layout/layout_json.hpp"
#include "common/layout/sharding.hpp"
#include "common/model/files/model_json.hpp"
#include "common/plan/counted_stages.hpp"
#include "common/plan/data_parallel.hpp"
#include "common/plan/host_memory.hpp"
#include "common/plan/parts_json.hpp"
#include "common/plan/plan.hpp"
#include "common/plan/plan_costs.hpp"
#include "common/plan/plan_features.hpp"
#include "common/plan/vocabulary_costs.hpp"
#include "common/scenario/vocabulary_fit.hpp"
#include "common/schedule/generators/registry.hpp"
#include "common/schedule/interchange/schedule_json.hpp"
#include "common/schedule/validate/validate.hpp"

namespace plumb {
namespace {

constexpr const char* format_name = "plumb plan";

void require_known(const JsonValue& name, const JsonValue& chunks) {
  const std::string text = name.text();
  if (text.starts_with(schedule_from_file)) return;
  const ScheduleEntry* entry = nullptr;
  try {
    entry = &find_schedule(text);
  } catch (const InputError& error) {
    name.fail(error.problem(), error.hint());
  }
  if (!entry->uses_chunks && chunks.small_integer(1) > 1) {
    chunks.fail("must be 1, since " + entry->name + " has no chunks");
  }
}

Schedule known_schedule(const JsonValue& value) {
  require_known(value.at("name"), value.at("chunks"));
  return schedule_from_json(value);
}

Json to_json(const Split& split, const std::string& method) { return {{"method", method}, {"layers", split.layers}}; }

Split split_from_json(const JsonValue& value) {
  value.require_only({"method", "layers"});
  Split split;
  const JsonValue layers = value.at("layers");
  for (std::size_t stage = 0; stage < layers.size(); ++stage) split.layers.push_back(layers[stage].small_integer());
  return split;
}

std::string split_method_from_json(const JsonValue& value) {
  constexpr auto last = static_cast<int>(SplitMethod::megatron);
  std::vector<std::string> names;
  for (int method = 0; method <= last; ++method) names.emplace_back(name_of(static_cast<SplitMethod>(method)));
  if (std::find(names.begin(), names.end(), value.text()) != names.end()) return value.text();
  value.fail("has the unknown value '" + value.text() + "'", did_you_mean(value.text(), names));
}

// Scenarios are what most often stands in a plan's place.
void require_json(const std::string& text, const std::filesystem::path& path) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  const bool yaml = path.extension() == ".yaml" || path.extension() == ".yml";
  if (first == std::string::npos || text[first] == '{' || !yaml) return;
  throw InputError(path.string(), "is not a plan: it looks like a scenario",
                   "first: plumb plan " + path.string() + " -o plan.json");
}

void require_version(const JsonValue& file) {
  const auto format = file.find("format");
  if (!format || !format->raw().is_string() || format->text() != format_name) {
    file.fail("is not a plan: expected the key 'format' with the value '" + std::string(format_name) + "'",
              "plans are written by: plumb plan SCENARIO -o plan.json");
  }
  const std::int64_t version = file.at("version").integer();
  if (version != plan_version) {
    file.fail("is a plan of version " + std::to_string(version) + ", expected version " + std::to_string(plan_version),
              "write it again with this plumb: plumb plan SCENARIO -o plan.json");
  }
}

constexpr const char* edit_hint =
    "times and bandwidths in 'costs' may be edited; for anything else write the plan again: plumb plan SCENARIO -o "
    "plan.json";

// The first of the facts that does not hold.
struct Fact {
  bool holds;
  JsonValue value;
  std::string problem;
};

void require_split(const Plan& plan, const JsonValue& file) {
  const std::vector<int>& layers = plan.split.layers;
  const auto sum = std::accumulate(layers.begin(), layers.end(), std::int64_t{0});
  const auto count = static_cast<std::size_t>(stages(plan.schedule));
  const JsonValue value = file.at("split").at("layers");
  if (layers.size() != count) {
    value.fail("has " + std::to_string(layers.size()) + " entries for " + std::to_string(count) + " stages", edit_hint);
  }
  if (sum != static_cast<std::int64_t>(plan.model.layers.size())) {
    value.fail(
        "adds up to " + std::to_string(sum) + " layers, the model has " + std::to_string(plan.model.layers.size()),
        edit_hint);
  }
  for (std::size_t stage = 1; stage + 1 < layers.size(); ++stage) {
    if (layers[stage] == 0) value.fail("leaves stage " + std::to_string(stage) + " without a layer", edit_hint);
  }
}

std::vector<Fact> facts_of_training(const Plan& plan, const JsonValue& file) {
  const std::size_t count = plan.schedule.rank_of_stage.size();
  const double batch = static_cast<double>(plan.training.microbatch) * static_cast<double>(batch_shards(plan.layout)) *
                       static_cast<double>(whole_microbatches(plan.schedule));
  std::vector<bool> recomputed(count, false);  // all that follow one another, or none
  std::fill_n(recomputed.begin(), stages(plan.schedule), recomputes_by_action(plan));
  const JsonValue schedule = file.at("schedule");
  const JsonValue training = file.at("training");
  return {
      {plan.schedule.ranks == plan.layout.pipeline, schedule.at("ranks"),
       "is " + std::to_string(plan.schedule.ranks) + ", the layout's pipeline " + std::to_string(plan.layout.pipeline)},
      {plan.cluster.ranks == ranks(plan.layout), file.at("cluster").at("ranks"),
       "is " + std::to_string(plan.cluster.ranks) + ", the layout needs " + std::to_string(ranks(plan.layout)) +
           " ranks"},
      {batch == static_cast<double>(plan.training.global_batch), training.at("global_batch"),
       "is " + std::to_string(plan.training.global_batch) +
           " sequences, which is not microbatch × data and expert degrees × the schedule's " +
           std::to_string(whole_microbatches(plan.schedule)) + " microbatches"},
      {plan.model.positions != Positions::learned || plan.training.sequence <= plan.model.max_positions,
       training.at("sequence"),
       "is " + std::to_string(plan.training.sequence) + ", the model has learned positions for " +
           std::to_string(plan.model.max_positions) + " tokens"},
      {recomputed_stages(plan.schedule) == recomputed, training.at("recompute"),
       "does not agree with the schedule: full recompute means an R for every stage"},
      {plan.training.recompute.layers <= static_cast<int>(plan.model.layers.size()),
       training.at("recompute").at("layers"),
       "is " + std::to_string(plan.training.recompute.layers) + ", the model has " +
           std::to_string(plan.model.layers.size()) + " layers"}};
}

std::vector<Fact> facts_of_costs(const Plan& plan, const JsonValue& costs) {
  const std::size_t count = plan.schedule.rank_of_stage.size();
  const auto slices = static_cast<std::size_t>(plan.schedule.slices);
  return {{plan.costs.stages.size() == count, costs.at("stages"),
           "has " + std::to_string(plan.costs.stages.size()) + " entries for " + std::to_string(count) + " stages"},
          {plan.costs.vocabulary.parts == (plan.layout.vocabulary_barriers > 0 ? plan.layout.pipeline : 0), costs,
           "have a vocabulary in " + std::to_string(plan.costs.vocabulary.parts) +
               " parts, which does not agree with the layout's"},
          {plan.costs.slice_tokens == plan.schedule.slice_tokens, costs, "have other slice_tokens than the schedule"},
          {plan.costs.slice_gathering.empty() || plan.costs.slice_gathering.size() == plan.costs.slice_tokens.size(),
           costs, "have slice_gathering_s of other slices than the schedule's"},
          {std::ranges::all_of(plan.costs.stages,
                               [&](const ComputeCost& cost) {
                                 const std::size_t bytes = cost.slice_bytes.size();
                                 return (cost.slices.empty() || cost.slices.size() == slices) &&
                                        (bytes == 0 || bytes == slices);
                               }),
           costs.at("stages"),
           "have times or bytes of other slices than the " + std::to_string(plan.schedule.slices) + " of the schedule"},
          {plan.costs.ranks_per_machine == pipeline_ranks_per_machine(plan.layout, plan.cluster.machine),
           costs.at("ranks_per_machine"),
           "is " + std::to_string(plan.costs.ranks_per_machine) + ", but of the pipeline " +
               std::to_string(pipeline_ranks_per_machine(plan.layout, plan.cluster.machine)) + " stand on a machine"},
          {plan.costs.cores_per_machine == plan.cluster.machine.cores, costs.at("cores_per_machine"),
           "is " + std::to_string(plan.costs.cores_per_machine) + ", the cluster's machine has " +
               std::to_string(plan.cluster.machine.cores) + " cores"},
          {plan.costs.cores_per_rank == cores_per_pipeline_rank(plan.layout, plan.cluster.machine), costs,
           "have cores_per_rank " + std::to_string(plan.costs.cores_per_rank) +
               ", but a pipeline rank's ranks compute on " +
               std::to_string(cores_per_pipeline_rank(plan.layout, plan.cluster.machine)) + " cores of a machine"},
          {plan.costs.boundary_bytes == sent_boundary_bytes(plan), costs.at("boundary_bytes"),
           "is " + std::to_string(plan.costs.boundary_bytes.value) + ", of the boundary each rank sends " +
               std::to_string(sent_boundary_bytes(plan).value) + " bytes"},
          {(plan.costs.tied_bytes.value > 0) == tied_over_ranks(plan), costs.at("tied_bytes"),
           "is " + std::to_string(plan.costs.tied_bytes.value) + ", which does not agree with the model's embeddings"}};
}

// Costs are of this model on these stages, and of this sharding: a model or layout that was edited has others.
void require_counted(const Plan& plan, const std::vector<ComputeCost>& expected, const JsonValue& stages) {
  const auto of_weights = [](const ComputeCost& cost) {
    const DataMoves& moves = cost.data_moves;
    return std::array{cost.gathered_bytes, moves.gathered, moves.unsharded, moves.replicated, moves.second_copy};
  };
  const auto on_host = [](const ComputeCost& cost) {
    return std::array{cost.host_moves.kept, cost.host_moves.down, cost.host_moves.up, cost.parameter_moves.up};
  };
  const auto reduces = [](const ComputeCost& cost) { return cost.data_moves.reduced > Bytes{}; };
  for (std::size_t stage = 0; stage < expected.size(); ++stage) {
    const ComputeCost& cost = plan.costs.stages[stage];
    if (cost.parameters != expected[stage].parameters) {
      stages[stage]
          .at("parameters")
          .fail("is " + std::to_string(cost.parameters) + ", the model has " +
                    std::to_string(expected[stage].parameters) + " on a rank of stage " + std::to_string(stage),
                edit_hint);
    }
    if (of_weights(cost) != of_weights(expected[stage])) {
      stages[stage].fail("gathers other weights than the layout's sharding, " + name_of(plan.layout.data.sharding),
                         edit_hint);
    }
    const DataMoves& moves = cost.data_moves;
    const int ahead = moves.beside ? moves.prefetch : 0;
    if (moves.gathered > Bytes{} && ahead != blocks_ahead(plan.layout, plan.software)) {
      stages[stage].fail("gathers weights " + std::to_string(ahead) + " blocks ahead, the layout's prefetch is " +
                             std::to_string(plan.layout.data.prefetch),
                         edit_hint);
    }
    if (on_host(cost) != on_host(expected[stage])) {
      stages[stage].fail(
          "keeps other states or weights on its host than training.offload, " + describe(plan.training.offload),
          edit_hint);
    }
    const bool of_activations = plan.training.offload.activations;
    if (of_activations ? cost.kept_bytes > Bytes{} : cost.activation_moves != ActivationMoves{}) {
      stages[stage].fail("keeps activations " + std::string(of_activations ? "on its device" : "on its host") +
                             ", against training.offload, " + describe(plan.training.offload),
                         edit_hint);
    }
  }
  const bool in_actions = std::ranges::any_of(plan.costs.stages, reduces);
  if (in_actions != std::ranges::any_of(expected, reduces)) {
    stages.fail("reduce gradients " + std::string(in_actions ? "in actions" : "once a step") +
                    ", which the layout's sharding, " + name_of(plan.layout.data.sharding) + ", does not",
                edit_hint);
  }
}

// Times of what travels quantised are of these bits and groups.
void require_quantised(const Plan& plan, const JsonValue& stages) {
  constexpr std::int64_t of_block = 16;  // bytes by which its parts are rounded, at most
  for (std::size_t stage = 0; stage < plan.costs.stages.size(); ++stage) {
    const ComputeCost& cost = plan.costs.stages[stage];
    const DataMoves& moves = cost.data_moves;
    QuantisedMoves expected = quantised_moves(plan.layout.data, plan.training.precision, plan.software.gradients,
                                              moves.gathered, moves.reduced);
    expected += quantised_once(plan, cost);
    const bool part = stage >= plan.split.layers.size();  // of the vocabulary, one block
    const std::int64_t rounded = of_block * (part ? 2 : plan.split.layers[stage] + 2);
    const auto differ = [&](Bytes a, Bytes b) { return std::abs(a.value - b.value) > rounded; };
    if (!differ(moves.quantised.forward, expected.forward) &&
        !differ(moves.quantised.input_gradient, expected.input_gradient) &&
        !differ(moves.quantised.weight_gradient, expected.weight_gradient)) {
      continue;
    }
    stages[stage].fail("moves weights or gradients in other blocks than the layout's sharding, " +
                           name_of(plan.layout.data.sharding) + ", of " + describe(plan.layout),
                       edit_hint);
  }
}

void require_slices_whole(const Plan& plan, const JsonValue& schedule) {
  try {
    require_slices(plan.schedule.slice_tokens, plan.training.sequence, "slice_tokens");
  } catch (const InputError& error) {
    schedule.at("slice_tokens").fail(error.problem(), edit_hint);
  }
}

void require_countable(const BoundaryManifest& boundary, const JsonValue& value) {
  try {
    (void)bytes(boundary);
  } catch (const InputError& error) {
    value.fail(error.problem(), edit_hint);
  }
}

// Of a machine without them, predictions divide by zero.
// Of what the parts of a vocabulary exchange, times and bandwidths alone may be edited.
void require_vocabulary_moved(const Plan& plan, const JsonValue& costs) {
  if (plan.layout.vocabulary_barriers == 0) return;
  const VocabularyCost expected = vocabulary_cost(plan);
  const auto moved = [](const JoinCost& of) { return std::tuple(of.bytes, of.inside, of.outside); };
  for (const auto& [key, which] : vocabulary_joins) {
    if (moved(plan.costs.vocabulary.*which) == moved(expected.*which)) continue;
    costs.at("vocabulary").at(key).fail("moves other bytes than the model's and the layout's", edit_hint);
  }
}

void require_numbers(const Plan& plan, const JsonValue& machine) {
  if (has_measured_costs(plan)) return;
  const std::vector<MissingNumber> missing = missing_numbers(scenario_of(plan));
  if (!missing.empty()) machine.fail(problem_of(missing, plan.cluster.machine.name), edit_hint);
}

// What a check finds wrong is said of the value at the path, which is looked up only then: usual ones are not written.
void require_at(const JsonValue& file, std::initializer_list<const char*> path, const std::function<void()>& check) {
  try {
    check();
  } catch (const InputError& error) {
    JsonValue place = file;
    for (const char* key : path) place = place.at(key);
    place.fail(error.problem(), error.hint());
  }
}

// At the key of each, or the block around it.
JsonValue place_of(const JsonValue& file, std::string_view key) {
  JsonValue place = file;
  while (!key.empty()) {
    const std::size_t dot = key.find('.');
    const auto next = place.raw().is_object() ? place.find(key.substr(0, dot)) : std::nullopt;
    if (!next) break;
    place = *next;
    key = dot == std::string_view::npos ? "" : key.substr(dot + 1);
  }
  return place;
}

void require_capabilities(const Plan& plan, const JsonValue& file) {
  if (const auto misfit = barrier_misfit(plan.schedule, plan.layout))
    file.at("layout").fail(misfit->problem(), misfit->hint());
  InputErrors errors;
  for (const Refusal& refusal : refusals(used_features(plan, has_measured_costs(plan)), Purpose::plan)) {
    errors.attempt([&] { place_of(file, facts_of(refusal.feature).key).fail(refusal.problem, refusal.hint); });
  }
  errors.throw_if_any();
  if (const auto misfit = vocabulary_misfit(plan.model, plan.layout))
    file.at("layout").fail(misfit->problem(), misfit->hint());
}

void require_consistent(const Plan& plan, const JsonValue& file) {
  require_capabilities(plan, file);
  require_split(plan, file);
  require_slices_whole(plan, file.at("schedule"));
  require_countable(plan.boundary, file.at("boundary"));
  for (const std::vector<Fact>& facts : {facts_of_training(plan, file), facts_of_costs(plan, file.at("costs"))}) {
    for (const Fact& fact : facts) {
      if (!fact.holds) fact.value.fail(fact.problem, edit_hint);
    }
  }
  require_countable(plan.costs, plan.schedule.microbatches, file.at("costs"));
  require_numbers(plan, file.at("cluster").at("machine"));
  const BoundaryManifest boundary = plan_boundary(plan);
  if (plan.boundary != boundary) {
    const auto [found, expected] = first_difference(plan.boundary, boundary);
    file.at("boundary").fail("has " + found + ", expected " + expected + " from model and training", edit_hint);
  }
  require_vocabulary_moved(plan, file.at("costs"));
  std::vector<ComputeCost> counted;
  require_at(file, {"model"}, [&] { counted = counted_stages(plan); });
  require_counted(plan, counted, file.at("costs").at("stages"));
  require_quantised(plan, file.at("costs").at("stages"));
  require_at(file, {"schedule"}, [&] { require_valid(plan.schedule); });
}

}  // namespace

std::string to_json(const Plan& plan) {
  return to_text(Json{{"format", format_name},
                      {"version", plan_version},
                      {"name", plan.name},
                      {"model", to_json(plan.model)},
                      {"cluster", to_json(plan.cluster)},
                      {"training", to_json(plan.training)},
                      {"layout", to_json(plan.layout)},
                      {"software", to_json(plan.software)},
                      {"split", to_json(plan.split, plan.split_method)},
                      {"schedule", to_json(plan.schedule)},
                      {"boundary", to_json(plan.boundary)},
                      {"costs", to_json(plan.costs)}});
}

// What a scenario may not say yet, an edited plan may not either: its costs would count none of it.
static Layout built_layout(const JsonValue& file) {
  Layout layout = layout_from_json(file);
  const FeatureSet refused = features_of(layout) & refused_alone(Purpose::plan);
  for (const Refusal& refusal : refusals(refused, Purpose::plan)) {
    const std::string_view key = facts_of(refusal.feature).key;
    place_of(file, key.substr(key.find('.') + 1)).fail(refusal.problem, refusal.hint);
  }
  return layout;
}

Plan read_plan(const std::filesystem::path& path) {
  const std::string text = read_file(path);
  require_json(text, path);
  const Json json = parse_json(text, path.string());
  const JsonValue file(json, path.string(), "", text);
  require_version(file);
  file.require_only({"format", "version", "name", "model", "cluster", "training", "layout", "software", "split",
                     "schedule", "boundary", "costs"});
  Plan plan{.name = file.at("name").text(),
            .model = model_from_json(file.at("model")),
            .cluster = cluster_from_json(file.at("cluster")),
            .training = training_from_json(file.at("training")),
            .layout = built_layout(file.at("layout")),
            .software = software_from_json(file.at("software")),
            .split_method = split_method_from_json(file.at("split").at("method")),
            .split = split_from_json(file.at("split")),
            .schedule = known_schedule(file.at("schedule")),
            .costs = pipeline_costs_from_json(file.at("costs")),
            .boundary = boundary_from_json(file.at("boundary"))};
  if (plan.software.post_validation) {
    throw InputError(path.string(), "software.post_validation: only plumb validate and plumb fit count such steps",
                     "\"post_validation\": false");
  }
  require_consistent(plan, file);
  return plan;
}

}  // namespace plumb

#include "sim/commands/plan_json.hpp"

#include "common/layout/tensor_grid.hpp"
#include "common/plan/timeline_head.hpp"
#include "common/study/bottleneck.hpp"
#include "sim/commands/describe.hpp"
#include "sim/commands/plan_references.hpp"
#include "sim/commands/profile_remark.hpp"

namespace plumb::sim {

double tokens_per_s(const Candidate& candidate) {
  const Training& training = candidate.plan.training;
  return static_cast<double>(training.global_batch * training.sequence) / candidate.iteration.value;
}

double utilisation(const Candidate& candidate) {
  return flops_utilisation(candidate.plan, trained_flops(candidate.plan), candidate.iteration);
}

TrainingRun training_run(const Candidate& candidate, double tokens) {
  const Training& training = candidate.plan.training;
  return training_run(tokens, static_cast<double>(training.global_batch * training.sequence), tokens_per_s(candidate),
                      candidate.plan.cluster.ranks);
}

namespace {

Json order_json(const Layout& layout) {
  Json order = Json::array();
  for (const MeshAxis axis : layout.order) order.push_back(axis_name(axis));
  return order;
}

Json to_json(const Candidate& candidate, const Scenario& scenario) {
  const bool built = candidate.built;
  const Bottleneck bound = built ? bottleneck(candidate.plan) : Bottleneck{};
  const Layout layout = layout_of(candidate.choice, scenario);
  Json json{{"layout", describe(layout)},
            {"tensor_kind", name_of(layout.tensor.kind)},
            {"sequence_parallel", layout.tensor.degree > 1 && layout.tensor.sequence_parallel},
            {"asynchronous", layout.tensor.degree > 1 && layout.tensor.asynchronous},
            {"reshard_after_forward", layout.tensor.degree > 1 && layout.tensor.reshard_after_forward},
            {"vocabulary_barriers", layout.vocabulary_barriers},
            {"order", order_json(layout)},
            {"schedule", candidate.choice.schedule.name},
            {"chunks", candidate.choice.schedule.chunks},
            {"split", describe(candidate.choice.split)},
            {"split_layers", candidate.plan.split.layers},
            {"own", candidate.own},
            {"microbatch", candidate.choice.microbatch},
            {"recompute", describe(recompute_of(candidate.choice, scenario))},
            {"offload", describe(offload_of(candidate.choice, scenario))},
            {"iteration_s", built ? Json(candidate.iteration.value) : Json(nullptr)},
            {"tokens_per_s", built ? Json(tokens_per_s(candidate)) : Json(nullptr)},
            {"mfu", built ? Json(utilisation(candidate)) : Json(nullptr)},
            {"peak_bytes", built ? Json(candidate.peak_bytes.value) : Json(nullptr)},
            {"bound_by_rank", built ? Json(bound.rank) : Json(nullptr)},
            {"bound_by_s", built ? Json(bound.time.value) : Json(nullptr)},
            {"mean_rank_s", built ? Json(bound.mean.value) : Json(nullptr)},
            {"fits", candidate.fits},
            {"reason", candidate.reason}};
  const std::vector<std::int64_t>& tokens = candidate.plan.schedule.slice_tokens;
  if (!tokens.empty()) json["slice_tokens"] = tokens;
  return json;
}

Json to_json(const ParetoRow& row, const Scenario& scenario) {
  return {{"layout", describe(layout_of(row.choice, scenario))},
          {"schedule", row.choice.schedule.name},
          {"chunks", row.choice.schedule.chunks},
          {"split", describe(row.choice.split)},
          {"microbatch", row.choice.microbatch},
          {"recompute", describe(recompute_of(row.choice, scenario))},
          {"offload", describe(offload_of(row.choice, scenario))},
          {"iteration_s", row.iteration.value},
          {"peak_bytes", row.peak_bytes.value}};
}

Json to_json(const LeftOut& group) {
  Json json = {{"why", name_of(group.why)}, {"candidates", group.candidates}};
  if (has_reason(group)) {
    json["reason"] = group.reason;
    return json;
  }
  json["tensor"] = group.tensor;
  json["tensor_kind"] = name_of(group.kind);
  json["pipeline"] = group.pipeline;
  json["vocabulary_barriers"] = group.vocabulary_barriers;
  if (group.why == LeftOutWhy::slower_by_bound) {
    json["least_s"] = group.least_time.value;
  } else {
    json["least_bytes"] = group.least_bytes.value;
  }
  return json;
}

}  // namespace

Json to_json(const Planned& planned, const Candidate& chosen, const std::vector<BaselineRow>& baselines,
             const std::optional<BaselineRow>& habit, const Scenario& scenario, const PlanOptions& options) {
  const PlanningResult& result = planned.planning;
  Json candidates = Json::array();
  for (const Candidate& candidate : result.candidates) {
    const Candidate* uniform = candidate.built ? uniform_of(candidate, result) : nullptr;
    candidates.push_back(to_json(candidate, scenario));
    if (options.tokens > 0 && candidate.built) add_to(candidates.back(), training_run(candidate, options.tokens));
    candidates.back()["to_uniform_fraction"] =
        uniform == nullptr ? Json(nullptr) : Json(change_from(*uniform, candidate));
    candidates.back()["uniform_fits"] = uniform == nullptr ? Json(nullptr) : Json(uniform->fits);
  }
  Json json = {{"candidates", candidates},      {"chosen", &chosen - result.candidates.data()},
               {"pruned", result.pruned},       {"bounded", result.bounded},
               {"evaluated", result.evaluated}, {"simulated", result.simulated},
               {"left", result.left},           {"not_simulated", planned.not_predicted},
               {"finished", planned.finished},  {"unproven", result.unproven},
               {"engine", options.engine},      {"memory_bytes", scenario.cluster.machine.device.memory.value.value}};
  json["machine"] = scenario.cluster.machine.name;
  json["software"] = scenario.software.name;
  json["software_stated"] = is_stated(scenario.software);
  if (const std::string why = no_stage_data(scenario); !why.empty()) json["no_data_by_stage"] = why;
  add_noise(json, scenario.profile);
  add_framework(json, scenario);
  add_experts(json, scenario.model);
  if (options.planning.pareto) {
    json["pareto_engine"] = planned.searched ? std::string(path_engine) : options.engine;
    json["pareto"] = Json::array();
    for (const ParetoRow& row : planned.pareto) json["pareto"].push_back(to_json(row, scenario));
  }
  if (options.explain) {
    json["explain"] = Json::array();
    for (const LeftOut& group : planned.explanation) json["explain"].push_back(to_json(group));
  }
  if (habit && habit->candidate.built) {
    json["first_last"] = to_json(habit->candidate, scenario);
    json["first_last"]["best_to_it_fraction"] = change_from(habit->candidate, chosen);
  }
  if (baselines.empty()) return json;
  json["baselines"] = Json::array();
  for (const BaselineRow& row : baselines) {
    Json entry = to_json(row.candidate, scenario);
    entry["name"] = row.name;
    entry["best_to_it_fraction"] = row.candidate.built ? Json(change_from(row.candidate, chosen)) : Json(nullptr);
    json["baselines"].push_back(entry);
  }
  return json;
}

}  // namespace plumb::sim

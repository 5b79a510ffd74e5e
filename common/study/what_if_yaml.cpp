#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "common/base/excerpt.hpp"
#include "common/block_cost/missing_numbers.hpp"
#include "common/cost/software_yaml.hpp"
#include "common/plan/plan_costs.hpp"
#include "common/planner/make_plan.hpp"
#include "common/scenario_file/blocks.hpp"
#include "common/study/what_if.hpp"
#include "common/study/what_if_fields.hpp"
#include "common/study/what_if_numbers.hpp"

namespace plumb {
namespace {

// One block or a list of them.
std::vector<YamlValue> one_or_more(const YamlValue& value) {
  return value.is_list() ? value.items() : std::vector<YamlValue>{value};
}

// Lists and blocks without anything in them.
bool says_nothing(const YamlValue& value) {
  if (value.is_list()) return std::ranges::all_of(value.items(), says_nothing);
  if (!value.is_map()) return value.is_null();
  return std::ranges::all_of(value.keys(), [&](const std::string& key) { return says_nothing(value.require(key)); });
}

// Reads one variant; the plan says what there is to disturb.
class VariantReader {
 public:
  VariantReader(YamlValue block, const Plan& plan)
      : block_(std::move(block)), planned_(plan), graph_(build_graph(lowered_schedule(plan), plan.costs)) {
    variant_.plan = plan;
  }

  WhatIf read() {
    check_fields(variant_block(), block_);
    const YamlValue name = block_.require("name");
    variant_.name = name.text();
    if (printable(variant_.name) != variant_.name || variant_.name.find('\n') != std::string::npos) {
      name.fail(name.path() + ": '" + excerpt(variant_.name) + "' has control characters, or bytes that are not UTF-8",
                "a name on one line");
    }
    if (says_nothing(block_.without({"name"})))
      block_.fail("variant '" + excerpt(variant_.name) + "' changes nothing", example_);
    read_costs();
    each("straggler", [this](const YamlValue& value) { read_straggler(value); });
    each("link", [this](const YamlValue& value) { read_link(value); });
    each("host", [this](const YamlValue& value) { read_host(value); });
    if (const auto jitter = block_.find("jitter")) {
      const auto seed = jitter->find("seed");
      variant_.jitter = {.spread = jitter->require("spread").fraction(),
                         .seed = seed ? static_cast<std::uint64_t>(seed->integer()) : 1};
    }
    return std::move(variant_);
  }

 private:
  template <class Read>
  void each(const char* key, const Read& read) {
    const auto value = block_.find(key);
    if (!value) return;
    for (const YamlValue& item : one_or_more(*value)) read(item);
  }

  [[nodiscard]] int per_machine() const { return std::max(1, planned_.costs.ranks_per_machine); }
  [[nodiscard]] int machines() const { return (graph_.ranks + per_machine() - 1) / per_machine(); }

  [[nodiscard]] int read_rank(const YamlValue& value) const {
    const std::int64_t rank = value.integer();
    if (rank >= 0 && rank < graph_.ranks) return static_cast<int>(rank);
    const int each = ranks(planned_.layout) / graph_.ranks;
    const std::string last = std::to_string(graph_.ranks - 1);
    value.fail(value.path() + ": the pipeline has " + (last == "0" ? "rank 0 alone" : "ranks 0 to " + last) + ", not " +
                   std::to_string(rank),
               each > 1 ? "each stands for the " + std::to_string(each) + " ranks that do the same" : "");
  }
  // With data degrees by stage a rank of the pipeline stands for ranks on several machines, whose messages are delays.
  void require_same_data_degrees(const YamlValue& value) const {
    if (!has_stage_data(planned_.layout)) return;
    value.fail(value.path() + ": machines and links of stages with different data degrees are not told apart yet",
               "a rank, a stage, or a number of the machine");
  }
  [[nodiscard]] int read_machine(const YamlValue& value) const {
    require_same_data_degrees(value);
    return static_cast<int>(value.integer(0, machines() - 1));
  }
  [[nodiscard]] std::vector<int> ranks_of(int machine) const {
    std::vector<int> ranks;
    for (int rank = 0; rank < graph_.ranks; ++rank) {
      if (machine_of(rank, per_machine()) == machine) ranks.push_back(rank);
    }
    return ranks;
  }

  static ActionKind read_action(const YamlValue& value) {
    std::vector<std::string> names;
    std::vector<ActionKind> kinds(compute_kinds.begin(), compute_kinds.end());
    kinds.push_back(ActionKind::optimizer_step);
    for (const ActionKind kind : kinds) names.emplace_back(letters(kind));
    return kinds.at(value.choice(names));
  }

  void read_straggler(const YamlValue& value) {
    Straggler straggler{.slower = value.require("slower").number()};
    if (const auto rank = value.find("rank")) straggler.rank = read_rank(*rank);
    if (const auto machine = value.find("machine")) straggler.machine = read_machine(*machine);
    if (const auto stage = value.find("stage")) {
      straggler.stage = static_cast<int>(stage->integer(0, all_stages(planned_.schedule) - 1));
    }
    if (const auto action = value.find("action")) straggler.action = read_action(*action);
    if (value.keys().size() == 1) value.fail(value.path() + ": which rank, machine, stage or action is slower?");
    require_matches(value, straggler);
    variant_.stragglers.push_back(straggler);
  }

  // Durations of 1 tell what a straggler slows down.
  void require_matches(const YamlValue& value, const Straggler& straggler) const {
    WhatIf alone{.plan = variant_.plan, .stragglers = {straggler}};
    alone.stragglers.front().slower = slowest_factor;
    const ScheduleGraph slowed = graph_of(alone);
    const ScheduleGraph planned = build_graph(lowered_schedule(alone.plan), alone.plan.costs);
    if (durations(slowed) != durations(planned)) return;
    value.fail(value.path() + ": nothing that the plan does is that",
               straggler.action ? "the schedule has B where it does not split it into I and W" : "");
  }

  struct Window {
    Seconds from = {};
    Seconds until = {std::numeric_limits<double>::infinity()};
  };
  static Window read_window(const YamlValue& value) {
    Window window;
    if (const auto from = value.find("from")) window.from = from->seconds();
    const auto until = value.find("until");
    if (until) window.until = until->seconds();
    if (!(window.from < window.until)) until->fail(until->path() + ": must be later than `from`");
    return window;
  }

  // The one of `keys` that is given.
  static std::string one_of(const YamlValue& value, const std::vector<std::string>& keys) {
    std::vector<std::string> given;
    std::string names;
    for (const std::string& key : keys) {
      if (value.find(key)) given.push_back(key);
      names += (names.empty() ? "" : ", ") + key;
    }
    if (given.size() != 1) value.fail(value.path() + ": expected exactly one of: " + names);
    return given.front();
  }

  void read_link(const YamlValue& value) {
    require_same_data_degrees(value);
    const Window window = read_window(value);
    Disturbance link{.factor = 0, .from = window.from, .until = window.until};
    if (one_of(value, {"factor", "fails"}) == "factor") {
      link.factor = value.require("factor").number();
      if (link.factor > 0 && link.factor < 1e-3) {
        value.fail(value.path() + ": a factor is 0 (it stands still) or from 0.001 to 1");
      }
    } else if (!value.require("fails").boolean()) {
      value.fail(value.path() + ": `fails` is true or left out");
    }
    const std::string where = one_of(value, {"rank", "between", "machine", "switch", "leaf"});
    if (where == "rank") {
      link.what = Disturbed::ports;
      link.rank = read_rank(value.require("rank"));
      variant_.disturbances.push_back(link);
      if (reduces(false)) add_reduction(link);
    } else if (where == "switch" || where == "leaf") {
      read_uplink(value.require(where), where == "leaf", link);
    } else if (where == "between") {
      read_way(value.require("between"), link);
    } else {
      const bool over_machines = reduces(true);
      if (machines() == 1 && !over_machines) {
        value.fail(value.path() + ": the pipeline is on one machine, no message leaves it");
      }
      link.what = Disturbed::outside_ports;
      for (const int rank : ranks_of(read_machine(value.require("machine")))) {
        link.rank = rank;
        variant_.disturbances.push_back(link);
        if (over_machines) add_reduction(link);
      }
    }
  }

  // Whether ranks reduce gradients with data-parallel ones, at all or over machines.
  [[nodiscard]] bool reduces(bool over_machines) const {
    if (planned_.layout.data.degree == 1) return false;
    const StageGroups groups = stage_groups(planned_, 0);
    const auto crosses = [](const GroupPlacement& group) { return group.per_machine < group.ranks; };
    return !over_machines || crosses(groups.data.all) || crosses(groups.copies);
  }

  void add_reduction(Disturbance link) {
    link.what = Disturbed::reduction;
    variant_.disturbances.push_back(link);
    if (gathers_in_actions(planned_.layout) || reduces_in_actions(planned_.layout)) {
      variant_.note = "what F, B and W gather and reduce is not slowed";
    } else if (planned_.software.data_overlap) {
      variant_.note = "of the reduction only what shows behind the backward is slowed";
    }
  }

  // Switches and leaves are counted along the pipeline, as machines are.
  void read_uplink(const YamlValue& value, bool leaf, Disturbance link) {
    const SharedLinks& shared = planned_.costs.shared;
    const int each = leaf ? shared.ranks_per_leaf : shared.ranks_per_switch;
    if (each == 0)
      value.fail(value.path() + ": the " + (leaf ? "cluster has no leaf" : "machine has no") + " switches");
    link.what = leaf ? Disturbed::leaf : Disturbed::uplink;
    link.rank = each * static_cast<int>(value.integer(0, (graph_.ranks + each - 1) / each - 1));
    variant_.disturbances.push_back(link);
  }

  void read_way(const YamlValue& value, Disturbance link) {
    const std::vector<YamlValue> ends = value.items();
    link.what = Disturbed::way;
    link.rank = read_rank(ends[0]);
    link.peer = read_rank(ends[1]);
    const bool used = std::ranges::any_of(graph_.nodes, [&](const Node& node) {
      return node.peer >= 0 && std::minmax({static_cast<int>(node.rank), static_cast<int>(node.peer)}) ==
                                   std::minmax({link.rank, link.peer});
    });
    if (!used) value.fail(value.path() + ": these ranks send each other nothing");
    variant_.disturbances.push_back(link);
  }

  void read_host(const YamlValue& value) {
    const bool fails = one_of(value, {"fails_at", "slower"}) == "fails_at";
    const Window window = read_window(value);
    Disturbance host{.factor = 0, .from = window.from, .until = window.until};
    if (fails) {
      if (value.find("from") || value.find("until")) value.fail(value.path() + ": a host that fails stays away");
      host.from = value.require("fails_at").seconds();
    } else {
      host.factor = 1 / value.require("slower").number();
    }
    const bool single = one_of(value, {"rank", "machine"}) == "rank";
    for (const int rank : single ? std::vector<int>{read_rank(value.require("rank"))}
                                 : ranks_of(read_machine(value.require("machine")))) {
      require_own_device(value, rank);
      host.rank = rank;
      host.what = Disturbed::device;
      variant_.disturbances.push_back(host);
      host.what = Disturbed::ports;
      if (fails) variant_.disturbances.push_back(host);
    }
  }

  void require_own_device(const YamlValue& value, int rank) const {
    const int cores = planned_.costs.cores_per_machine;
    const auto on_machine = static_cast<int>(ranks_of(machine_of(rank, per_machine())).size());
    if (cores == 0 || on_machine * planned_.costs.cores_per_rank <= cores) return;
    value.fail(value.path() + ": ranks share cores here, none has a speed of its own to change at a date",
               "a straggler, which is slow from the first action on, or as many cores as ranks");
  }

  // What changes costs: the plan is costed anew with all of it.
  void read_costs() {
    double load = 1;
    bool changed = false;
    for (const char* key : {"training", "cluster", "machine", "software", "experts"}) {
      const auto value = block_.find(key);
      if (!value) continue;
      if (!changed) require_predicted_costs(planned_, to_string(value->place()));
      changed = true;
    }
    if (!changed) return;
    MachineChanges changes;
    if (const auto cluster = block_.find("cluster")) {
      read_machine_changes(*cluster, changes);
    }
    if (const auto machine = block_.find("machine")) read_machine_changes(*machine, changes);
    apply_changes(changes, variant_.plan.cluster.machine);
    if (const auto software = block_.find("software")) read_software_change(*software);
    if (const auto training = block_.find("training")) read_training_change(*training);
    if (const auto experts = block_.find("experts")) load = read_experts(*experts);
    require_numbers();
    variant_.plan.costs = predicted_costs(variant_.plan, load);
  }

  // Another software may stand on numbers that the plan's own did not need.
  void require_numbers() const {
    const std::vector<MissingNumber> missing = missing_numbers(scenario_of(variant_.plan));
    if (missing.empty()) return;
    block_.fail("variant '" + excerpt(variant_.name) + "': " + problem_of(missing, planned_.cluster.machine.name),
                "plan with a machine whose file has in " + lines_of(missing));
  }

  void read_software_change(const YamlValue& value) {
    const bool whole = value.is_text() || value.find("like");
    const bool by_action = recomputes_by_action(variant_.plan);
    variant_.plan.software = whole ? read_software_of(value) : read_software(value, variant_.plan.software);
    if (variant_.plan.software.post_validation) refuse_post_validation(value);
    if (splits_backward(variant_.plan.schedule)) variant_.plan.software.exchange = PipelineExchange::asynchronous;
    if (recomputes_by_action(variant_.plan) != by_action) {
      value.fail(
          value.path() + ": this software recomputes in other places than the plan's schedule does",
          "recompute_unit: " + recompute_unit_names().at(static_cast<std::size_t>(planned_.software.recompute_unit)));
    }
  }

  // Other numbers of microbatches need the schedule made anew; the split stays.
  void read_training_change(const YamlValue& value) {
    Plan& plan = variant_.plan;
    const Scenario same = scenario_of(planned_);
    Scenario asked = same;
    asked.cluster = plan.cluster;
    asked.software = plan.software;
    if (const auto batch = value.find("global_batch")) asked.training.global_batch = batch->integer();
    PlanChoice choice{.microbatch = plan.training.microbatch,
                      .schedule = choice_of(plan.schedule),
                      .split = {.method = SplitMethod::counts, .counts = plan.split.layers}};
    try {
      if (make_plan(same, choice).schedule != plan.schedule) {
        throw InputError("", "the plan's " + plan.schedule.name + " has options that the plan does not keep",
                         "change the scenario instead");
      }
      if (const auto size = value.find("microbatch")) choice.microbatch = size->integer();
      const std::string method = plan.split_method;
      plan = make_plan(asked, choice);
      plan.split_method = method;
    } catch (const InputError& error) {
      value.fail(value.path() + ": " + error.problem(), error.hint());
    }
  }

  double read_experts(const YamlValue& value) {
    const auto has_experts = [](const Layer& layer) { return std::holds_alternative<MoeMlp>(layer.mlp); };
    if (!std::ranges::any_of(planned_.model.layers, has_experts)) {
      value.fail(value.path() + ": the model has no experts");
    }
    if (planned_.layout.expert == 1) {
      variant_.note = "as if the experts were spread over ranks: here every rank has all of them, and none more load";
    }
    return value.require("skew").number();
  }

  static constexpr const char* example_ = "{name: a slow rank, straggler: {rank: 0, slower: 1.2}}";

  YamlValue block_;
  const Plan& planned_;
  ScheduleGraph graph_;
  WhatIf variant_;
};

}  // namespace

std::vector<WhatIf> read_what_if(const YamlValue& file, const Plan& plan) {
  if (!file.is_list()) {
    file.fail("expected a list of variants", "- {name: a slow rank, straggler: {rank: 0, slower: 1.2}}");
  }
  std::vector<WhatIf> variants;
  for (const YamlValue& block : file.items()) {
    WhatIf variant = VariantReader(block, plan).read();
    if (std::ranges::any_of(variants, [&](const WhatIf& other) { return other.name == variant.name; })) {
      block.fail("two variants have the name '" + excerpt(variant.name) + "'");
    }
    variants.push_back(std::move(variant));
  }
  if (variants.empty()) file.fail("has no variants");
  return variants;
}

std::vector<WhatIf> read_what_if(const std::filesystem::path& path, const Plan& plan) {
  return read_what_if(YamlValue::load(path), plan);
}

}  // namespace plumb

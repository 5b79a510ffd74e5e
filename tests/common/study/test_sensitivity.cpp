// Derivatives against what must add up, and uncertainties against the distribution that they come from.
#include "common/study/sensitivity.hpp"

#include <cmath>
#include <map>

#include "common/base/error.hpp"
#include "common/cluster/machine_numbers.hpp"
#include "common/plan/plan_costs.hpp"
#include "common/planner/make_plan.hpp"
#include "common/study/uncertainty.hpp"
#include "tests/catch.hpp"
#include "tests/common/plan/scenarios.hpp"

using namespace plumb;
using plumb::testing::read_text;
using plumb::testing::scenario_text;

namespace {

StepOutcome by_path(const ScheduleGraph& graph, const PipelineCosts&, const std::vector<Disturbance>&) {
  return {.evaluation = evaluate(graph), .unfinished = {}};
}

Plan plan_of(const std::string& schedule, int pipeline) {
  const Scenario scenario = read_text(scenario_text(
      "cluster: {machine: dgx-a100, ranks: " + std::to_string(pipeline) +
      "}\ntraining: {sequence: 1024, global_batch: 16, microbatch: 1, precision: bf16}\nlayout: {pipeline: " +
      std::to_string(pipeline) + "}\nschedule: " + schedule + "\nsplit: uniform\n"));
  return make_plan(scenario, {1, scenario.schedules.front(), scenario.splits.front()});
}

std::map<std::string, Sensitivity> by_name(const Plan& plan) {
  std::map<std::string, Sensitivity> result;
  for (const Sensitivity& entry : sensitivities(plan, by_path)) result[entry.name] = entry;
  return result;
}

template <class... Numbers>
void take_as_exact(Numbers&... numbers) {
  ((numbers.uncertainty = 0), ...);
}

// Only this one is open.
Plan with_open(Plan plan, const std::string& name, double uncertainty) {
  Machine& machine = plan.cluster.machine;
  DeviceProfile& device = machine.device;
  take_as_exact(device.peak, device.matmul_efficiency, device.matmul_depth, device.memory_bandwidth,
                device.memory_efficiency, device.attention_efficiency, device.kernel_gap, device.launch_time,
                device.message_multiprocessors, machine.inside.latency, machine.inside.bandwidth,
                machine.outside.latency, machine.outside.bandwidth, machine.uplink, machine.collective_bandwidth,
                machine.collective_latency, machine.collective_latency_per_rank, machine.switch_bandwidth);
  if (name == "memory_efficiency") device.memory_efficiency.uncertainty = uncertainty;
  if (name == "matmul_efficiency") device.matmul_efficiency.uncertainty = uncertainty;
  return plan;
}

}  // namespace

TEST_CASE("slopes of all stages and messages add up to 1, and kinds to those of their stages") {
  for (const std::string schedule : {"1f1b", "zb-h1"}) {
    double sum = 0;
    std::map<std::string, double> kinds;
    for (const auto& [name, entry] : by_name(plan_of(schedule, 4))) {
      if (entry.moved == Moved::stage || entry.moved == Moved::message) sum += entry.slope;
      if (entry.moved == Moved::stage) kinds[name.substr(0, name.find(' '))] += entry.slope;
      if (entry.moved == Moved::kind) kinds[name.substr(0, name.find(' '))] -= entry.slope;
      // The longest chain alone gets no shorter than by its share.
      if (entry.moved != Moved::number) CHECK(entry.change >= -0.1 * entry.if_faster - 1e-12);
      CHECK(entry.change <= 1e-12);
    }
    CHECK(sum == Approx(1));
    for (const auto& [kind, difference] : kinds) CHECK(std::abs(difference) < 1e-12);
  }
}

TEST_CASE("on one rank a class moves the step by exactly its share") {
  const Plan plan = plan_of("gpipe", 1);
  const ComputeCost& stage = plan.costs.stages.front();
  const double step = 16 * (stage.forward + backward_time(stage)).value + stage.optimizer.value;
  const auto found = by_name(plan);
  CHECK(found.at("F of stage 0").change == Approx(-0.1 * 16 * stage.forward.value / step));
  CHECK(found.at("B of stage 0").slope == Approx(16 * backward_time(stage).value / step));
  CHECK(found.at("STEP of stage 0").change == Approx(-0.1 * stage.optimizer.value / step));
}

// A step of several equally long chains has a derivative to each side; the oracle makes the class a little faster, and
// a little slower, and evaluates the path.
TEST_CASE("tied classes have the derivative of the step to either side") {
  for (const std::string schedule : {"gpipe", "1f1b", "zb-h1"}) {
    Plan plan = plan_of(schedule, 4);
    plan.costs = even_costs(4, {.forward = {1}, .input_gradient = {1}, .weight_gradient = {1}});
    const auto step = [&](int stage, Seconds ComputeCost::*time, double factor) {
      PipelineCosts costs = plan.costs;
      Seconds& changed = costs.stages[static_cast<std::size_t>(stage)].*time;
      changed = changed * factor;
      return evaluate(build_graph(lowered_schedule(plan), costs)).makespan.value;
    };
    const auto found = by_name(plan);
    constexpr double little = 1e-4;
    int tied = 0;
    for (int stage = 0; stage < 4; ++stage) {
      for (const auto& [kind, time] :
           {std::pair{"F", &ComputeCost::forward}, std::pair{"I", &ComputeCost::input_gradient},
            std::pair{"W", &ComputeCost::weight_gradient}}) {
        const auto entry = found.find(kind + std::string(" of stage ") + std::to_string(stage));
        if (entry == found.end()) continue;  // a backward in one
        INFO(schedule << ", " << entry->first);
        const double now = step(stage, time, 1);
        CHECK(entry->second.if_faster == Approx((now - step(stage, time, 1 - little)) / little / now).margin(1e-6));
        CHECK(entry->second.if_slower == Approx((step(stage, time, 1 + little) - now) / little / now).margin(1e-6));
        CHECK(entry->second.slope >= entry->second.if_faster - 1e-12);
        CHECK(entry->second.slope <= entry->second.if_slower + 1e-12);
        tied += is_tied(entry->second) ? 1 : 0;
      }
    }
    CHECK(tied > 0);
  }
}

TEST_CASE("the step scales with all times and against all rates of the machine") {
  // A step is a time: with every rate doubled and every time halved it halves, so their slopes add up to 1 (Euler).
  const Plan plan = plan_of("1f1b", 4);
  double sum = 0;
  for (const MachineNumber& number : numbers_of(plan.cluster.machine)) {
    const bool counts = number.unit != NumberUnit::fraction && number.unit != NumberUnit::plain;
    if (counts) sum += by_name(plan).at(number.name).slope;
  }
  CHECK(sum == Approx(1).epsilon(1e-4));
}

// As one that shares links: a message takes its bytes over what is left of a link, whatever the graph says. Compute is
// free, so that a chain of messages is all of the step.
TEST_CASE("an engine that looks at bytes sees faster messages too") {
  const StepEngine by_bytes = [](const ScheduleGraph& graph, const PipelineCosts&, const std::vector<Disturbance>&) {
    std::vector<Seconds> times;
    for (const Node& node : graph.nodes) {
      const bool message = node.kind == NodeKind::transfer;
      times.push_back({message ? static_cast<double>(node.bytes.value) * 1e-9 : 0});
    }
    return StepOutcome{.evaluation = evaluate(graph, times), .unfinished = {}};
  };
  int messages = 0;
  for (const Sensitivity& entry : sensitivities(plan_of("1f1b", 4), by_bytes)) {
    if (entry.name == "messages inside a machine") {
      ++messages;
      CHECK(entry.change == Approx(-0.1).epsilon(1e-4));  // whole bytes
      CHECK(entry.slope == Approx(1));
    } else if (entry.moved != Moved::number) {
      CHECK(entry.change == 0);
    }
  }
  CHECK(messages == 1);
}

TEST_CASE("numbers are left out where the costs do not follow from them") {
  Plan plan = plan_of("1f1b", 2);
  CHECK(by_name(plan).contains("matmul_efficiency"));
  plan.costs.stages.front().forward += Seconds{1};
  CHECK_FALSE(by_name(plan).contains("matmul_efficiency"));
  CHECK_THROWS_AS(step_uncertainty(plan, {}), InputError);
}

TEST_CASE("draws of one number spread the step as linear propagation says") {
  const Plan plan = with_open(plan_of("1f1b", 2), "memory_efficiency", 0.05);
  const StepUncertainty found = step_uncertainty(plan, {.draws = 1000});
  REQUIRE(found.contributions.size() == 1);
  CHECK(found.contributions[0].number == "memory_efficiency");
  CHECK(found.deviation == Approx(std::abs(found.contributions[0].slope) * 0.05));
  // From 5% to 95% of a normal distribution are 2 · 1.645 standard deviations.
  CHECK(std::log(found.high / found.low) == Approx(2 * 1.645 * found.deviation).epsilon(0.15));
  CHECK(found.median == Approx(1).margin(found.deviation / 5));
  const StepUncertainty again = step_uncertainty(plan, {.draws = 1000});
  CHECK(again.low == found.low);
  CHECK(step_uncertainty(plan, {.draws = 1000, .seed = 2}).low != found.low);
}

TEST_CASE("numbers that contribute alike stand by name, whatever the last bits say") {
  // A rate and its efficiency stand in the same product, and of a machine with its switches idle many contribute
  // nothing.
  Plan plan = plan_of("1f1b", 2);
  DeviceProfile& device = plan.cluster.machine.device;
  device.matmul_depth.value = 0;
  device.memory_bandwidth.uncertainty = device.memory_efficiency.uncertainty = 0.05;
  for (double factor = 1; factor < 1.02; factor += 0.001) {
    device.memory_bandwidth.value = {2e12 * factor};
    plan.costs = predicted_costs(plan);
    const std::vector<Contribution> found = step_uncertainty(plan, {.draws = 1}).contributions;
    REQUIRE(found.size() > 5);
    for (std::size_t n = 1; n < found.size(); ++n) {
      CAPTURE(factor, found[n - 1].number, found[n].number);
      const double apart = found[n - 1].step - found[n].step;
      CHECK((apart > 1e-10 || (apart > -1e-9 && found[n - 1].number < found[n].number)));
    }
  }
}

TEST_CASE("a machine without uncertainties leaves nothing open") {
  const Plan plan = with_open(plan_of("1f1b", 2), "", 0);
  const StepUncertainty found = step_uncertainty(plan, {});
  CHECK(found.deviation == 0);
  CHECK(found.low == 1);
  CHECK(found.high == 1);
  CHECK_FALSE(found.taken_as_exact.empty());
}

TEST_CASE("a plan beats itself in half of the draws, and itself on a slower machine in all") {
  const Plan plan = plan_of("1f1b", 4);
  const Ranking even = rank_plans(plan, plan, {.draws = 50});
  CHECK(even.first_wins == Approx(0.5));
  CHECK(even.faster == 0);
  CHECK(even.decisive.empty());
  Plan slower = plan;
  for (const MachineNumber& number : numbers_of(plan.cluster.machine)) {
    slower.cluster.machine = with_factor(slower.cluster.machine, number, number.more_is_faster ? 1 / 1.25 : 1.25);
  }
  slower.costs = predicted_costs(slower);
  const Ranking clear = rank_plans(plan, slower, {.draws = 50});
  CHECK(clear.first_wins == Approx(1));
  CHECK(clear.faster > 0.2);
  CHECK(clear.faster_low <= clear.faster_high);
  CHECK(rank_plans(slower, plan, {.draws = 50}).first_wins == Approx(0));
}

TEST_CASE("the deciding number between two plans is one that only one of them depends on") {
  // The same plan on machines of other names, whose numbers are independent: each other's counterpart.
  const Plan plan = with_open(plan_of("1f1b", 4), "matmul_efficiency", 0.05);
  Plan other = plan;
  other.cluster.machine.name = "other";
  const Ranking found = rank_plans(plan, other, {.draws = 400});
  CHECK_FALSE(found.same_machine);
  CHECK(found.first_wins == Approx(0.5).margin(0.1));
  REQUIRE(found.decisive.size() == 2);
  // The difference of two independent ones goes with each by 1/√2: faster matmuls here speak for the first.
  for (const Decisive& entry : found.decisive) {
    CHECK(std::abs(entry.correlation) == Approx(std::sqrt(0.5)).margin(0.1));
    CHECK((entry.correlation > 0) == (entry.number == "matmul_efficiency of dgx-a100"));
  }
}

// ln(step of A / step of B) is normal, of √2 · slope · 5%: its 5% and 95% are 1.645 of them from 0. Of 1 − A/B the
// larger ratio gives the lower end.
TEST_CASE("the range of how much faster a plan is runs from its 5% to its 95%, in this order") {
  const Plan plan = with_open(plan_of("1f1b", 4), "matmul_efficiency", 0.05);
  Plan other = plan;
  other.cluster.machine.name = "other";
  const Ranking found = rank_plans(plan, other, {.draws = 1000});
  const StepUncertainty alone = step_uncertainty(plan, {.draws = 1});
  const double reach = 1.645 * std::sqrt(2) * alone.deviation;
  CHECK(found.faster_low == Approx(1 - std::exp(reach)).epsilon(0.15));
  CHECK(found.faster_high == Approx(1 - std::exp(-reach)).epsilon(0.15));
}

// Two machines on two sites, tensor groups inside; only the reduction of gradients goes over the link between the
// sites, and takes nearly all of the step: a step of twice the time at half the bandwidth has the slope −1.
TEST_CASE("the deciding number of the network is named and quantified") {
  const Scenario scenario = read_text(
      scenario_text("cluster: {machine: dgx-a100, nodes: 2, sites: {nodes: 1, bandwidth: 1 MB/s, latency: 1 us}}\n"
                    "training: {sequence: 32, global_batch: 8, microbatch: 1, precision: bf16}\n"
                    "layout: {pipeline: 1, tensor: {degree: 2}, data: {degree: 8}}\nsplit: uniform\n"));
  const Plan plan = make_plan(scenario, only_choice(scenario));
  const StepUncertainty found = step_uncertainty(plan, {.draws = 2});
  REQUIRE_FALSE(found.taken_as_exact.empty());
  CHECK(found.taken_as_exact.front().number == "sites.bandwidth");
  CHECK(found.taken_as_exact.front().slope == Approx(-1).epsilon(0.01));
  CHECK(by_name(plan).at("sites.bandwidth").slope == Approx(1).epsilon(0.01));
  CHECK(by_name(plan).at("sites.bandwidth").change == Approx(1 / 1.1 - 1).epsilon(0.01));
}

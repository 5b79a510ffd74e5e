// Parameters of stages against those of the whole model, and against what costs count where ranks share them.
#include "common/plan/counted_stages.hpp"

#include <numeric>

#include "common/model/parameters.hpp"
#include "common/planner/make_plan.hpp"
#include "tests/catch.hpp"
#include "tests/common/plan/scenarios.hpp"

using namespace plumb;
using plumb::testing::read_text;
using plumb::testing::scenario_text;

namespace {

Plan plan_from(const std::string& text) {
  const Scenario scenario = read_text(text);
  return make_plan(scenario, only_choice(scenario));
}

std::vector<std::int64_t> stage_parameters(const Plan& plan) {
  std::vector<std::int64_t> counts;
  for (const ComputeCost& stage : counted_stages(plan)) counts.push_back(stage.parameters);
  return counts;
}

std::int64_t sum_of(const std::vector<std::int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

const std::string training = "training: {sequence: 32, global_batch: 8, microbatch: 1}\nsplit: uniform\n";

}  // namespace

TEST_CASE("the stages of a pipeline have the model's parameters, and a table that two of them tie twice") {
  for (const int pipeline : {1, 2, 4}) {
    const std::string ranks = "layout: {pipeline: " + std::to_string(pipeline) + "}\n";
    const Plan plan = plan_from(scenario_text(training + ranks));
    const ParameterCounts counts = count_parameters(plan.model);
    REQUIRE(stage_parameters(plan).size() == static_cast<std::size_t>(pipeline));
    CHECK(sum_of(stage_parameters(plan)) == counts.total);
    const Plan tied = plan_from(
        "model: {vocabulary: 512, hidden: 64, heads: 4, ffn: 128, tied_embeddings: true, "
        "layers: \"full/dense*4\"}\n" +
        training + ranks);
    CHECK(sum_of(stage_parameters(tied)) == count_parameters(tied.model).total + (pipeline > 1 ? 512 * 64 : 0));
  }
}

TEST_CASE("ranks that share tensors, and adapters beside them, are counted as costs count them") {
  const std::string gpus = "cluster: {machine: dgx-a100}\n";
  for (const std::string& rest :
       {gpus + "layout: {pipeline: 2, tensor: {degree: 2}, data: {degree: 2}}\n" + training,
        gpus + "layout: {pipeline: 4, tensor: {degree: 2, sequence_parallel: true}}\nschedule: zb-v\n" + training,
        gpus + "layout: {pipeline: 2, data: {by_stage: [2, 1]}}\nsplit: uniform\n"
               "training: {sequence: 32, global_batch: 8, microbatch: 2}\n",
        std::string("layout: {pipeline: 2}\nsplit: uniform\n"
                    "training: {sequence: 32, global_batch: 8, lora: {rank: 4}}\n")}) {
    const Plan plan = plan_from(scenario_text(rest));
    const std::vector<std::int64_t> counts = stage_parameters(plan);
    REQUIRE(counts.size() == plan.costs.stages.size());
    for (std::size_t stage = 0; stage < counts.size(); ++stage) {
      CAPTURE(rest, stage);
      CHECK(counts[stage] == plan.costs.stages[stage].parameters);
    }
  }
}

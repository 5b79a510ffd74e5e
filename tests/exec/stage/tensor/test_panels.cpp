// Products of 2d and 2.5d grids in panels: against one device, against the moves of their placed blocks, against the
// model that the seed gives, and against grids that gather whole operands.
#include <cmath>

#include "common/base/error.hpp"
#include "tests/catch.hpp"
#include "tests/exec/stage/tensor/grid_plans.hpp"
#include "tests/exec/stage/tensor/tensor_runs.hpp"

using namespace plumb;
using namespace plumb::exec;
using test::biased;
using test::describe_case;
using test::Grid;
using test::grouped;
using test::plan_of;
using test::require_passed;
using test::require_same_bits_over_gloo;
using test::Wanted;
using test::whole;

namespace {

const Grid two_by_two{.kind = TensorKind::two_d, .degree = 4, .panels = true};
const Grid four_by_four{.kind = TensorKind::two_d, .degree = 16, .microbatch = 4, .panels = true};
const Grid twice_two_by_two{
    .kind = TensorKind::two_and_half_d, .degree = 8, .depth = 2, .microbatch = 4, .panels = true};

using Pipelines = std::vector<std::pair<const char*, int>>;
const Pipelines alone{{"1f1b", 1}, {"zb-h1", 1}};
const Pipelines in_stages{{"1f1b", 2}, {"zb-h1", 2}};

// Heads of sixteen channels, which as many ranks divide: what norms of queries add up over them is even.
Model wide(Model model) {
  for (Layer& layer : model.layers) {
    auto& attention = std::get<SoftmaxAttention>(layer.mixer);
    attention.head_dim = attention.value_dim = 16;
  }
  return model;
}

void require_trains(const Grid& grid, const Pipelines& pipelines) {
  for (const Model& model : {wide(biased(2)), wide(grouped(2))}) {
    for (const auto& [schedule, ranks] : pipelines) {
      for (const ElementType precision : {ElementType::fp32, ElementType::bf16}) {
        const Plan plan = plan_of(model, grid, schedule, ranks, precision);
        INFO(describe_case(plan));
        require_passed(plan, test::train(plan, 2));
      }
    }
  }
}

}  // namespace

TEST_CASE("a 2d grid in panels trains like one device, alone and in pipelines, in both precisions, with its bytes") {
  require_trains(two_by_two, alone);
  require_trains(two_by_two, in_stages);
}

TEST_CASE("a 2d grid of four a side in panels trains like one device, alone and in pipelines, with its bytes") {
  require_trains(four_by_four, alone);
  require_trains(four_by_four, in_stages);
}

TEST_CASE("a 2.5d grid in panels trains like one device, alone and in pipelines, in both precisions, with its bytes") {
  require_trains(twice_two_by_two, alone);
  require_trains(twice_two_by_two, in_stages);
}

// Attention and MLP read one norm: all of their products are one group of panels, and in W stand behind
// attention.out's.
TEST_CASE("parallel layers, a head's bias, recomputed stages and data parallelism go in panels, too") {
  Wanted wanted{.model = test::gptj(2),
                .schedule = "zb-h1",
                .ranks = 2,
                .microbatches = 2,
                .tensor = 4,
                .kind = TensorKind::two_d,
                .asynchronous = true};
  const auto require = [&] {
    const Plan plan = test::training_plan(wanted);
    INFO(describe_case(plan));
    require_passed(plan, test::train(plan, 2));
  };
  require();
  wanted.schedule = "1f1b";
  wanted.recompute = true;
  require();
  wanted.ranks = 1;
  wanted.recompute = false;
  wanted.data = 2;
  require();
}

TEST_CASE("a grid of one row and one column has no panels, and trains like one device") {
  const Grid column{.kind = TensorKind::two_and_half_d, .degree = 2, .depth = 2, .microbatch = 2, .panels = true};
  const Plan plan = plan_of(biased(2), column, "zb-h1", 1);
  INFO(describe_case(plan));
  require_passed(plan, test::train(plan, 2));
}

TEST_CASE("the model, its first loss and its gradients in panels are those of a grid that gathers whole operands") {
  for (Grid grid : {two_by_two, four_by_four, twice_two_by_two}) {
    for (const Model& model : {biased(2), grouped(2)}) {
      const Plan plan = plan_of(model, grid, "1f1b", 1);
      INFO(describe_case(plan));
      const test::TrainingRun run = test::train(plan, 1);
      grid.panels = false;
      const Plan plain = plan_of(model, grid, "1f1b", 1);
      grid.panels = true;
      const test::TrainingRun of_plain = test::train(plain, 1);
      CHECK(whole(plan, run.before) == whole(plain, of_plain.before));
      CHECK(std::abs(run.losses.front() - of_plain.losses.front()) <= 1e-6 * of_plain.losses.front());
      const NamedGradients gradients = whole(plan, run.by_rank);
      for (const auto& [name, expected] : whole(plain, of_plain.by_rank)) {
        const std::vector<float>& found = gradients.at(name);
        double difference = 0;
        double norm = 0;
        for (std::size_t i = 0; i < expected.size(); ++i) {
          difference += std::pow(static_cast<double>(found[i]) - expected[i], 2);
          norm += std::pow(static_cast<double>(expected[i]), 2);
        }
        INFO(name);
        CHECK(std::sqrt(difference) <= 1e-4 * std::sqrt(norm) + 1e-8);  // of a key's bias the exact one is zero
      }
    }
  }
}

TEST_CASE("a grid in panels gives the same bits over gloo, and each time") {
  for (const Model& model : {biased(2), grouped(2)}) {
    for (const ElementType precision : {ElementType::fp32, ElementType::bf16}) {
      const Plan plan = plan_of(model, two_by_two, "1f1b", 1, precision);
      INFO(describe_case(plan));
      const test::TrainingRun first = require_same_bits_over_gloo(plan);
      CHECK(test::train(plan, 2).by_rank == first.by_rank);
    }
  }
}

// Blocks that the ranks of a grid share out (2d, 2.5d, 3d), alone and in pipelines: against one device, against the
// moves of their placed blocks, and against the model that the seed gives.
#include <cmath>

#include "tests/catch.hpp"
#include "tests/exec/stage/tensor/grid_plans.hpp"
#include "tests/exec/stage/tensor/tensor_runs.hpp"

using namespace plumb;
using namespace plumb::exec;
using test::biased;
using test::deep;
using test::describe_case;
using test::Grid;
using test::grouped;
using test::plan_of;
using test::require_passed;
using test::require_same_bits_over_gloo;
using test::square;
using test::Wanted;
using test::whole;

namespace {

const Grid cube{TensorKind::three_d, 8, 1, 4};
const Grid resharded{TensorKind::three_d, 8, 1, 4, true};

void require_trains(const Grid& grid) {
  for (const Model& model : {biased(2), grouped(2)}) {
    for (const auto& [schedule, ranks] :
         std::vector<std::pair<const char*, int>>{{"1f1b", 1}, {"zb-h1", 1}, {"1f1b", 2}, {"zb-h1", 2}}) {
      for (const ElementType precision : {ElementType::fp32, ElementType::bf16}) {
        const Plan plan = plan_of(model, grid, schedule, ranks, precision);
        INFO(describe_case(plan));
        require_passed(plan, test::train(plan, 2));
      }
    }
  }
}

// And the first loss, which each rank has of its own sequences.
void require_same_model(const Grid& grid) {
  for (const Model& model : {biased(2), grouped(2)}) {
    Plan alone = plan_of(model, grid, "1f1b", 1);
    alone.layout.tensor = {};
    const NamedGradients weights = kept_weights(make_stages(alone, 0, {}));
    const double loss = test::train(alone, 1).losses.front();
    const Plan plan = plan_of(model, grid, "1f1b", 2);
    INFO(describe_case(plan));
    const test::TrainingRun run = test::train(plan, 1);
    CHECK(whole(plan, run.before) == weights);
    const double first = test::train(plan_of(model, grid, "1f1b", 1), 1).losses.front();
    CHECK(std::abs(first - loss) <= 1e-6 * loss);
  }
}

}  // namespace

TEST_CASE("a 2d grid trains like one device, alone and in pipelines, in both precisions, with the bytes of its moves") {
  require_trains(square);
}

TEST_CASE("the model and its first loss on a 2d grid are those of one device") { require_same_model(square); }

TEST_CASE("a 2.5d grid trains like one device, alone and in pipelines, in both precisions, with its moves' bytes") {
  require_trains(deep);
}

TEST_CASE("the model and its first loss on a 2.5d grid are those of one device") { require_same_model(deep); }

TEST_CASE("a 3d cube trains like one device, alone and in pipelines, in both precisions, with the bytes of its moves") {
  require_trains(cube);
}

TEST_CASE("a 3d cube that gathers again trains like one device, and has the bits of one that keeps what F gathered") {
  require_trains(resharded);
  const test::TrainingRun again = test::train(plan_of(grouped(2), resharded, "1f1b", 1), 2);
  const test::TrainingRun kept = test::train(plan_of(grouped(2), cube, "1f1b", 1), 2);
  CHECK(again.losses == kept.losses);
  CHECK(again.by_rank == kept.by_rank);
  CHECK(again.peak.front() < kept.peak.front());
}

TEST_CASE("the model and its first loss on a 3d cube are those of one device") { require_same_model(cube); }

// One norm for attention and MLP, rotated pairs, a head with a bias; stages that are recomputed; pipelines side by
// side.
TEST_CASE("parallel layers, a head's bias, recomputed stages and data parallelism are a grid's, too") {
  for (const Grid& grid : {square, cube}) {
    Wanted wanted{.model = test::gptj(2),
                  .ranks = 2,
                  .microbatches = 2,
                  .recompute = true,
                  .tensor = grid.degree,
                  .kind = grid.kind,
                  .microbatch = grid.microbatch};
    const Plan redone = test::training_plan(wanted);
    INFO(describe_case(redone));
    require_passed(redone, test::train(redone, 2));
    wanted.ranks = 1;
    wanted.recompute = false;
    wanted.data = 2;
    const Plan replicas = test::training_plan(wanted);
    INFO(describe_case(replicas));
    require_passed(replicas, test::train(replicas, 2));
  }
}

// Of one column and one row nothing but copies over the depth is left.
TEST_CASE("grids with sides of three and of one train like one device") {
  Model model = biased(2);
  model.hidden = 36;
  model.vocabulary = 261;
  for (Layer& layer : model.layers) {
    auto& attention = std::get<SoftmaxAttention>(layer.mixer);
    attention.heads = attention.kv_heads = 9;
    std::get<DenseMlp>(layer.mlp).width = 54;
  }
  for (const Grid& grid : {Grid{TensorKind::two_d, 9, 1, 3}, Grid{TensorKind::two_and_half_d, 18, 2, 6},
                           Grid{TensorKind::two_and_half_d, 2, 2, 2}, Grid{TensorKind::three_d, 27, 1, 9}}) {
    const Plan plan = plan_of(model, grid, "zb-h1", 1);
    INFO(describe_case(plan));
    const CheckResult result = test::checked(plan, test::train(plan, 2));
    INFO(result.problem << " (" << result.worst_tensor << ": " << result.worst_error_ratio << ")");
    CHECK(result.passed);
  }
}

TEST_CASE("a grid gives the same bits over gloo, and whatever the nesting of the mesh") {
  for (const Model& model : {biased(2), grouped(2)}) {
    Plan plan = plan_of(model, square, "1f1b", 1, ElementType::bf16);
    INFO(describe_case(plan));
    require_same_bits_over_gloo(plan);
    plan = plan_of(model, square, "1f1b", 2, ElementType::bf16);
    const test::TrainingRun inside = test::train(plan, 2);
    const NamedGradients all = whole(plan, inside.by_rank);
    plan.layout.order = {MeshAxis::pipeline, MeshAxis::tensor, MeshAxis::context, MeshAxis::expert, MeshAxis::data};
    const test::TrainingRun outside = test::train(plan, 2);
    CHECK(outside.losses == inside.losses);
    CHECK(whole(plan, outside.by_rank) == all);
  }
}

// As if a column's sequences were not added up over the rows: of a matrix, of a norm, of positions.
TEST_CASE("the check of a grid's run notices what lacks one rank's part") {
  const Plan plan = plan_of(biased(2), square, "1f1b", 1);
  const test::TrainingRun run = test::train(plan, 1);
  REQUIRE(test::checked(plan, run).passed);
  for (const std::string name : {"layers.1.mlp.up.weight", "layers.0.norm_1.weight", "embedding.positions"}) {
    test::TrainingRun changed = run;
    for (NamedGradients& of_rank : changed.by_rank) {
      for (float& value : of_rank.at(name)) value /= 2;
    }
    const CheckResult result = test::checked(plan, changed);
    INFO(name << ": " << result.worst_tensor << " " << result.worst_error_ratio);
    CHECK_FALSE(result.passed);
    CHECK_THAT(result.problem, ContainsSubstring(name));
  }
}

// Costs of 2d, 2.5d and 3d tensor layouts (arXiv 2104.05343, 2105.14500, 2105.14450) against closed forms: bytes that
// move, and how long, by the links of the axis that they go over; weights, states and activations.
#include <algorithm>
#include <map>
#include <random>
#include <tuple>

#include "common/block_cost/block_costs.hpp"
#include "common/block_cost/group_placement.hpp"
#include "common/layout/tensor_grid.hpp"
#include "common/placement/mesh.hpp"
#include "common/plan/plan.hpp"
#include "common/planner/make_plan.hpp"
#include "common/planner/planner.hpp"
#include "common/program/program_time.hpp"
#include "common/program/program_traffic.hpp"
#include "tests/catch.hpp"
#include "tests/common/plan/scenarios.hpp"

using namespace plumb;
using namespace plumb::testing;

namespace {

constexpr std::int64_t layers = 2;
constexpr double weight_bytes = 2;    // bf16
constexpr double gradient_bytes = 4;  // main gradients in fp32
constexpr double statistic_bytes = 4;

double real(std::int64_t value) { return static_cast<double>(value); }

// GPT's layer without biases: 12 h² weights in matmuls, two RMS norms.
struct Shapes {
  std::int64_t b = 8;
  std::int64_t s = 64;
  std::int64_t h = 64;
  std::int64_t heads = 4;
  std::int64_t vocabulary = 128;
  [[nodiscard]] double bs() const { return real(b * s); }
  [[nodiscard]] double bsh() const { return real(b * s * h); }
  [[nodiscard]] double weights() const { return 12 * real(h * h); }
};

// All sizes are multiples of the ranks that a grid divides them among.
Shapes random_shapes(std::mt19937& random, std::int64_t q, std::int64_t d) {
  const auto times = [&](std::int64_t most) { return 1 + static_cast<std::int64_t>(random() % most); };
  const std::int64_t heads = q * q * times(3);
  return {.b = q * q * d * times(3),
          .s = 8 * times(16),
          .h = heads * 2 * q * times(4),
          .heads = heads,
          .vocabulary = q * q * times(40)};
}

std::string text_of(const Shapes& shapes, const TensorLayout& tensor, const std::string& rest, int pipeline = 1) {
  const auto text = [](std::int64_t number) { return std::to_string(number); };
  return "model: {vocabulary: " + text(shapes.vocabulary) + ", hidden: " + text(shapes.h) +
         ", heads: " + text(shapes.heads) + ", ffn: " + text(4 * shapes.h) +
         ", activation: gelu, norm: rmsnorm, tied_embeddings: false, layers: \"full/dense*" + text(layers) +
         "\"}\ntraining: {sequence: " + text(shapes.s) + ", microbatch: " + text(shapes.b) +
         ", global_batch: " + text(4 * shapes.b) + ", precision: bf16}\nlayout: {pipeline: " + text(pipeline) +
         ", tensor: {degree: " + text(tensor.degree) + ", kind: " + name_of(tensor.kind) +
         ", depth: " + text(tensor.depth) + (tensor.reshard_after_forward ? ", reshard_after_forward: true" : "") +
         "}}\nsplit: uniform\nschedule: 1f1b\nsoftware: plumb\n" + rest;
}

Scenario scenario_of(const Shapes& shapes, const TensorLayout& tensor, int nodes = 8, int pipeline = 1) {
  const int ranks = tensor.degree * pipeline;
  return read_text(text_of(
      shapes, tensor,
      "cluster: {machine: dgx-a100, nodes: " + std::to_string(nodes) + ", ranks: " + std::to_string(ranks) + "}\n",
      pipeline));
}

TensorLayout flat(std::int64_t q) { return {.degree = static_cast<int>(q * q), .kind = TensorKind::two_d}; }
TensorLayout deep(std::int64_t q, std::int64_t d) {
  return {.degree = static_cast<int>(d * q * q), .kind = TensorKind::two_and_half_d, .depth = static_cast<int>(d)};
}
TensorLayout cube(std::int64_t q) { return {.degree = static_cast<int>(q * q * q), .kind = TensorKind::three_d}; }

ProgramTraffic layer_traffic(const Shapes& shapes, const TensorLayout& tensor) {
  return program_traffic(program_of_block(scenario_of(shapes, tensor), 1));
}

// Two norms' sums over `over` ranks, of a rank's tokens.
double statistics(double tokens, double over) { return 2 * 2 * (over - 1) / over * tokens * statistic_bytes; }

void check(double found, double expected) { CHECK(found == Approx(expected).epsilon(1e-12)); }

}  // namespace

TEST_CASE("the program of a layer moves what the papers of 2d and 2.5d count, and the statistics of its norms") {
  std::mt19937 random(3);
  for (const auto& [q, d] : {std::pair{2, 1}, {2, 2}, {2, 3}, {3, 1}, {3, 2}, {4, 1}}) {
    const Shapes shapes = random_shapes(random, q, d);
    const double of_norms = statistics(shapes.bs() / (q * d), q);
    const double each = weight_bytes * (q - 1) * (7 * shapes.bsh() / (d * q * q) + shapes.weights() / (q * q));
    for (const TensorLayout& tensor : d == 1 ? std::vector{flat(q), deep(q, 1)} : std::vector{deep(q, d)}) {
      const ProgramTraffic traffic = layer_traffic(shapes, tensor);
      check(traffic.forward, each + of_norms);
      check(traffic.input_gradient, each + of_norms);
      check(traffic.weight_gradient, each);
      const double depth = d;
      const double copies = depth * q;  // of a norm's weight
      check(traffic.once, gradient_bytes * (2 * (depth - 1) / depth * shapes.weights() / (q * q) +
                                            2 * 2 * (copies - 1) / copies * real(shapes.h) / q));
    }
  }
}

TEST_CASE("the program of a layer moves what the paper of 3d counts, with gathered operands kept") {
  std::mt19937 random(4);
  for (const int q : {2, 3}) {
    const Shapes shapes = random_shapes(random, q, 1);
    const double part = weight_bytes * (q - 1) / (q * q * q);
    const double of_norms = statistics(shapes.bs() / (q * q), q);
    const ProgramTraffic traffic = layer_traffic(shapes, cube(q));
    check(traffic.forward, part * (16 * shapes.bsh() + shapes.weights()) + of_norms);
    check(traffic.input_gradient, part * 16 * shapes.bsh() + of_norms);
    check(traffic.weight_gradient, part * shapes.weights());
    const double copies = q * q;
    check(traffic.once, gradient_bytes * 2 * 2 * (copies - 1) / copies * real(shapes.h) / q);
  }
}

// Matrices by all axes but the depth of 2.5d, vectors of hidden channels by the columns alone.
TEST_CASE("a rank of a grid has its part of weights, gradients and states") {
  std::mt19937 random(5);
  for (const auto& [tensor, q, ways] :
       {std::tuple{flat(2), 2, 4}, {flat(3), 3, 9}, {deep(2, 2), 2, 4}, {deep(2, 3), 2, 4}, {cube(2), 2, 8}}) {
    const Shapes shapes = random_shapes(random, q, tensor.depth);
    const std::int64_t matrices = layers * 12 * shapes.h * shapes.h + 2 * shapes.vocabulary * shapes.h;
    const std::int64_t vectors = (2 * layers + 1) * shapes.h;
    const std::int64_t expected = matrices / ways + vectors / q;
    REQUIRE(matrices % ways == 0);
    ComputeCost sum = in_sequence(block_costs(scenario_of(shapes, tensor), shapes.b));
    CHECK(sum.parameters == expected);
    CHECK(sum.parameter_bytes.value == 2 * expected);
    CHECK(sum.gradient_bytes.value == 4 * expected);
    CHECK(sum.optimizer_bytes.value == 12 * expected);
  }
}

TEST_CASE(
    "a rank of a grid keeps its part of a layer's activations, in 3d also what F gathered, unless it is let go of") {
  std::mt19937 random(6);
  const auto kept = [](const Shapes& shapes, const TensorLayout& tensor) {
    return real(block_costs(scenario_of(shapes, tensor), shapes.b).at(1).kept_bytes.value);
  };
  TensorLayout resharded = cube(2);
  resharded.reshard_after_forward = true;
  for (const TensorLayout& tensor : {flat(2), flat(3), deep(2, 2), cube(2), cube(3), resharded}) {
    const std::int64_t q = tensor.kind == TensorKind::two_d && tensor.degree == 9 ? 3 : tensor.degree == 27 ? 3 : 2;
    const Shapes shapes = random_shapes(random, q, tensor.depth);
    const bool keeps = tensor.kind == TensorKind::three_d && !tensor.reshard_after_forward;
    // In place of the parts of both norms' outputs and of the activation's; an attention keeps its own for I.
    const double gathered =
        keeps
            ? weight_bytes * ((7 * shapes.bsh() + shapes.weights()) / real(q * q) - 6 * shapes.bsh() / real(q * q * q))
            : 0;
    CHECK(kept(shapes, tensor) == Approx(kept(shapes, {}) / tensor.degree + gathered).margin(1));
    // Of a table that F gathers nothing is read again: an embedding keeps what one rank alone keeps, its token ids.
    const auto of_embedding = [&](const TensorLayout& of) {
      return block_costs(scenario_of(shapes, of), shapes.b).front().kept_bytes;
    };
    CHECK(of_embedding(tensor) <= of_embedding({}));
  }
}

// Of 12 h² weights products read 7 h and make 9 h a token, without biases or with them.
TEST_CASE("for W a rank of a grid keeps what its products read as F leaves it, and the gradients of what they make") {
  std::mt19937 random(7);
  TensorLayout resharded = cube(2);
  resharded.reshard_after_forward = true;
  for (const auto& [tensor, q] : {std::pair{flat(2), 2},
                                  {flat(3), 3},
                                  {deep(2, 2), 2},
                                  {deep(2, 3), 2},
                                  {cube(2), 2},
                                  {cube(3), 3},
                                  {resharded, 2}}) {
    const Shapes shapes = random_shapes(random, q, tensor.depth);
    Scenario scenario = scenario_of(shapes, tensor);
    const bool in_cubes = tensor.kind == TensorKind::three_d;
    const double made = 9 * shapes.bsh() / (in_cubes ? q * q : tensor.degree);
    const bool keeps = in_cubes && !tensor.reshard_after_forward;
    const double read = 7 * shapes.bsh() / (keeps ? q * q : tensor.degree);
    for (const bool biased : {false, true}) {
      for (Layer& layer : scenario.model.layers) {
        std::get<SoftmaxAttention>(layer.mixer).qkv_bias = std::get<SoftmaxAttention>(layer.mixer).out_bias = biased;
        std::get<DenseMlp>(layer.mlp).bias = biased;
      }
      const ComputeCost layer = block_costs(scenario, shapes.b).at(1);
      CHECK(real(layer.kept_for_weight_bytes.value) == Approx(weight_bytes * (read + made)).margin(1));
    }
  }
}

TEST_CASE("one rank in a grid costs what one rank costs") {
  const Shapes shapes;
  const auto with_positions = [&](const TensorLayout& tensor) {
    Scenario scenario = scenario_of(shapes, tensor, 1);
    scenario.model.positions = Positions::learned;
    scenario.model.max_positions = 8 * shapes.vocabulary;  // the largest weight of the embedding
    return block_costs(scenario, shapes.b);
  };
  for (const TensorKind kind : {TensorKind::two_d, TensorKind::two_and_half_d, TensorKind::three_d}) {
    CHECK(with_positions({.kind = kind}) == with_positions({}));
  }
  for (const int pipeline : {1, 2}) {
    const auto plan_of = [&](const TensorLayout& tensor) {
      const Scenario scenario = scenario_of(shapes, tensor, 1, pipeline);
      return make_plan(scenario, only_choice(scenario));
    };
    const Plan alone = plan_of({});
    const Timeline expected = predict_by_path(alone);
    for (const TensorKind kind : {TensorKind::two_d, TensorKind::two_and_half_d, TensorKind::three_d}) {
      const Plan plan = plan_of({.kind = kind});
      CHECK(plan.costs == alone.costs);
      const Timeline timeline = predict_by_path(plan);
      CHECK(timeline.steps == expected.steps);
      CHECK(timeline.ranks == expected.ranks);
    }
  }
}

// Ranks of each group by machine, counted one by one over the mesh.
TEST_CASE("groups along a grid's axes stand where their ranks do") {
  const Shapes shapes{.b = 16, .h = 256, .heads = 64, .vocabulary = 256};
  const Scenario scenario = scenario_of(shapes, {}, 1);
  for (const TensorLayout& tensor : {flat(2), flat(4), deep(2, 2), deep(2, 4), deep(4, 2), cube(2), cube(4)}) {
    for (const auto& order : {std::array{MeshAxis::tensor, MeshAxis::data}, {MeshAxis::data, MeshAxis::tensor}}) {
      Layout layout{.order = {order[0], order[1], MeshAxis::context, MeshAxis::expert, MeshAxis::pipeline},
                    .pipeline = 2,
                    .tensor = tensor,
                    .data = {.degree = 2}};
      Cluster cluster = scenario.cluster;
      cluster.nodes = 32;
      cluster.ranks = ranks(layout);
      const Mesh mesh = mesh_of(layout);
      const TensorGroups groups = tensor_groups(layout, cluster);
      CHECK(groups.all() == tensor_placement(layout, cluster));
      std::vector<std::vector<std::string_view>> sets = {
          {"tensor.column"}, {"tensor.row"}, {"tensor.column", "tensor.row"}};
      if (tensor.kind != TensorKind::two_d) {
        sets.insert(
            sets.end(),
            {{"tensor.depth"}, {"tensor.row", "tensor.depth"}, {"tensor.column", "tensor.row", "tensor.depth"}});
      }
      for (const auto& names : sets) {
        const Axes over = set_of(axes_of(mesh, names));
        int fewest = size(mesh, over);
        for (int rank = 0; rank < ranks(mesh); ++rank) {
          std::map<int, int> members;
          for (const int other : group(mesh, rank, over)) ++members[other / cluster.machine.devices];
          for (const auto& [machine, count] : members) fewest = std::min(fewest, count);
        }
        // A placed block's mesh has the tensor layout's axes alone.
        Layout alone;
        alone.tensor = tensor;
        const GroupPlacement& found = groups.over(set_of(axes_of(mesh_of(alone), names)));
        CHECK(found.ranks == size(mesh, over));
        CHECK(found.per_machine == fewest);
      }
    }
  }
}

// Of a layer's F: four inputs and two norms' sums along the columns, six weights along the rows.
TEST_CASE("moves of a grid take what the links of their axis take") {
  const Shapes shapes{.b = 16, .s = 512, .h = 1024, .heads = 16};
  const auto forward_moves = [&](const TensorLayout& tensor) {
    const Scenario scenario = scenario_of(shapes, tensor);
    return phase_times(program_of_block(scenario, 1), scenario.cluster.machine,
                       tensor_groups(scenario.layout, scenario.cluster))
        .forward_moves.value;
  };
  const Machine machine = scenario_of(shapes, {}).cluster.machine;
  REQUIRE(machine.devices == 8);
  const double bandwidth = machine.collective_bandwidth.value.value;
  const double outside = machine.outside.bandwidth.value.value;  // of a rank's own NIC
  REQUIRE(2 * outside < bandwidth);
  for (const int q : {2, 4}) {
    const double start = machine.collective_latency.value.value + q * machine.collective_latency_per_rank.value.value;
    const double inputs = weight_bytes * (q - 1) / (q * q) * 7 * shapes.bsh();
    const double weights = weight_bytes * (q - 1) / (q * q) * shapes.weights();
    // Four neighbours are on one machine; of four rows two.
    const double between = q == 2 ? bandwidth : 2 * outside;
    check(forward_moves(flat(q)),
          (10.0 / 2 + 2) * start + (inputs + statistics(shapes.bs() / q, q)) / bandwidth + weights / between);
  }
}

TEST_CASE("stages of grids send each rank's part, and a step receives what its blocks' programs do") {
  const Shapes shapes;
  for (const TensorLayout& tensor : {flat(2), deep(2, 2), cube(2)}) {
    const Scenario scenario = scenario_of(shapes, tensor, 2, 2);
    const Plan plan = make_plan(scenario, only_choice(scenario));
    const double part = weight_bytes * shapes.bsh() / tensor.degree;
    check(real(plan.costs.boundary_bytes.value), part);
    const Timeline timeline = predict_by_path(plan);
    for (const int rank : {0, 1}) {
      double received = 0;
      const std::vector<std::size_t> blocks =
          rank == 0 ? std::vector<std::size_t>{0, 1} : std::vector<std::size_t>{2, 3};
      for (const std::size_t block : blocks) {
        const ProgramTraffic traffic = program_traffic(program_of_block(scenario, block));
        received += 4 * (traffic.forward + traffic.input_gradient + traffic.weight_gradient) + traffic.once;
      }
      const auto at = static_cast<std::size_t>(rank);
      REQUIRE(timeline.ranks[at].by_axis);
      CHECK(real(timeline.ranks[at].by_axis->tensor.value) == Approx(received).margin(1));
      check(real(timeline.ranks[at].by_axis->pipeline.value), 4 * part);
    }
  }
}

TEST_CASE("a microbatch that a grid does not divide is refused with the needed size") {
  const auto refused = [](const Shapes& shapes, const TensorLayout& tensor, const std::string& hint) {
    const Scenario scenario = scenario_of(shapes, tensor);
    try {
      (void)make_plan(scenario, only_choice(scenario));
      FAIL("it was planned");
    } catch (const InputError& error) {
      CHECK_THAT(error.problem(), ContainsSubstring("divides the sequences of a microbatch"));
      CHECK(error.hint() == hint);
    }
  };
  refused({.b = 3}, flat(2), "microbatch: 2, or a multiple of it");
  refused({.b = 2}, deep(2, 2), "microbatch: 4, or a multiple of it");
  refused({.b = 2}, cube(2), "microbatch: 4, or a multiple of it");
}

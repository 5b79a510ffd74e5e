// Collectives in pieces beside their products, against closed forms of the ring and against what they are made from.
#include "common/program/decomposed.hpp"

#include <algorithm>
#include <functional>
#include <set>
#include <string>

#include "common/block_cost/group_placement.hpp"
#include "common/layout/tensor_grid.hpp"
#include "common/program/block_program.hpp"
#include "common/program/program_memory.hpp"
#include "common/program/program_parts.hpp"
#include "common/program/program_time.hpp"
#include "common/program/program_traffic.hpp"
#include "tests/catch.hpp"
#include "tests/common/placement/all_models.hpp"

using namespace plumb;
using namespace plumb::testing;

namespace {

constexpr std::int64_t all_rows = 2 * 512;  // of a microbatch
constexpr double channels = 1024;
constexpr double elements_moved = all_rows * channels;
constexpr double flops_per_s = 1e14;

Model plain_gpt() {
  return Model{.vocabulary = 1024,
               .hidden = 1024,
               .layers = {Layer{.mixer = SoftmaxAttention{.heads = 16, .kv_heads = 16, .head_dim = 64, .value_dim = 64},
                                .mlp = DenseMlp{.width = 4 * 1024, .activation = Activation::gelu}}}};
}

// Products take their FLOPs at the peak, all else but the wire nothing.
Machine with_wire(double bytes_per_s) {
  Machine result{.name = "made up", .devices = 8};
  result.device.peak.value = {flops_per_s};
  result.device.matmul_efficiency.value = 1;
  result.device.attention_efficiency.value = 1;
  result.device.memory_bandwidth.value = {1e30};
  result.device.memory_efficiency.value = 1;
  result.collective_bandwidth.value = {bytes_per_s};
  return result;
}

BlockProgram in_group(int ranks, bool asynchronous, const Software& software = {}) {
  const KernelContext context{.sequence = all_rows / 2,
                              .microbatch = 2,
                              .precision = ElementType::bf16,
                              .software = software,
                              .asynchronous = asynchronous};
  const PlacedBlock placed = place_block(
      plain_gpt(), 1, {.degree = ranks, .sequence_parallel = true, .asynchronous = asynchronous}, {2, all_rows / 2});
  return block_program(layer_operations(plain_gpt(), 0, operation_context(context)), context, placed);
}

double attention_seconds(const BlockProgram& program, Phase phase) {
  double seconds = 0;
  for (const ProgramStep& step : program.steps) {
    if (step.kind == StepKind::core && step.phase == phase) seconds += step.flops.value / flops_per_s;
  }
  return seconds;
}

}  // namespace

// Of a product of C seconds and its collective of X: C/t of the piece that has nothing beside it, then the longer of
// the other t−1 and of the wire.
TEST_CASE("a product and its collective take the longer of both but for one piece") {
  for (const int t : {2, 4, 8}) {
    for (const double bytes_per_s : {1e10, 1e11, 1e12, 1e13}) {
      INFO(t << " ranks, " << bytes_per_s);
      const Machine device = with_wire(bytes_per_s);
      const GroupPlacement group{.ranks = t, .per_machine = t};
      const PhaseTimes times = phase_times(in_group(t, true), device, group);
      const double wire = (t - 1.0) / t * 2 * elements_moved / bytes_per_s;
      const auto together = [&](double elements) {  // of the weights that a rank multiplies with, in units of h²
        const double product = 2 * all_rows * elements * channels * channels / t / flops_per_s;
        return product / t + std::max((t - 1) * product / t, wire);
      };
      // Queries, keys and values; what attention gives; up; down.
      const double all = together(3) + together(1) + together(4) + together(4);
      const double attention = attention_seconds(in_group(t, false), Phase::forward);
      CHECK(times.forward.value == Approx(all + attention).epsilon(1e-9));
      const double gradient = attention_seconds(in_group(t, false), Phase::input_gradient);
      CHECK(times.input_gradient.value == Approx(all + gradient).epsilon(1e-9));
      // W gathers what columns read; what rows' outputs have been gathered for is I.
      const double by_rows = 2 * all_rows * 5 * channels * channels / t / flops_per_s;
      CHECK(times.weight_gradient.value == Approx(together(3) + together(4) + by_rows).epsilon(1e-9));
      CHECK(times.hidden.value == 0);
      CHECK(times.forward_moves.value + times.forward_beside.value == Approx(4 * wire).epsilon(1e-9));
    }
  }
}

TEST_CASE("pieces bring as many bytes, do as many FLOPs and need as much memory as the whole") {
  for (const int t : {2, 4}) {
    const BlockProgram whole = in_group(t, false);
    const BlockProgram pieces = in_group(t, true);
    CHECK(program_memory(pieces).kept == program_memory(whole).kept);
    CHECK(program_memory(pieces).kept_for_weight == program_memory(whole).kept_for_weight);
    CHECK(pieces.once == whole.once);
    for (const Phase phase : {Phase::forward, Phase::input_gradient, Phase::weight_gradient}) {
      CHECK(of_phase(program_traffic(pieces), phase) == Approx(of_phase(program_traffic(whole), phase)));
      CHECK(moves_of(pieces, phase).size() == static_cast<std::size_t>(t - 1) * moves_of(whole, phase).size());
      const auto flops = [&](const BlockProgram& program) {
        double sum = 0;
        for (const ProgramStep& step : program.steps) {
          if (step.phase == phase) sum += step.matmul.batch * step.matmul.m * step.matmul.n * step.matmul.k;
        }
        return sum;
      };
      CHECK(flops(pieces) == Approx(flops(whole)));
    }
  }
}

TEST_CASE("received pieces of a reduce-scatter are added: t parts are read, one is written") {
  for (const int t : {2, 4}) {
    for (const Phase phase : {Phase::forward, Phase::input_gradient, Phase::weight_gradient}) {
      double bytes = 0;
      for (const ProgramStep& step : in_group(t, true).steps) {
        if (step.phase == phase && step.name.ends_with(".add")) bytes += step.bytes;
      }
      const int scatters = phase == Phase::weight_gradient ? 0 : 2;
      CHECK(bytes == Approx(scatters * 2 * elements_moved * (t + 1) / t));
    }
  }
}

TEST_CASE("a gather's own piece goes first, and a scatter's own piece last") {
  const BlockProgram program = in_group(2, true);
  std::vector<std::string> forward;
  for (const ProgramStep& step : program.steps) {
    if (step.phase != Phase::forward || step.kind == StepKind::stream || step.kind == StepKind::core) continue;
    std::string text = step.name;
    for (const std::size_t other : step.beside) text += " | " + program.steps[other].name;
    forward.push_back(text);
  }
  const std::string q = "attention.q";
  const std::string k = "attention.k";
  const std::string v = "attention.v";
  const std::string out = "attention.out";
  CHECK(forward == std::vector<std::string>{q, k, v, "attention.q.gather | attention.q | attention.k | attention.v", q,
                                            k, v, out, out, "attention.out.reduce | attention.out", "mlp.up",
                                            "mlp.up.gather | mlp.up", "mlp.up", "mlp.down", "mlp.down",
                                            "mlp.down.reduce | mlp.down"});
}

// Where tokens are dispatched, which experts each has chosen is gathered, too, and no product reads that.
TEST_CASE("a shared expert's products go beside the gather of the tokens that they read") {
  Model model = plain_gpt();
  model.layers[0].mlp = MoeMlp{.experts = 8, .top_k = 2, .width = 512, .shared_width = 1024};
  const Software software;
  const KernelContext context{.sequence = 64, .microbatch = 4, .software = software, .asynchronous = true};
  const PlacedBlock placed =
      place_block(model, 1, {.degree = 4, .sequence_parallel = true, .asynchronous = true}, {4, 64});
  const BlockProgram program = block_program(layer_operations(model, 0, operation_context(context)), context, placed);
  std::set<std::string> beside;  // of what is gathered in F
  for (const ProgramStep& step : program.steps) {
    if (step.kind != StepKind::move || step.phase != Phase::forward || step.move.role != Role::input) continue;
    for (const std::size_t other : step.beside) beside.insert(step.move.tensor + " | " + program.steps[other].name);
  }
  CHECK(beside == std::set<std::string>{"norm_1 | attention.q", "norm_1 | attention.k", "norm_1 | attention.v",
                                        "norm_2 | mlp.shared.gate", "norm_2 | mlp.shared.up"});
}

TEST_CASE("pieces come around the ring from the rank before, and go to that first") {
  const auto order = [](Collective collective, int ranks, int position) {
    std::vector<int> whose;
    for (int number = 0; number < ranks; ++number) whose.push_back(whose_piece(collective, ranks, position, number));
    return whose;
  };
  CHECK(order(Collective::all_gather, 4, 1) == std::vector<int>{1, 0, 3, 2});
  CHECK(order(Collective::reduce_scatter, 4, 1) == std::vector<int>{0, 3, 2, 1});
  CHECK(order(Collective::all_gather, 2, 0) == std::vector<int>{0, 1});
  CHECK(order(Collective::reduce_scatter, 2, 1) == std::vector<int>{0, 1});
}

TEST_CASE("parts of actions take as long as the phases in pieces, in every layout of each model that divides tokens") {
  const GroupPlacement group{.ranks = 4, .per_machine = 4};
  Machine device = with_wire(5e10);
  device.device.matmul_depth.value = 64;
  device.collective_latency.value = {2e-5};
  const TensorLayout tensor{.degree = 4, .sequence_parallel = true, .asynchronous = true};
  for (const Software& software :
       {Software{}, Software{.fused_projections = true, .tensor_overlap = true}, Software{.flash_attention = false}}) {
    const KernelContext context{
        .sequence = 64, .microbatch = 4, .precision = ElementType::bf16, .software = software, .asynchronous = true};
    for (const Model& model : models_divided_by(tensor)) {
      if (model.vision) continue;
      for (std::size_t block = 0; block < model.layers.size() + 2; ++block) {
        if (is_repeated(model, block)) continue;
        INFO(model.name << ", block " << block);
        const PlacedBlock placed = place_block(model, block, tensor, {.sequences = 4, .sequence = 64});
        const BlockProgram program =
            block_program(operations_of(model, block, operation_context(context)), context, placed);
        const PhaseTimes times = phase_times(program, device, group);
        CollectiveTable table(device, group);
        const auto seconds = [&](const std::vector<Phase>& phases) {
          return time_of(action_parts(program.steps, phases, table), table).value;
        };
        CHECK(seconds({Phase::forward}) == Approx(times.forward.value).epsilon(1e-9));
        CHECK(seconds({Phase::input_gradient}) == Approx(times.input_gradient.value).epsilon(1e-9));
        CHECK(seconds({Phase::weight_gradient}) == Approx(times.weight_gradient.value).epsilon(1e-9));
        CHECK(seconds({Phase::input_gradient, Phase::weight_gradient}) ==
              Approx((times.input_gradient + times.weight_gradient - times.hidden).value).epsilon(1e-9));
      }
    }
  }
}

namespace {

// Of a layer on a grid whose ranks are all on one machine.
struct OnGrid {
  TensorLayout tensor;
  double q = 2;

  [[nodiscard]] BlockProgram program(bool asynchronous) const {
    TensorLayout layout = tensor;
    layout.asynchronous = asynchronous;
    const Software software;
    const KernelContext context{.sequence = all_rows / 8,
                                .microbatch = 8,
                                .precision = ElementType::bf16,
                                .software = software,
                                .asynchronous = asynchronous};
    const PlacedBlock placed = place_block(plain_gpt(), 1, layout, {8, all_rows / 8});
    return block_program(layer_operations(plain_gpt(), 0, operation_context(context)), context, placed);
  }

  [[nodiscard]] TensorGroups groups(const Machine& device) const {
    Layout layout;
    layout.tensor = tensor;
    Cluster cluster;
    cluster.machine = device;
    cluster.ranks = tensor.degree;
    return tensor_groups(layout, cluster);
  }
};

std::vector<OnGrid> grids() {
  return {{.tensor = {.degree = 4, .kind = TensorKind::two_d}, .q = 2},
          {.tensor = {.degree = 16, .kind = TensorKind::two_d}, .q = 4},
          {.tensor = {.degree = 8, .kind = TensorKind::two_and_half_d, .depth = 2}, .q = 2}};
}

double seconds_of_kind(const BlockProgram& program, Phase phase, const Machine& device, const TensorGroups& groups,
                       const std::function<bool(const ProgramStep&)>& wanted) {
  double seconds = 0;
  for (const ProgramStep& step : program.steps) {
    if (step.phase == phase && wanted(step)) seconds += step_time(step, device, groups).value;
  }
  return seconds;
}

}  // namespace

// q panels of c; beside each the operands' of the next one and the result's of the one before.
TEST_CASE("a product on a grid and its moves take the longer of both but for the first panel and the last") {
  for (const OnGrid& grid : grids()) {
    for (const double bytes_per_s : {1e10, 1e11, 1e12, 1e13}) {
      const double q = grid.q;
      const double depth = grid.tensor.depth;
      INFO(grid_text(grid.tensor) << ", " << bytes_per_s);
      Machine device = with_wire(bytes_per_s);
      device.devices = 16;
      const TensorGroups groups = grid.groups(device);
      const PhaseTimes times = phase_times(grid.program(true), device, groups);
      // In units of h: what it reads; of h²: the weights that read it.
      const auto together = [&](double weights, double inputs, Phase phase) {
        const double product = 2 * all_rows * weights * channels * channels / (q * q * depth) / flops_per_s / q;
        const double part = 2 / (q * q) / bytes_per_s;  // of a panel a block, of two bytes an element
        const double value = part * elements_moved * inputs / depth;
        const double matrix = part * weights * channels * channels;
        const double before = phase == Phase::forward          ? value + matrix
                              : phase == Phase::input_gradient ? matrix
                                                               : value;
        const double behind = phase == Phase::forward ? 0 : phase == Phase::input_gradient ? value : matrix;
        double sum = before + behind;
        for (int panel = 0; panel < static_cast<int>(q); ++panel) {
          sum += std::max(product, (panel > 0 ? behind : 0) + (panel + 1 < static_cast<int>(q) ? before : 0));
        }
        return sum;
      };
      for (const Phase phase : {Phase::forward, Phase::input_gradient, Phase::weight_gradient}) {
        const double others = seconds_of_kind(grid.program(false), phase, device, groups, [](const ProgramStep& step) {
          return step.kind == StepKind::core || (step.kind == StepKind::move && step.move.role == Role::statistics);
        });
        const double all =
            together(3, 1, phase) + together(1, 1, phase) + together(4, 1, phase) + together(4, 4, phase) + others;
        const Seconds found = phase == Phase::forward          ? times.forward
                              : phase == Phase::input_gradient ? times.input_gradient
                                                               : times.weight_gradient;
        CHECK(found.value == Approx(all).epsilon(1e-9));
      }
    }
  }
}

TEST_CASE("panels bring as many bytes and do as many FLOPs as the whole, and parts of actions take as long as phases") {
  for (const OnGrid& grid : grids()) {
    INFO(grid_text(grid.tensor));
    Machine device = with_wire(5e10);
    device.devices = 16;
    device.device.matmul_depth.value = 64;
    device.collective_latency.value = {2e-5};
    const BlockProgram whole = grid.program(false);
    const BlockProgram panels = grid.program(true);
    const TensorGroups groups = grid.groups(device);
    const PhaseTimes times = phase_times(panels, device, groups);
    CHECK(panels.once == whole.once);
    CHECK(panels.kept == whole.kept);
    CollectiveTable table(device, groups);
    for (const auto& [phase, time] : {std::pair{Phase::forward, times.forward},
                                      {Phase::input_gradient, times.input_gradient},
                                      {Phase::weight_gradient, times.weight_gradient}}) {
      CHECK(of_phase(program_traffic(panels), phase) == Approx(of_phase(program_traffic(whole), phase)));
      const auto flops = [phase = phase](const BlockProgram& program) {
        double sum = 0;
        for (const ProgramStep& step : program.steps) {
          if (step.phase == phase) sum += step.matmul.batch * step.matmul.m * step.matmul.n * step.matmul.k;
        }
        return sum;
      };
      CHECK(flops(panels) == Approx(flops(whole)));
      CHECK(time_of(action_parts(panels.steps, std::vector{phase}, table), table).value ==
            Approx(time.value).epsilon(1e-9));
    }
    CHECK(time_of(action_parts(panels.steps, std::vector{Phase::input_gradient, Phase::weight_gradient}, table), table)
              .value == Approx((times.input_gradient + times.weight_gradient).value).epsilon(1e-9));
  }
}

// I has the gradients of all of them at once, behind attention's products: W's panels stand there, too.
TEST_CASE("matmuls that read a parallel layer's norm form one group of panels, the last of I and W") {
  Model model = plain_gpt();
  model.layers[0].parallel = true;
  model.layers[0].norms = 1;
  const Software software;
  const KernelContext context{.sequence = 64, .microbatch = 4, .software = software, .asynchronous = true};
  const TensorLayout tensor{.degree = 4, .kind = TensorKind::two_d, .asynchronous = true};
  const PlacedBlock placed = place_block(model, 1, tensor, {4, 64});
  const BlockProgram program = block_program(layer_operations(model, 0, operation_context(context)), context, placed);
  for (const Phase phase : {Phase::input_gradient, Phase::weight_gradient}) {
    std::vector<std::string> products;  // against the list, as they run
    for (auto step = program.steps.rbegin(); step != program.steps.rend(); ++step) {
      if (step->phase != phase || step->kind != StepKind::matmul) continue;
      products.push_back(step->name.substr(0, step->name.rfind('.')));  // without its phase
    }
    const std::vector<std::string> group{"mlp.up", "attention.v", "attention.k", "attention.q"};
    std::vector<std::string> expected{"mlp.down", "mlp.down", "attention.out", "attention.out"};
    for (int panel = 0; panel < 2; ++panel) expected.insert(expected.end(), group.begin(), group.end());
    CHECK(products == expected);
  }
}

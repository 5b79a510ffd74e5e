// The program of a block: its FLOPs are the operations', its collectives those of the placed block, their bytes those
// of the tensor layout's papers.
#include "common/program/block_program.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <tuple>

#include "common/program/program_memory.hpp"
#include "common/program/program_time.hpp"
#include "common/program/program_traffic.hpp"
#include "common/program/written_moves.hpp"
#include "tests/catch.hpp"
#include "tests/common/placement/all_models.hpp"

using namespace plumb;
using namespace plumb::testing;

namespace {

constexpr std::int64_t tokens_of_sequence = 512;
constexpr std::int64_t hidden = 1024;

Model gpt() {
  return Model{
      .vocabulary = 1024,
      .hidden = hidden,
      .layers = {Layer{
          .mixer =
              SoftmaxAttention{
                  .heads = 16, .kv_heads = 16, .head_dim = 64, .value_dim = 64, .qkv_bias = true, .out_bias = true},
          .mlp = DenseMlp{.width = 4 * hidden, .activation = Activation::gelu, .bias = true},
          .norm = NormKind::layernorm}},
      .final_norm = NormKind::layernorm,
      .positions = Positions::learned,
      .max_positions = tokens_of_sequence};
}

BlockProgram layer(const Software& software, int tensor, bool sequence_parallel, const Model& model = gpt()) {
  const KernelContext context{
      .sequence = tokens_of_sequence, .microbatch = 2, .precision = ElementType::fp16, .software = software};
  const PlacedBlock placed = place_block(model, 1, {.degree = tensor, .sequence_parallel = sequence_parallel},
                                         {.sequences = context.microbatch, .sequence = context.sequence});
  return block_program(layer_operations(model, 0, operation_context(context)), context, placed);
}

double matmul_flops(const BlockProgram& program, Phase phase) {
  double sum = 0;
  for (const ProgramStep& step : program.steps) {
    if (step.kind != StepKind::matmul || step.phase != phase) continue;
    sum += 2 * step.matmul.batch * step.matmul.m * step.matmul.n * step.matmul.k;
  }
  return sum;
}

// Bytes of whole tensors, by kind and phase.
double bytes_of(const BlockProgram& program, Collective collective, Phase phase) {
  double sum = 0;
  for (const ProgramStep& step : program.steps) {
    const bool counted = step.kind == StepKind::move && step.move.collective == collective;
    if (counted && step.phase == phase) sum += step.move.bytes;
  }
  return sum;
}

std::vector<std::string> names(const BlockProgram& program, Phase phase) {
  std::vector<std::string> all;
  for (const StepMove* move : moves_of(program, phase)) {
    all.push_back(std::string(name_of(move->collective)) + " of " + std::string(name_of(move->role)) + " " +
                  move->tensor + " at " + move->site);
  }
  return all;
}

Software unfused() { return {.flash_attention = false, .dropout = true, .fused_projections = true}; }

}  // namespace

TEST_CASE("a layer's matmuls are 24 T h² + 4 T s h FLOPs in F, as many each in I and W but for the scores") {
  const double T = 2.0 * tokens_of_sequence;
  const double weights = 24 * T * hidden * hidden;
  const double scores = 4 * T * tokens_of_sequence * hidden;
  for (const int tensor : {1, 4}) {
    for (const bool fused : {true, false}) {
      Software software = unfused();
      software.fused_projections = fused;
      const BlockProgram program = layer(software, tensor, false);
      CHECK(matmul_flops(program, Phase::forward) == Approx((weights + scores) / tensor));
      CHECK(matmul_flops(program, Phase::input_gradient) == Approx((weights + 2 * scores) / tensor));
      CHECK(matmul_flops(program, Phase::weight_gradient) == Approx(weights / tensor));
    }
  }
}

// arXiv 1909.08053, section 3: two all-reduces of bsh in each direction.
TEST_CASE("a layer in 1d tensor layout reduces its activations twice in F and twice in I") {
  const double bsh = 2.0 * 2 * tokens_of_sequence * hidden;
  const BlockProgram program = layer(unfused(), 4, false);
  CHECK(bytes_of(program, Collective::all_reduce, Phase::forward) == 2 * bsh);
  CHECK(bytes_of(program, Collective::all_reduce, Phase::input_gradient) == 2 * bsh);
  CHECK(bytes_of(program, Collective::all_gather, Phase::forward) == 0);
  CHECK(bytes_of(layer(unfused(), 1, false), Collective::all_reduce, Phase::forward) == 0);
}

// arXiv 2205.05198, section 4.2.2: the same volume as gathers and scatters, and the inputs gathered once more for W.
TEST_CASE("with sequence parallelism they are gathered and scattered") {
  const double bsh = 2.0 * 2 * tokens_of_sequence * hidden;
  const BlockProgram program = layer(unfused(), 4, true);
  CHECK(bytes_of(program, Collective::all_gather, Phase::forward) == 2 * bsh);
  CHECK(bytes_of(program, Collective::reduce_scatter, Phase::forward) == 2 * bsh);
  CHECK(bytes_of(program, Collective::all_gather, Phase::input_gradient) == 2 * bsh);
  CHECK(bytes_of(program, Collective::all_gather, Phase::weight_gradient) == 2 * bsh);
  CHECK(bytes_of(program, Collective::reduce_scatter, Phase::input_gradient) == 2 * bsh);
  CHECK(bytes_of(program, Collective::all_reduce, Phase::forward) == 0);
}

TEST_CASE("collectives of the backward hide behind matmuls only where the software overlaps them") {
  Machine machine;
  machine.device.peak.value = {1e14};
  machine.device.matmul_efficiency.value = 1;
  machine.device.attention_efficiency.value = 1;
  machine.device.memory_bandwidth.value = {1e18};
  machine.device.memory_efficiency.value = 1;
  machine.collective_bandwidth.value = {1e12};
  const GroupPlacement group{.ranks = 4, .per_machine = 4};
  Software software = unfused();
  const PhaseTimes exposed = phase_times(layer(software, 4, false), machine, group);
  software.tensor_overlap = true;
  const PhaseTimes hidden_times = phase_times(layer(software, 4, false), machine, group);
  const double bsh = 2.0 * 2 * tokens_of_sequence * hidden;
  CHECK(exposed.hidden.value == 0);
  // Alone, I takes as long: what its collectives hide behind is W. Together both are hidden whole.
  CHECK(hidden_times.input_gradient.value == Approx(exposed.input_gradient.value));
  CHECK(hidden_times.hidden.value == Approx(2 * 2 * 3.0 / 4 * bsh / 1e12));

  // arXiv 2205.05198, section 4.2.2: a full backward hides both gathers of inputs and both scatters of their gradients;
  // where I and W are apart, W waits for the gathers and I for the scatters.
  const double each = 3.0 / 4 * bsh / 1e12;
  const PhaseTimes by_tokens = phase_times(layer(software, 4, true), machine, group);
  software.tensor_overlap = false;
  const PhaseTimes exposed_by_tokens = phase_times(layer(software, 4, true), machine, group);
  CHECK(by_tokens.hidden.value == Approx(4 * each));
  CHECK(by_tokens.input_gradient_moves.value == Approx(4 * each));
  CHECK(by_tokens.weight_gradient_moves.value == Approx(2 * each));
  CHECK(exposed_by_tokens.hidden.value == 0);
  CHECK(exposed_by_tokens.input_gradient_moves.value == Approx(4 * each));
  CHECK(exposed_by_tokens.weight_gradient_moves.value == Approx(2 * each));
  CHECK(exposed_by_tokens.weight_gradient.value == Approx(by_tokens.weight_gradient.value));
}

// W reads the outputs of two norms, of attention and activation, and the gradients of q, k, v, of what widens, and of
// what attention and MLP give: these two alone as I has gathered them. F keeps as many elements, and statistics.
TEST_CASE("saved values for W are sharded, except gradients that I has gathered") {
  const double bsh = 2.0 * 2 * tokens_of_sequence * hidden;
  Software software;
  CHECK(program_memory(layer(software, 1, false)).kept_for_weight == 16 * bsh);
  for (const int tensor : {2, 4, 8}) {
    const ProgramMemory by_tokens = program_memory(layer(software, tensor, true));
    CHECK(by_tokens.kept_for_weight == Approx((14.0 / tensor + 2) * bsh));
    CHECK(by_tokens.kept == Approx(16.0 / tensor * bsh).epsilon(0.01));
    CHECK(program_memory(layer(software, tensor, false)).kept_for_weight == Approx((12.0 / tensor + 4) * bsh));
  }
  // Of the embedding's output W reads the gradient alone, and gathers it.
  const Model model = gpt();
  const KernelContext context{
      .sequence = tokens_of_sequence, .microbatch = 2, .precision = ElementType::fp16, .software = software};
  const PlacedBlock placed =
      place_block(model, 0, {.degree = 4, .sequence_parallel = true}, {.sequences = 2, .sequence = tokens_of_sequence});
  const BlockProgram embedding =
      block_program(embedding_operations(model, operation_context(context)), context, placed);
  CHECK(names(embedding, Phase::input_gradient).empty());
  CHECK(names(embedding, Phase::weight_gradient) ==
        std::vector<std::string>{"all-gather of output gradient embedding at embedding"});
}

TEST_CASE("the host's launches are the least that a phase takes") {
  Machine machine;
  machine.device.peak.value = {1e30};
  machine.device.matmul_efficiency.value = machine.device.attention_efficiency.value = 1;
  machine.device.memory_bandwidth.value = {1e30};
  machine.device.memory_efficiency.value = 1;
  machine.device.launch_time.value = {1e-5};
  const BlockProgram program = layer(unfused(), 1, false);
  const auto launches = std::ranges::count(program.steps, Phase::forward, &ProgramStep::phase);
  CHECK(phase_times(program, machine, {}).forward.value == Approx(1e-5 * static_cast<double>(launches)));
}

namespace {

std::vector<Operation> operations_of(const Model& model, std::size_t block, const OperationContext& context) {
  if (block == 0) return embedding_operations(model, context);
  if (block <= model.layers.size()) return layer_operations(model, block - 1, context);
  std::vector<Operation> all = head_operations(model, context);
  for (Operation& operation : mtp_operations(model, context)) all.push_back(std::move(operation));
  return all;
}

using NamedMove = std::tuple<Phase, Role, std::string, std::string, Collective, std::uint16_t>;

std::vector<NamedMove> moves_of(const PlacedBlock& placed) {
  std::vector<NamedMove> all;
  for (const PlacedMove& each : placed.moves) {
    if (!each.move.collective) continue;
    all.emplace_back(each.phase, each.role, each.site, each.tensor, *each.move.collective, each.move.over.bits);
  }
  return all;
}

// Phase by phase, as they come.
std::vector<NamedMove> moves_of(const BlockProgram& program) {
  std::vector<NamedMove> all;
  for (const Phase phase : {Phase::forward, Phase::input_gradient, Phase::weight_gradient}) {
    for (const StepMove* move : moves_of(program, phase)) {
      all.emplace_back(phase, move->role, move->site, move->tensor, move->collective, move->over.bits);
    }
  }
  return all;
}

std::vector<NamedMove> sorted(std::vector<NamedMove> all) {
  std::ranges::sort(all);
  return all;
}

// `check` of every block of every model that a layout places, with its operations as a software makes them.
template <class Check>
void for_every_block(const TensorLayout& tensor, const Software& software, const Check& check) {
  for (const Model& model : models_divided_by(tensor)) {
    const std::int64_t sequence = model.vision ? tokens(*model.vision) : 64;
    const KernelContext context{
        .sequence = sequence, .microbatch = 4, .precision = ElementType::bf16, .software = software};
    for (std::size_t block = 0; block < model.layers.size() + 2; ++block) {
      if (is_repeated(model, block) || (model.vision && block > model.layers.size())) continue;  // 1000 classes
      if (!has_place(tensor, model, block)) continue;
      INFO(model.name << ", block " << block << (tensor.sequence_parallel ? ", by tokens" : ""));
      CAPTURE(static_cast<int>(tensor.kind));
      const PlacedBlock placed = place_block(model, block, tensor, {.sequences = 4, .sequence = sequence});
      check(placed, block_program(operations_of(model, block, operation_context(context)), context, placed));
    }
  }
}

}  // namespace

TEST_CASE("in every layout a program has every collective of the placed block once, in its order, with its bytes") {
  for (const TensorLayout& tensor : tensor_layouts()) {
    for_every_block(tensor, Software{}, [](const PlacedBlock& placed, const BlockProgram& program) {
      CHECK(moves_of(program) == moves_of(placed));
      std::array<double, 3> bytes{};
      for (const PlacedMove& each : placed.moves) {
        bytes.at(static_cast<std::size_t>(each.phase)) += received_bytes(placed, each, ElementType::bf16);
      }
      const ProgramTraffic traffic = program_traffic(program);
      CHECK(traffic.forward == Approx(bytes[0]));
      CHECK(traffic.input_gradient == Approx(bytes[1]));
      CHECK(traffic.weight_gradient == Approx(bytes[2]));
    });
  }
}

TEST_CASE("so it has where projections are fused, attention is several operations, and recurrences are one") {
  const std::vector<Software> all = {{.fused_projections = true, .tensor_overlap = true},
                                     {.flash_attention = false, .dropout = true},
                                     {.composed = false}};
  for (const Software& software : all) {
    for (const TensorLayout& tensor : tensor_layouts()) {
      for_every_block(tensor, software, [](const PlacedBlock& placed, const BlockProgram& program) {
        CHECK(sorted(moves_of(program)) == sorted(moves_of(placed)));
      });
    }
  }
}

// arXiv 2104.05343, algorithms 1 to 3: of y = x·w both operands are gathered; of dx = dy·wᵀ the weights are, and the
// products reduced; of dw = xᵀ·dy what was read is, and the products reduced.
TEST_CASE("a matmul of the 2d layout gathers its operands, and reduces what I and W make") {
  const Software software;
  const KernelContext context{.sequence = 512, .microbatch = 2, .precision = ElementType::bf16, .software = software};
  const PlacedBlock placed = place_block(gpt(), 1, {.degree = 4, .kind = TensorKind::two_d}, {2, 512});
  const BlockProgram program = block_program(layer_operations(gpt(), 0, operation_context(context)), context, placed);
  const auto of_site = [&](Phase phase) {
    std::vector<std::string> all = names(program, phase);
    std::erase_if(all, [](const std::string& name) { return !name.ends_with(" at mlp.up"); });
    return all;
  };
  CHECK(of_site(Phase::forward) == std::vector<std::string>{"all-gather of input norm_2 at mlp.up",
                                                            "all-gather of weight mlp.up.weight at mlp.up"});
  CHECK(of_site(Phase::input_gradient) ==
        std::vector<std::string>{"all-gather of weight mlp.up.weight at mlp.up",
                                 "reduce-scatter of input gradient norm_2 at mlp.up"});
  CHECK(of_site(Phase::weight_gradient) ==
        std::vector<std::string>{"all-gather of input norm_2 at mlp.up",
                                 "reduce-scatter of weight gradient mlp.up.weight at mlp.up"});
  // Between its moves stands the product.
  const auto at = [&](const std::string& name) {
    return std::ranges::find(program.steps, name, &ProgramStep::name) - program.steps.begin();
  };
  CHECK(at("mlp.up.gather_weight") < at("mlp.up"));
  CHECK(at("mlp.up.reduce_gradient") < at("mlp.up.input_gradient"));  // I and W go against the list
  CHECK(at("mlp.up.input_gradient") < at("mlp.up.gather_weight_again"));
  CHECK(at("mlp.up.reduce_weight_gradient") < at("mlp.up.weight_gradient"));
  CHECK(at("mlp.up.weight_gradient") < at("mlp.up.gather_again"));
}

TEST_CASE("a program without one of the placed block's moves, or with other bytes, is an error that names it") {
  const TensorLayout tensor{.degree = 8, .kind = TensorKind::three_d};
  const Software software;
  const KernelContext context{.sequence = 512, .microbatch = 8, .precision = ElementType::bf16, .software = software};
  const PlacedBlock placed = place_block(gpt(), 1, tensor, {.sequences = 8, .sequence = 512});
  const BlockProgram whole = block_program(layer_operations(gpt(), 0, operation_context(context)), context, placed);
  CHECK_NOTHROW(require_all_moves(whole, placed, ElementType::bf16, true));
  const auto is_it = [](const ProgramStep& step) {
    return step.phase == Phase::weight_gradient && step.move.tensor == "mlp.down.weight";
  };
  const auto error = ContainsSubstring(
      "site mlp.down: the reduce-scatter of the weight gradient mlp.down.weight "
      "over tensor.row (W) is placed 1 times");
  BlockProgram changed = whole;
  REQUIRE(std::erase_if(changed.steps, is_it) == 1);
  CHECK_THROWS_WITH(require_all_moves(changed, placed, ElementType::bf16, true), error);
  CHECK_NOTHROW(require_all_moves(changed, placed, ElementType::bf16, false));  // frozen
  changed = whole;
  changed.steps.push_back(*std::ranges::find_if(whole.steps, is_it));
  CHECK_THROWS_WITH(require_all_moves(changed, placed, ElementType::bf16, true), error);
  changed = whole;
  std::ranges::find_if(changed.steps, is_it)->move.received /= 2;
  CHECK_THROWS_WITH(require_all_moves(changed, placed, ElementType::bf16, true), error);
}

// arXiv 2205.05198, figure 5: g is all-gather, its conjugate reduce-scatter; section 4.2.2: gathered again for W.
TEST_CASE("collectives come in the order in which a layer needs them, its backward from the end") {
  const BlockProgram program = layer(unfused(), 4, true);
  CHECK(names(program, Phase::forward) ==
        std::vector<std::string>{
            "all-gather of input norm_1 at attention.q", "reduce-scatter of output attention.out at attention.out",
            "all-gather of input norm_2 at mlp.up", "reduce-scatter of output mlp.down at mlp.down"});
  CHECK(names(program, Phase::input_gradient) ==
        std::vector<std::string>{"all-gather of output gradient mlp.down at mlp.down",
                                 "reduce-scatter of input gradient norm_2 at mlp.up",
                                 "all-gather of output gradient attention.out at attention.out",
                                 "reduce-scatter of input gradient norm_1 at attention.q"});
  CHECK(names(program, Phase::weight_gradient) ==
        std::vector<std::string>{"all-gather of input norm_2 at mlp.up", "all-gather of input norm_1 at attention.v"});
}

// Of a token the largest logit, the sum of exponentials and the target's logit, in fp32 (arXiv 1909.08053, section 3).
TEST_CASE("cross entropy over a divided vocabulary adds up three numbers of each token") {
  Model model = gpt();
  const Software software;
  const KernelContext context{.sequence = 512, .microbatch = 2, .precision = ElementType::bf16, .software = software};
  const PlacedBlock placed = place_block(model, 2, {.degree = 4}, {.sequences = 2, .sequence = 512});
  const BlockProgram program = block_program(head_operations(model, operation_context(context)), context, placed);
  const std::vector<const StepMove*> moves = moves_of(program, Phase::forward);
  REQUIRE(moves.size() == 1);
  CHECK(moves[0]->role == Role::statistics);
  CHECK(moves[0]->bytes == 2.0 * 512 * 3 * 4);
  CHECK(moves[0]->received == 2.0 * 3 / 4 * 2 * 512 * 3 * 4);
}

// Each rank norms its own tokens: weight and bias of two layer norms, and what is added behind row-parallel matmuls.
TEST_CASE("with sequence parallelism gradients of what is applied to tokens are added up once a step") {
  const BlockProgram program = layer(unfused(), 4, true);
  double bytes = 0;
  for (const StepMove& sum : program.once) {
    CHECK(sum.collective == Collective::all_reduce);
    bytes += sum.bytes;
  }
  CHECK(bytes == 4.0 * (2 * 2 + 2) * hidden);
  CHECK(program_traffic(program).once == 2 * 3.0 / 4 * bytes);
  CHECK(summed_once(program, 4) == Approx(bytes));
  CHECK(layer(unfused(), 4, false).once.empty());
  CHECK(layer(unfused(), 1, false).once.empty());
}

// Two key-value heads on four ranks: each is on two of them, whose gradients of its keys and values are added up.
TEST_CASE("gradients of a key-value head that two ranks have are summed over these two") {
  Model model = gpt();
  std::get<SoftmaxAttention>(model.layers.front().mixer).kv_heads = 2;
  const BlockProgram program = layer(unfused(), 4, false, model);
  const double of_a_head = 4.0 * 2 * (64 * hidden + 64);  // weights and biases of keys and values, fp32
  CHECK(program_traffic(program).once == of_a_head);      // 2(P−1)/P of them, P = 2
  // As many bytes move as in an all-reduce of two thirds of it over all four.
  CHECK(summed_once(program, 4) == Approx(of_a_head * 2 / 3));
}

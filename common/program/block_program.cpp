#include "common/program/block_program.hpp"

#include <algorithm>
#include <span>
#include <utility>

#include "common/program/block_moves.hpp"
#include "common/program/program_memory.hpp"
#include "common/program/written_moves.hpp"

namespace plumb {
namespace {

// Goes over the operations once; a matmul's three kernels are written together.
class ProgramWriter {
 public:
  ProgramWriter(const KernelContext& context, const PlacedBlock& placed)
      : context_(context),
        placed_(placed),
        rows_(static_cast<double>(tokens_of(context))),
        tokens_(rows_ * static_cast<double>(context.microbatch)),
        element_(static_cast<double>(element_bytes(context.precision))) {}

  BlockProgram write(const std::vector<Operation>& operations) && {
    bool trains_all = true;
    program_.steps.reserve(5 * operations.size());
    moves_.name_sites(operations);
    for (std::size_t i = 0; i < operations.size(); ++i) {
      const Operation& operation = operations[i];
      trains_all = trains_all && !operation.tuning.frozen;
      moves_.pass_sites_before(operation);
      if (operation.kind == OperationKind::matmul) {
        i += add_matmuls(operations, i) - 1;
        continue;
      }
      moves_.enter(operation);
      switch (operation.kind) {
        case OperationKind::expert_matmul:
          add_matmul(operation.name, operation, operation.shape.outputs);
          add_adapter(operation);
          moves_.gather_again(operation);
          break;
        case OperationKind::attention_matmul:
          add_attention_matmul(operation);
          break;
        case OperationKind::attention:
        case OperationKind::recurrence:
          add_core(operation);
          break;
        default:
          add_streams(operation);
      }
      moves_.leave(operation);
    }
    moves_.pass_sites_behind(operations.back());
    if (trains_all) moves_.sum_once();
    require_all_moves(program_, placed_, context_.precision, trains_all);
    program_.kept = kept_values(operations, context_, placed_);
    if (!context_.asynchronous) return std::move(program_);
    if (has_grid(placed_.mesh)) {
      return in_panels(std::move(program_), moves_.with_panels(),
                       size(placed_.mesh, set_of(axes_of(placed_.mesh, {"tensor.row"}))));
    }
    return decomposed(std::move(program_), moves_.with_products(), size(placed_.mesh, moves_.tensor_axes()));
  }

 private:
  [[nodiscard]] const PlacedSite& site(const Operation& operation) const {
    return site_of(placed_, site_name(operation));
  }
  [[nodiscard]] double ways(const Operation& operation) const { return site(operation).ways; }

  std::size_t add(ProgramStep step) {
    program_.steps.push_back(std::move(step));
    return program_.steps.size() - 1;
  }

  void stream(const std::string& name, Phase phase, double bytes, bool redone = false) {
    if (bytes <= 0) return;
    add({.name = name, .phase = phase, .kind = StepKind::stream, .bytes = bytes, .redone = redone});
  }

  // Matmuls that directly follow one another and read the same input, as one where the software fuses them; returns how
  // many operations that is.
  std::size_t add_matmuls(const std::vector<Operation>& operations, std::size_t first) {
    const Operation& operation = operations[first];
    std::size_t count = 1;
    std::int64_t outputs = operation.shape.outputs;
    std::string name = operation.name;
    const bool fuses = context_.software.fused_projections && makes_inner(operation);
    while (fuses && first + count < operations.size() && reads_same(operation, operations[first + count])) {
      outputs += operations[first + count].shape.outputs;
      name += "+" + operations[first + count].name;
      ++count;
    }
    const std::span<const Operation> together(&operation, count);
    for (const Operation& each : together) moves_.enter(each);
    add_matmul(name, operation, outputs);
    for (const Operation& each : together) {
      add_adapter(each);
      moves_.gather_again(each);
    }
    for (const Operation& each : together) moves_.leave(each);
    return count;
  }

  [[nodiscard]] bool reads_same(const Operation& a, const Operation& b) const {
    return b.kind == OperationKind::matmul && makes_inner(b) && input_of(a).name == input_of(b).name &&
           b.shape.times == a.shape.times &&
           matmul_ways(placed_.mesh, site(b)).outputs == matmul_ways(placed_.mesh, site(a)).outputs &&
           b.tuning.gradient_below == a.tuning.gradient_below;
  }

  [[nodiscard]] const NamedShape& input_of(const Operation& operation) const {
    return site(operation).inputs.front().whole;
  }

  // A column-parallel matmul of the 1d layout.
  [[nodiscard]] bool makes_inner(const Operation& operation) const {
    return is_inner(site(operation).outputs.front().whole.shape);
  }

  // One rank's part of a matmul.
  struct Part {
    double outputs = 0;
    double inputs = 0;
    double matrices = 0;
    double rows = 0;  // of each
    int spread = 1;   // ranks that share the tokens of its sums once these are added up
  };
  [[nodiscard]] Part part_of(const Operation& operation, std::int64_t all_outputs) const {
    const MatmulShape& shape = operation.shape;
    const double matrices = static_cast<double>(shape.matrices);
    const MatmulWays ways = matmul_ways(placed_.mesh, site(operation));
    return {.outputs = static_cast<double>(all_outputs) / ways.outputs,
            .inputs = static_cast<double>(shape.inputs) / ways.inputs,
            .matrices = matrices,
            .rows = tokens_ * shape.times / matrices / ways.tokens,
            .spread = ways_of(placed_.mesh, site(operation).kept.front()) / (ways.outputs * ways.tokens)};
  }

  // Among how many ranks a weight's gradient is scattered as it is made: only then is a part of it accumulated.
  [[nodiscard]] int scattered_ways(const Operation& operation) const {
    const std::string& weight = site(operation).weights.front().whole.name;
    const PlacedMove* const move = find_move(placed_, Phase::weight_gradient, Role::weight_gradient, weight);
    return move == nullptr ? 1 : size(placed_.mesh, move->move.over);
  }

  void add_matmul(const std::string& name, const Operation& operation, std::int64_t all_outputs) {
    const Part part = part_of(operation, all_outputs);
    const auto product = [&](const std::string& suffix, Phase phase, MatmulSizes sizes) {
      sizes.batch = part.matrices;
      sizes.element_bytes = element_;
      if (sizes.output_bytes == 0) sizes.output_bytes = element_;
      return add({.name = name + suffix, .phase = phase, .kind = StepKind::matmul, .matmul = sizes});
    };
    moves_.made_product(operation, product("", Phase::forward,
                                           {.m = part.rows, .n = part.outputs, .k = part.inputs, .output_bytes = 0}));
    if (operation.shape.bias && !operation.tuning.frozen) {
      stream(name + ".bias.gradient", Phase::input_gradient,
             element_ * part.rows * part.matrices * part.outputs / part.spread);
    }
    if (operation.input_gradient.value > 0 && operation.tuning.gradient_below) {
      const std::size_t at = product(".input_gradient", Phase::input_gradient,
                                     {.m = part.rows, .n = part.inputs, .k = part.outputs, .output_bytes = 0});
      moves_.made_product(operation, at);
    }
    if (operation.tuning.frozen) return;
    const int scattered = scattered_ways(operation);
    const bool fused = context_.software.fused_weight_gradient && scattered == 1;
    const auto gradient = static_cast<double>(element_bytes(context_.software.gradients));
    const std::size_t at = product(".weight_gradient", Phase::weight_gradient,
                                   {.m = part.outputs,
                                    .n = part.inputs,
                                    .k = part.rows,
                                    .output_bytes = fused ? gradient : element_,
                                    .accumulates = fused});
    moves_.made_product(operation, at);
    if (!fused) {
      stream(name + ".accumulate", Phase::weight_gradient,
             (element_ + 2 * gradient) * part.matrices * part.outputs * part.inputs / scattered);
    }
  }

  // A and B of an adapter, by kernels of their own: x·A and (x·A)·B, which adds to the frozen matmul's output; dy·B and
  // (dy·B)·A, which adds to its input's gradient; both weight gradients. Of a column-parallel matmul each rank has all
  // of A and its outputs' part of B, and dy·B is reduced; of a row-parallel one its inputs' part of A and all of B, and
  // x·A is reduced.
  void add_adapter(const Operation& operation) {
    if (operation.tuning.adapter_rank == 0) return;
    const MatmulWays ways = matmul_ways(placed_.mesh, site(operation));
    const bool by_inputs = ways.inputs > 1;
    const Part part = part_of(operation, operation.shape.outputs);
    const double own = part.rows / part.spread;  // of the reduced output, each rank its tokens
    const auto rank = static_cast<double>(operation.tuning.adapter_rank);
    const auto gradient = static_cast<double>(element_bytes(context_.software.gradients));
    const auto product = [&](const char* suffix, Phase phase, MatmulSizes sizes) {
      sizes.batch = part.matrices;
      sizes.element_bytes = element_;
      sizes.output_bytes = phase == Phase::weight_gradient ? gradient : element_;
      add({.name = operation.name + suffix, .phase = phase, .kind = StepKind::matmul, .matmul = sizes});
    };
    const auto reduce = [&](const char* suffix, Phase phase) {
      moves_.add_sum(operation.name + suffix, phase, site_name(operation), element_ * part.rows * part.matrices * rank);
    };
    product(".lora_a", Phase::forward, {.m = part.rows, .n = rank, .k = part.inputs});
    if (by_inputs) reduce(".lora_a.reduce", Phase::forward);
    product(".lora_b", Phase::forward, {.m = own, .n = part.outputs, .k = rank, .accumulates = true});
    product(".lora_b.input_gradient", Phase::input_gradient, {.m = part.rows, .n = rank, .k = part.outputs});
    if (ways.outputs > 1) reduce(".lora_b.reduce_gradient", Phase::input_gradient);
    if (operation.tuning.gradient_below) {
      product(".lora_a.input_gradient", Phase::input_gradient,
              {.m = part.rows, .n = part.inputs, .k = rank, .accumulates = true});
    }
    product(".lora_a.weight_gradient", Phase::weight_gradient,
            {.m = rank, .n = part.inputs, .k = part.rows, .accumulates = true});
    product(".lora_b.weight_gradient", Phase::weight_gradient,
            {.m = part.outputs, .n = rank, .k = own, .accumulates = true});
    if (by_inputs && part.spread > 1) {  // each rank has B, of its own tokens
      moves_.sum_once(operation.name + ".lora_b", part.matrices * part.outputs * rank * gradient);
    }
  }

  void add_attention_matmul(const Operation& operation) {
    const MatmulShape& shape = operation.shape;
    const auto outputs = static_cast<double>(shape.outputs);
    const auto inputs = static_cast<double>(shape.inputs);
    const double heads = static_cast<double>(context_.microbatch * shape.matrices) / ways(operation);
    const auto product = [&](const char* suffix, Phase phase, double m, double n, double k, bool redone) {
      add({.name = operation.name + suffix,
           .phase = phase,
           .kind = StepKind::matmul,
           .matmul = {.m = m, .n = n, .k = k, .batch = heads, .element_bytes = element_, .output_bytes = element_},
           .redone = redone});
    };
    product("", Phase::forward, rows_, outputs, inputs, has_backward(operation));
    if (!has_backward(operation)) return;
    product(".left_gradient", Phase::input_gradient, rows_, inputs, outputs, false);
    product(".right_gradient", Phase::input_gradient, outputs, inputs, rows_, false);
  }

  void add_core(const Operation& operation) {
    const double part = tokens_ / ways(operation);
    add({.name = operation.name,
         .phase = Phase::forward,
         .kind = StepKind::core,
         .flops = operation.forward * part,
         .bytes = operation.streamed.forward * part,
         .redone = operation.kind == OperationKind::attention && has_backward(operation)});
    if (!has_backward(operation)) return;
    add({.name = operation.name + ".gradient",
         .phase = Phase::input_gradient,
         .kind = StepKind::core,
         .flops = operation.input_gradient * part,
         .bytes = operation.streamed.input_gradient * part});
  }

  void add_streams(const Operation& operation) {
    // Of a look-up every rank makes what it needs of all outputs, whatever part of the vocabulary it has.
    const bool whole = operation.kind == OperationKind::lookup;
    const double part = tokens_ / (whole ? ways_of(placed_.mesh, site(operation).outputs.front()) : ways(operation));
    const bool redone = makes_probabilities(operation) && has_backward(operation);
    stream(operation.name, Phase::forward, operation.streamed.forward * part, redone);
    stream(operation.name + ".gradient", Phase::input_gradient, operation.streamed.input_gradient * part);
    stream(operation.name + ".weight_gradient", Phase::weight_gradient, operation.streamed.weight_gradient * part);
  }

  const KernelContext& context_;
  const PlacedBlock& placed_;
  double rows_;  // tokens of one sequence, or of a slice of it
  double tokens_;
  double element_;
  BlockProgram program_;
  BlockMoves moves_{context_, placed_, program_};
};

}  // namespace

std::int64_t tokens_of(const KernelContext& context) {
  return context.slice.tokens > 0 ? context.slice.tokens : context.sequence;
}

OperationContext operation_context(const KernelContext& context) {
  const std::int64_t tokens = tokens_of(context);
  return {.sequence = tokens,
          .before = context.slice.before,
          .after = context.sequence - context.slice.before - tokens,
          .activations = context.precision,
          .flash_attention = context.software.flash_attention,
          .composed = context.software.composed,
          .eager = context.software.eager,
          .eager_norms = context.software.eager_norms,
          .framework_on_host = context.framework_on_host,
          .dropout = context.software.dropout};
}

BlockProgram block_program(const std::vector<Operation>& operations, const KernelContext& context,
                           const PlacedBlock& placed) {
  return ProgramWriter(context, placed).write(operations);
}

}  // namespace plumb

#include "common/cost/kernels.hpp"

#include <algorithm>
#include <array>
#include <map>

namespace plumb {
namespace {

constexpr std::size_t none = static_cast<std::size_t>(-1);

// Its I or W does something: of a frozen operation before all adapters neither does.
bool has_backward(const Operation& operation) {
  return operation.input_gradient.value > 0 || operation.weight_gradient.value > 0 ||
         operation.streamed.input_gradient > 0 || operation.streamed.weight_gradient > 0;
}

bool is_trained(const Operation& operation) { return !operation.tuning.frozen || operation.tuning.adapter_rank > 0; }

// Goes over the operations once; a matmul's three kernels are written together.
class KernelList {
 public:
  KernelList(const KernelContext& context, const PlacedBlock& placed)
      : context_(context),
        placed_(placed),
        rows_(static_cast<double>(tokens_of(context))),
        tokens_(rows_ * static_cast<double>(context.microbatch)),
        element_(static_cast<double>(element_bytes(context.precision))) {}

  std::vector<Kernel> build(const std::vector<Operation>& operations) {
    for (std::size_t i = 0; i < operations.size(); ++i) {
      const Operation& operation = operations[i];
      switch (operation.kind) {
        case OperationKind::matmul:
          i += add_matmuls(operations, i) - 1;
          break;
        case OperationKind::expert_matmul:
          add_matmul(operation.name, operation, operation.shape.outputs);
          add_adapter(operation);
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
      leave(operations[i]);
    }
    return std::move(kernels_);
  }

 private:
  [[nodiscard]] const PlacedSite& site(const Operation& operation) const {
    return site_of(placed_, site_name(operation));
  }
  [[nodiscard]] double ways(const Operation& operation) const { return site(operation).ways; }

  std::size_t add(Kernel kernel) {
    kernels_.push_back(std::move(kernel));
    return kernels_.size() - 1;
  }

  void stream(const std::string& name, Phase phase, double bytes, bool redone = false) {
    if (bytes <= 0) return;
    add({.name = name, .phase = phase, .kind = KernelKind::stream, .bytes = bytes, .redone = redone});
  }

  std::size_t collective(const std::string& name, Phase phase, Collective kind, double bytes) {
    return add({.name = name, .phase = phase, .kind = KernelKind::collective, .bytes = bytes, .collective = kind});
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
    add_matmul(name, operation, outputs);
    for (std::size_t i = 0; i < count; ++i) {
      if (i > 0 && enters(operations[first + i])) enter(operations[first + i]);
      add_adapter(operations[first + i]);
    }
    return count;
  }

  [[nodiscard]] bool reads_same(const Operation& a, const Operation& b) const {
    return b.kind == OperationKind::matmul && makes_inner(b) && input_of(a) == input_of(b) &&
           b.shape.times == a.shape.times &&
           matmul_ways(placed_.mesh, site(b)).outputs == matmul_ways(placed_.mesh, site(a)).outputs &&
           b.tuning.gradient_below == a.tuning.gradient_below;
  }

  [[nodiscard]] const std::string& input_of(const Operation& operation) const {
    return site(operation).inputs.front().whole.name;
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

  void add_matmul(const std::string& name, const Operation& operation, std::int64_t all_outputs) {
    const Part part = part_of(operation, all_outputs);
    Entry* entry = enters(operation) ? &enter(operation) : nullptr;
    const auto product = [&](const std::string& suffix, Phase phase, MatmulSizes sizes) {
      sizes.batch = part.matrices;
      sizes.element_bytes = element_;
      if (sizes.output_bytes == 0) sizes.output_bytes = element_;
      return add({.name = name + suffix, .phase = phase, .kind = KernelKind::matmul, .matmul = sizes});
    };
    product("", Phase::forward, {.m = part.rows, .n = part.outputs, .k = part.inputs, .output_bytes = 0});
    if (operation.shape.bias && !operation.tuning.frozen) {
      stream(name + ".bias.gradient", Phase::input_gradient,
             element_ * part.rows * part.matrices * part.outputs / part.spread);
    }
    if (operation.input_gradient.value > 0 && operation.tuning.gradient_below) {
      const std::size_t at = product(".input_gradient", Phase::input_gradient,
                                     {.m = part.rows, .n = part.inputs, .k = part.outputs, .output_bytes = 0});
      if (entry != nullptr) beside(entry->gather, at);
    }
    if (operation.tuning.frozen) return;
    const bool fused = context_.software.fused_weight_gradient;
    const auto gradient = static_cast<double>(element_bytes(context_.software.gradients));
    const std::size_t at = product(".weight_gradient", Phase::weight_gradient,
                                   {.m = part.outputs,
                                    .n = part.inputs,
                                    .k = part.rows,
                                    .output_bytes = fused ? gradient : element_,
                                    .accumulates = fused});
    if (entry != nullptr) beside(entry->reduction, at);
    if (!fused) {
      stream(name + ".accumulate", Phase::weight_gradient,
             (element_ + 2 * gradient) * part.matrices * part.outputs * part.inputs);
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
      add({.name = operation.name + suffix, .phase = phase, .kind = KernelKind::matmul, .matmul = sizes});
    };
    const auto reduce = [&](const char* suffix, Phase phase) {
      collective(operation.name + suffix, phase, Collective::all_reduce, element_ * part.rows * part.matrices * rank);
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
  }

  void beside(std::size_t collective, std::size_t kernel) {
    if (collective != none && context_.software.tensor_overlap) kernels_[collective].beside.push_back(kernel);
  }

  // What a move carries: its larger side, of as many tokens as the operation sees.
  [[nodiscard]] double bytes_of(const PlacedMove& moved, const Shape& value, const Operation& operation) const {
    const auto elements = static_cast<double>(std::max(moved.move.elements_from, moved.move.elements_to));
    return element_ * elements * (tokens_ * operation.shape.times / static_cast<double>(rows_of(value)));
  }

  // Its input is gathered, or its input's gradient is partial.
  [[nodiscard]] bool enters(const Operation& operation) const {
    const PlacedSite& at = site(operation);
    const PlacedTensor& input = at.inputs.front();
    if (ways_of(placed_.mesh, input) != at.ways) return true;
    const PlacedMove* const gather = find_move(placed_, Phase::forward, Role::input, input.whole.name);
    return gather != nullptr && gather->move.to == input.placement;
  }

  // Where a divided part begins: once for each value that its matmuls read. W alone needs it gathered again.
  struct Entry {
    std::size_t gather = none;
    std::size_t reduction = none;
  };
  Entry& enter(const Operation& operation) {
    const NamedShape& value = site(operation).inputs.front().whole;
    const auto [found, is_new] = entered_.try_emplace(value.name);
    Entry& entry = found->second;
    const auto move = [&](const char* suffix, Phase phase, Role role) {
      const PlacedMove* const moved = find_move(placed_, phase, role, value.name);
      if (moved == nullptr) return none;
      return collective(operation.name + suffix, phase, *moved->move.collective,
                        bytes_of(*moved, value.shape, operation));
    };
    if (is_new) move(".gather", Phase::forward, Role::input);
    if (entry.gather == none && is_trained(operation)) {
      entry.gather = move(".gather_again", Phase::input_gradient, Role::input);
    }
    if (entry.reduction == none && operation.tuning.gradient_below) {
      entry.reduction = move(".reduce_gradient", Phase::input_gradient, Role::input_gradient);
    }
    return entry;
  }

  // Where it ends: what is partial is added up.
  void leave(const Operation& operation) {
    if (!operation.site.empty()) return;
    const NamedShape& output = site(operation).outputs.front().whole;
    const auto move = [&](const char* suffix, Phase phase, Role role) {
      const PlacedMove* const moved = find_move(placed_, phase, role, output.name);
      if (moved == nullptr) return;
      collective(operation.name + suffix, phase, *moved->move.collective, bytes_of(*moved, output.shape, operation));
    };
    move(".reduce", Phase::forward, Role::output);
    if (has_backward(operation)) move(".gather_gradient", Phase::input_gradient, Role::output_gradient);
    if (!is_matmul(operation.kind)) move_inputs(operation);
  }

  // What sites other than matmuls read and give back: Mamba's B and C, an expert's share.
  void move_inputs(const Operation& operation) {
    const PlacedSite& at = site(operation);
    for (const PlacedMove& moved : placed_.moves) {
      const bool gathers = moved.phase == Phase::forward && moved.role == Role::input;
      const bool reduces = moved.role == Role::input_gradient && has_backward(operation);
      if (moved.site != at.name || !moved.move.collective || !(gathers || reduces)) continue;
      const auto value = std::ranges::find(at.inputs, moved.tensor, [](const PlacedTensor& x) { return x.whole.name; });
      collective(operation.name + (gathers ? ".gather" : ".reduce_gradient"), moved.phase, *moved.move.collective,
                 bytes_of(moved, value->whole.shape, operation));
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
           .kind = KernelKind::matmul,
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
         .kind = KernelKind::core,
         .flops = operation.forward * part,
         .bytes = operation.streamed.forward * part,
         .redone = operation.kind == OperationKind::attention && has_backward(operation)});
    if (!has_backward(operation)) return;
    add({.name = operation.name + ".gradient",
         .phase = Phase::input_gradient,
         .kind = KernelKind::core,
         .flops = operation.input_gradient * part,
         .bytes = operation.streamed.input_gradient * part});
  }

  void add_streams(const Operation& operation) {
    const bool whole = operation.kind == OperationKind::lookup;  // every rank of a group looks all tokens up
    const double part = tokens_ / (whole ? 1 : ways(operation));
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
  std::vector<Kernel> kernels_;
  std::map<std::string, Entry> entered_;  // by the value that is read
};

}  // namespace

std::int64_t tokens_of(const KernelContext& context) { return context.sequence / context.slice.of; }

OperationContext operation_context(const KernelContext& context) {
  const std::int64_t tokens = tokens_of(context);
  return {.sequence = tokens,
          .before = tokens * context.slice.index,
          .after = tokens * (context.slice.of - 1 - context.slice.index),
          .activations = context.precision,
          .flash_attention = context.software.flash_attention,
          .composed = context.software.composed,
          .dropout = context.software.dropout};
}

std::vector<Kernel> block_kernels(const std::vector<Operation>& operations, const KernelContext& context,
                                  const PlacedBlock& placed) {
  return KernelList(context, placed).build(operations);
}

Seconds kernel_time(const Kernel& kernel, const Machine& machine, const GroupPlacement& group) {
  switch (kernel.kind) {
    case KernelKind::matmul:
      return matmul_time(machine.device, kernel.matmul);
    case KernelKind::core:
      return core_time(machine.device, kernel.flops, kernel.bytes);
    case KernelKind::collective:
      return collective_time(machine, kernel.collective, kernel.bytes, group);
    default:
      return stream_time(machine.device, kernel.bytes);
  }
}

PhaseTimes phase_times(const std::vector<Kernel>& kernels, const Machine& machine, const GroupPlacement& group) {
  std::vector<Seconds> times;
  times.reserve(kernels.size());
  for (const Kernel& kernel : kernels) times.push_back(kernel_time(kernel, machine, group));
  std::array<Seconds, 3> sums;
  std::array<int, 3> counts{};
  PhaseTimes result;
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    const Kernel& kernel = kernels[i];
    const auto phase = static_cast<std::size_t>(kernel.phase);
    Seconds beside_same;
    Seconds beside_other;
    for (const std::size_t other : kernel.beside) {
      (kernels[other].phase == kernel.phase ? beside_same : beside_other) += times[other];
    }
    const Seconds left = std::max(times[i] - beside_same, Seconds{});
    result.hidden += std::min(left, beside_other);
    sums[phase] += left;
    ++counts[phase];
    if (kernel.redone) result.redone += times[i];
  }
  for (std::size_t phase = 0; phase < sums.size(); ++phase) {
    sums[phase] = std::max(sums[phase], machine.device.launch_time.value * static_cast<double>(counts[phase]));
  }
  result.forward = sums[0];
  result.input_gradient = sums[1];
  result.weight_gradient = sums[2];
  return result;
}

}  // namespace plumb

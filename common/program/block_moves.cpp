#include "common/program/block_moves.hpp"

#include <algorithm>
#include <utility>

namespace plumb {
namespace {

bool is_trained(const Operation& operation) { return !operation.tuning.frozen || operation.tuning.adapter_rank > 0; }

}  // namespace

bool has_backward(const Operation& operation) {
  return operation.input_gradient.value > 0 || operation.weight_gradient.value > 0 ||
         operation.streamed.input_gradient > 0 || operation.streamed.weight_gradient > 0;
}

BlockMoves::BlockMoves(const KernelContext& context, const PlacedBlock& placed, BlockProgram& program)
    : context_(context), placed_(placed), program_(program) {}

const PlacedSite& BlockMoves::site(const Operation& operation) const { return site_of(placed_, site_name(operation)); }

// Its larger side, of as many tokens as a matmul sees of `value`.
std::size_t BlockMoves::add_move(const std::string& suffix, const PlacedMove& moved, const Shape& value,
                                 const Operation& operation) {
  const double tokens = static_cast<double>(tokens_of(context_)) * static_cast<double>(context_.microbatch);
  const double seen =
      is_matmul(operation.kind) ? tokens * operation.shape.times / static_cast<double>(rows_of(value)) : 1.0;
  const auto element =
      static_cast<double>(element_bytes(moved.role == Role::statistics ? ElementType::fp32 : context_.precision));
  const auto elements = static_cast<double>(std::max(moved.move.elements_from, moved.move.elements_to));
  program_.steps.push_back({.name = operation.name + suffix,
                            .phase = moved.phase,
                            .kind = StepKind::move,
                            .move = {.site = moved.site,
                                     .tensor = moved.tensor,
                                     .role = moved.role,
                                     .collective = *moved.move.collective,
                                     .over = moved.move.over,
                                     .bytes = element * elements * seen,
                                     .received = element * received_elements(placed_.mesh, moved.move) * seen}});
  return program_.steps.size() - 1;
}

// Its input is gathered, or its input's gradient is partial.
bool BlockMoves::enters(const Operation& operation) const {
  const PlacedSite& at = site(operation);
  const PlacedTensor& input = at.inputs.front();
  if (ways_of(placed_.mesh, input) != at.ways) return true;
  const PlacedMove* const gather = find_move(placed_, Phase::forward, Role::input, input.whole.name);
  return gather != nullptr && gather->move.to == input.placement;
}

void BlockMoves::enter(const Operation& operation, const NamedShape& value) {
  Entry& entry = entered_[value.name];
  const auto move = [&](const char* suffix, Phase phase, Role role) {
    const PlacedMove* const moved = find_move(placed_, phase, role, value.name);
    return moved == nullptr ? none : add_move(suffix, *moved, value.shape, operation);
  };
  const bool matmul = is_matmul(operation.kind);
  if (!std::exchange(entry.is_gathered, true)) move(".gather", Phase::forward, Role::input);
  if (entry.reduction == none && (matmul ? operation.tuning.gradient_below : has_backward(operation))) {
    entry.reduction = move(".reduce_gradient", Phase::input_gradient, Role::input_gradient);
  }
}

void BlockMoves::enter_matmul(const Operation& operation) {
  if (enters(operation)) enter(operation, site(operation).inputs.front().whole);
}

BlockMoves::Entry* BlockMoves::entry_of(const Operation& operation) {
  if (!enters(operation)) return nullptr;
  const auto found = entered_.find(site(operation).inputs.front().whole.name);
  return found == entered_.end() ? nullptr : &found->second;
}

void BlockMoves::beside_input_gradient(const Operation& operation, std::size_t step) {
  Entry* const entry = entry_of(operation);
  if (entry == nullptr || !context_.software.tensor_overlap) return;
  entry->input_gradients.push_back(step);
  if (entry->again != none) program_.steps[entry->again].beside.push_back(step);
}

void BlockMoves::beside_weight_gradient(const Operation& operation, std::size_t step) {
  const Entry* const entry = entry_of(operation);
  if (entry == nullptr || entry->reduction == none || !context_.software.tensor_overlap) return;
  program_.steps[entry->reduction].beside.push_back(step);
}

void BlockMoves::gather_again(const Operation& operation) {
  Entry* const entry = entry_of(operation);
  if (entry == nullptr) return;
  const NamedShape& value = site(operation).inputs.front().whole;
  const auto last = last_reader_.find(value.name);
  if (last == last_reader_.end() || last->second != site_name(operation)) return;
  const PlacedMove* const moved = find_move(placed_, Phase::weight_gradient, Role::input, value.name);
  if (moved == nullptr) return;
  entry->again = add_move(".gather_again", *moved, value.shape, operation);
  program_.steps[entry->again].beside = entry->input_gradients;
}

void BlockMoves::enter_others(const Operation& operation) {
  if (!operation.site.empty() || placed_.moves.empty()) return;
  for (const PlacedTensor& input : site(operation).inputs) {
    const bool enters = std::ranges::any_of(placed_.moves, [&](const PlacedMove& moved) {
      return moved.site == operation.name && moved.tensor == input.whole.name && moved.move.collective &&
             (moved.role == Role::input || moved.role == Role::input_gradient);
    });
    if (enters) enter(operation, input.whole);
  }
}

void BlockMoves::leave(const Operation& operation) {
  if (!operation.site.empty() || placed_.moves.empty()) return;
  const auto move = [&](const char* suffix, Phase phase, Role role, const NamedShape& value) {
    const PlacedMove* const moved = find_move(placed_, phase, role, value.name);
    if (moved != nullptr) add_move(suffix, *moved, value.shape, operation);
  };
  move(".statistics", Phase::forward, Role::statistics, {operation.name + ".statistics", {}});
  for (const PlacedTensor& output : site(operation).outputs) {
    move(".reduce", Phase::forward, Role::output, output.whole);
    if (!has_backward(operation)) continue;
    for (const Phase phase : {Phase::input_gradient, Phase::weight_gradient}) {
      move(".gather_gradient", phase, Role::output_gradient, output.whole);
    }
  }
}

void BlockMoves::name_sites(const std::vector<Operation>& operations) {
  if (placed_.moves.empty()) return;
  for (const Operation& operation : operations) {
    named_.insert(site_name(operation));
    if (!is_matmul(operation.kind) || !is_trained(operation) || !enters(operation)) continue;
    last_reader_[site(operation).inputs.front().whole.name] = site_name(operation);
  }
}

void BlockMoves::pass_sites_before(const Operation& operation) {
  pass_sites(&site(operation) - placed_.sites.data(), has_backward(operation));
}

void BlockMoves::pass_sites_behind(const Operation& last) { pass_sites(std::ssize(placed_.sites), has_backward(last)); }

void BlockMoves::pass_sites(std::ptrdiff_t end, bool with_backward) {
  if (placed_.moves.empty()) return;
  for (; next_site_ < end; ++next_site_) {
    const PlacedSite& passed = placed_.sites[static_cast<std::size_t>(next_site_)];
    if (named_.contains(passed.name)) continue;
    const Operation nothing{.name = passed.name, .kind = passed.kind, .input_gradient = {with_backward ? 1.0 : 0.0}};
    enter_others(nothing);
    leave(nothing);
  }
}

Axes BlockMoves::tensor_axes() const { return set_of(axes_of(placed_.mesh, {"tensor"})); }

StepMove BlockMoves::all_reduce(const std::string& tensor, Role role, double bytes, Axes over) const {
  const double others = 1.0 - 1.0 / size(placed_.mesh, over);
  return {.tensor = tensor, .role = role, .over = over, .bytes = bytes, .received = 2 * others * bytes};
}

void BlockMoves::add_sum(const std::string& name, Phase phase, const std::string& site, double bytes) {
  const Role role = phase == Phase::forward ? Role::output : Role::input_gradient;
  ProgramStep step{
      .name = name, .phase = phase, .kind = StepKind::move, .move = all_reduce(name, role, bytes, tensor_axes())};
  step.move.site = site;
  program_.steps.push_back(std::move(step));
}

void BlockMoves::sum_once() {
  const auto gradient = static_cast<double>(element_bytes(context_.software.gradients));
  for (const PlacedWeight& weight : placed_.weights) {
    if (is_empty(weight.gradient_partial)) continue;
    const double bytes = gradient * static_cast<double>(elements(weight.stored.local));
    program_.once.push_back(
        all_reduce(weight.stored.whole.name, Role::weight_gradient, bytes, weight.gradient_partial));
  }
}

void BlockMoves::sum_once(const std::string& tensor, double bytes) {
  program_.once.push_back(all_reduce(tensor, Role::weight_gradient, bytes, tensor_axes()));
}

}  // namespace plumb

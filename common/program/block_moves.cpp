#include "common/program/block_moves.hpp"

#include <algorithm>

namespace plumb {
namespace {

bool is_trained(const Operation& operation) { return !operation.tuning.frozen || operation.tuning.adapter_rank > 0; }

bool gives_input_gradient(const Operation& operation) {
  if (!is_matmul(operation.kind)) return has_backward(operation);
  return operation.tuning.gradient_below && operation.input_gradient.value > 0;
}

}  // namespace

bool has_backward(const Operation& operation) {
  return operation.input_gradient.value > 0 || operation.weight_gradient.value > 0 ||
         operation.streamed.input_gradient > 0 || operation.streamed.weight_gradient > 0;
}

BlockMoves::BlockMoves(const KernelContext& context, const PlacedBlock& placed, BlockProgram& program)
    : context_(context), placed_(placed), program_(program) {}

const PlacedSite& BlockMoves::site(const Operation& operation) const { return site_of(placed_, site_name(operation)); }

// Its larger side; of experts as many rows as the operation has.
void BlockMoves::add_move(const char* suffix, const PlacedMove& moved, const Meeting& at) {
  double seen = 1;
  const PlacedTensor* const value = find_value(at.site, moved.tensor);
  if (is_matmul(at.operation.kind) && value != nullptr && has(value->whole.shape, Dim::rows)) {
    const double tokens = static_cast<double>(tokens_of(context_)) * static_cast<double>(context_.microbatch);
    seen = tokens * at.operation.shape.times / static_cast<double>(rows_of(value->whole.shape));
  }
  const auto element = static_cast<double>(element_bytes(moved_type(moved, context_.precision)));
  const auto elements = static_cast<double>(std::max(moved.move.elements_from, moved.move.elements_to));
  program_.steps.push_back({.name = at.operation.name + suffix,
                            .phase = moved.phase,
                            .kind = StepKind::move,
                            .move = {.site = moved.site,
                                     .tensor = moved.tensor,
                                     .role = moved.role,
                                     .collective = *moved.move.collective,
                                     .over = moved.move.over,
                                     .bytes = element * elements * seen,
                                     .received = received_bytes(placed_, moved, context_.precision) * seen}});
}

// Of one tensor, or of all. The list has I and W against their order.
std::size_t BlockMoves::add_moves(const char* suffix, const Meeting& at, Phase phase, Role role,
                                  std::string_view tensor) {
  std::size_t last = none;
  const auto add = [&](const PlacedMove& moved) {
    if (moved.phase != phase || moved.role != role || !moved.move.collective || moved.site != at.site.name) return;
    if (!tensor.empty() && moved.tensor != tensor) return;
    add_move(suffix, moved, at);
    last = program_.steps.size() - 1;
  };
  if (phase == Phase::forward) {
    std::ranges::for_each(placed_.moves, add);
  } else {
    std::for_each(placed_.moves.rbegin(), placed_.moves.rend(), add);
  }
  return last;
}

// Its input is gathered, or its input's gradient is partial.
bool BlockMoves::enters(const Operation& operation) const {
  const PlacedSite& at = site(operation);
  const PlacedTensor& input = at.inputs.front();
  if (ways_of(placed_.mesh, input) != at.ways) return true;
  return std::ranges::any_of(placed_.moves, [&](const PlacedMove& moved) {
    return moved.phase == Phase::forward && moved.role == Role::input && moved.tensor == input.whole.name &&
           moved.move.collective && moved.move.to == input.placement;
  });
}

BlockMoves::Entry& BlockMoves::entry(const PlacedTensor& input) {
  const auto same = [&](const Entry& each) { return each.value == input.whole.name && each.needed == input.placement; };
  const auto found = std::ranges::find_if(entries_, same);
  if (found != entries_.end()) return *found;
  return entries_.emplace_back(Entry{.value = input.whole.name, .needed = input.placement});
}

BlockMoves::Entry* BlockMoves::entry_of(const Operation& operation) {
  if (placed_.moves.empty() || !enters(operation)) return nullptr;
  return &entry(site(operation).inputs.front());
}

bool BlockMoves::overlaps() const {
  return context_.software.tensor_overlap && !context_.asynchronous && !has_grid(placed_.mesh);
}

void BlockMoves::made_product(const Operation& operation, std::size_t step) {
  if (placed_.moves.empty()) return;
  const auto phase = static_cast<std::size_t>(program_.steps[step].phase);
  exits_[site_name(operation)].products.at(phase).push_back(step);
  Entry* const entry = entry_of(operation);
  if (entry == nullptr) return;
  entry->products.at(phase).push_back(step);
  if (!overlaps()) return;
  const bool of_input = program_.steps[step].phase == Phase::input_gradient;
  const bool of_weight = program_.steps[step].phase == Phase::weight_gradient;
  if (of_input && entry->again != none) program_.steps[entry->again].beside.push_back(step);
  if (of_weight && entry->reduction != none) program_.steps[entry->reduction].beside.push_back(step);
}

std::vector<MoveWithProducts> BlockMoves::with_products() const {
  std::vector<MoveWithProducts> all;
  const auto add = [&](std::size_t move, Phase phase, const Products& products) {
    const std::vector<std::size_t>& own = products.at(static_cast<std::size_t>(phase));
    if (move == none || own.empty()) return;
    const Collective collective = program_.steps[move].move.collective;
    if (collective != Collective::all_gather && collective != Collective::reduce_scatter) return;
    all.push_back({.move = move, .products = own});
  };
  for (const Entry& entry : entries_) {
    add(entry.gather, Phase::forward, entry.products);
    add(entry.reduction, Phase::input_gradient, entry.products);
    add(entry.again, Phase::weight_gradient, entry.products);
  }
  for (const auto& [site, exit] : exits_) {
    add(exit.reduction, Phase::forward, exit.products);
    add(exit.gather, Phase::input_gradient, exit.products);
  }
  return all;
}

std::vector<ProductsWithMoves> BlockMoves::with_panels() const {
  std::vector<ProductsWithMoves> all;
  const auto in_run_order = [](std::vector<std::size_t> steps, Phase phase) {
    if (phase != Phase::forward) std::ranges::reverse(steps);
    return steps;
  };
  for (const Entry& entry : entries_) {
    const auto add = [&](Phase phase, std::size_t of_value, bool value_first) {
      const auto place = static_cast<std::size_t>(phase);
      if (of_value == none || entry.products.at(place).empty() || entry.weights.at(place).empty()) return;
      ProductsWithMoves group{.at = of_value, .products = in_run_order(entry.products.at(place), phase)};
      // I comes to all of them at once, behind the products of their results; so does W, in the order of I.
      if (phase == Phase::weight_gradient) group.at = group.products.back();
      const std::vector<std::size_t> weights = in_run_order(entry.weights.at(place), phase);
      if (value_first) group.before.push_back(of_value);
      std::vector<std::size_t>& of_weights = phase == Phase::weight_gradient ? group.behind : group.before;
      of_weights.insert(of_weights.end(), weights.begin(), weights.end());
      if (!value_first) group.behind.push_back(of_value);
      all.push_back(std::move(group));
    };
    add(Phase::forward, entry.gather, true);
    add(Phase::input_gradient, entry.reduction, false);
    add(Phase::weight_gradient, entry.again, true);
  }
  return all;
}

void BlockMoves::gather_again(const Operation& operation) {
  const auto found = again_.find(site_name(operation));
  if (found == again_.end()) return;
  const Meeting at{.site = site(operation), .operation = operation};
  std::for_each(found->second.rbegin(), found->second.rend(),
                [&](const PlacedMove* moved) { add_move(".gather_again", *moved, at); });
  Entry* const entry = entry_of(operation);
  if (entry == nullptr) return;
  entry->again = program_.steps.size() - 1;
  if (!overlaps()) return;
  program_.steps[entry->again].beside = entry->products.at(static_cast<std::size_t>(Phase::input_gradient));
}

void BlockMoves::enter(const Operation& operation) {
  if (placed_.moves.empty() || ends_.at(site_name(operation)).first != &operation) return;
  enter_site({.site = site(operation), .operation = operation});
}

void BlockMoves::add_weight_moves(const char* suffix, const Meeting& at, Phase phase, Role role) {
  const std::size_t added = add_moves(suffix, at, phase, role);
  if (added == none || !is_matmul(at.operation.kind)) return;
  entry(at.site.inputs.front()).weights.at(static_cast<std::size_t>(phase)).push_back(added);
}

void BlockMoves::enter_site(const Meeting& at) {
  for (const PlacedTensor& input : at.site.inputs) {
    const std::size_t gathered = add_moves(".gather", at, Phase::forward, Role::input, input.whole.name);
    if (gathered != none) entry(input).gather = gathered;
  }
  add_weight_moves(".gather_weight", at, Phase::forward, Role::weight);
  if (gives_input_gradient(at.operation)) {
    for (std::size_t i = at.site.inputs.size(); i-- > 0;) {
      const PlacedTensor& input = at.site.inputs[i];
      const std::size_t first =
          add_moves(".reduce_gradient", at, Phase::input_gradient, Role::input_gradient, input.whole.name);
      if (first != none) entry(input).reduction = first;
    }
  }
  if (!at.operation.tuning.frozen) {
    add_weight_moves(".reduce_weight_gradient", at, Phase::weight_gradient, Role::weight_gradient);
  }
}

void BlockMoves::leave(const Operation& operation) {
  if (placed_.moves.empty() || ends_.at(site_name(operation)).second != &operation) return;
  leave_site({.site = site(operation), .operation = operation});
}

void BlockMoves::leave_site(const Meeting& at) {
  add_moves(".statistics", at, Phase::forward, Role::statistics);
  Exit& exit = exits_[at.site.name];
  exit.reduction = add_moves(".reduce", at, Phase::forward, Role::output);
  if (!has_backward(at.operation)) return;
  add_moves(".gradient_statistics", at, Phase::input_gradient, Role::statistics);
  if (gives_input_gradient(at.operation)) {
    add_weight_moves(".gather_weight_again", at, Phase::input_gradient, Role::weight);
  }
  exit.gather = add_moves(".gather_gradient", at, Phase::input_gradient, Role::output_gradient);
  add_moves(".gather_gradient", at, Phase::weight_gradient, Role::output_gradient);
}

void BlockMoves::name_sites(const std::vector<Operation>& operations) {
  if (placed_.moves.empty()) return;
  for (const Operation& operation : operations) {
    const auto found = ends_.find(site_name(operation));
    if (operation.site.empty() || found == ends_.end()) {
      ends_[site_name(operation)] = {&operation, &operation};
    } else if (!found->second.first->site.empty()) {  // no operation is the site itself
      found->second.second = &operation;
    }
  }
  for (const PlacedMove& moved : placed_.moves) {
    if (moved.phase != Phase::weight_gradient || moved.role != Role::input || !moved.move.collective) continue;
    const Placement& needed = find_value(site_of(placed_, moved.site), moved.tensor)->placement;
    const auto reads = [&](const Operation& operation) {
      return is_matmul(operation.kind) && is_trained(operation) &&
             std::ranges::any_of(site(operation).inputs, [&](const PlacedTensor& input) {
               return input.whole.name == moved.tensor && input.placement == needed;
             });
    };
    const auto last = std::find_if(operations.rbegin(), operations.rend(), reads);
    if (last != operations.rend()) again_[site_name(*last)].push_back(&moved);
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
    if (ends_.contains(passed.name)) continue;
    const Operation nothing{.name = passed.name, .kind = passed.kind, .input_gradient = {with_backward ? 1.0 : 0.0}};
    enter_site({.site = passed, .operation = nothing});
    leave_site({.site = passed, .operation = nothing});
  }
}

// Adapters are of the 1d layout.
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

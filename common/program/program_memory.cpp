#include "common/program/program_memory.hpp"

#include <algorithm>

#include "common/program/block_moves.hpp"

namespace plumb {
namespace {

bool multiplies(const Operation& operation) {
  return is_matmul(operation.kind) || operation.kind == OperationKind::lookup;
}

// What part of a site's output a rank has behind a move; without one, of all that its site reads and makes.
double share_behind(const PlacedMove* move, const PlacedSite& site, const PlacedBlock& placed) {
  if (move == nullptr) return share_of(placed.mesh, site);
  return static_cast<double>(move->move.elements_to) / static_cast<double>(elements(site.outputs.front().whole.shape));
}

// What part of what a product reads one rank keeps.
double input_share(const PlacedSite& site, const PlacedBlock& placed) {
  const PlacedTensor& input = site.inputs.front();
  const PlacedMove* const move = find_move(placed, Phase::forward, Role::input, input.whole.name);
  if (move == nullptr) return 1.0 / ways_of(placed.mesh, input);
  return static_cast<double>(move->move.elements_from) / static_cast<double>(elements(input.whole.shape));
}

// What part of what an operation keeps until I one rank holds: of its work, of products of their output; of which
// experts each token goes to, as it is dispatched.
double kept_share(const Operation& operation, const PlacedBlock& placed) {
  const PlacedSite& site = site_of(placed, site_name(operation));
  if (multiplies(operation)) return 1.0 / ways_of(placed.mesh, site.kept.front());
  const bool routes = operation.kind == OperationKind::routing;
  const std::string& output = site.outputs.front().whole.name;
  return share_behind(routes ? find_move(placed, Phase::forward, Role::input, output) : nullptr, site, placed);
}

// The same of what waits for W: inputs of products as they are kept, which W gathers; output gradients of products as
// their site makes the output, for what I has gathered of them is held until W, or as they are kept if W gathers them;
// and so of what has no gradient.
double waiting_share(const Operation& operation, const PlacedBlock& placed) {
  const PlacedSite& site = site_of(placed, site_name(operation));
  if (!multiplies(operation)) return share_of(placed.mesh, site);
  const PlacedTensor& output = site.outputs.front();
  const bool gathers = find_move(placed, Phase::weight_gradient, Role::output_gradient, output.whole.name) != nullptr;
  const bool as_kept = gathers || !has_backward(operation);
  return 1.0 / ways_of(placed.mesh, as_kept ? site.kept.front() : output);
}

// F has gathered its output, and keeps that for W (3d, common/block_cost/gathered.hpp): the rank's own part, of which
// it was gathered, is let go unless I reads it.
bool is_kept_gathered(const Operation& operation, const PlacedBlock& placed) {
  const std::string& output = site_of(placed, site_name(operation)).outputs.front().whole.name;
  return has_grid(placed.mesh) && find_move(placed, Phase::forward, Role::input, output) != nullptr &&
         find_move(placed, Phase::weight_gradient, Role::input, output) == nullptr;
}

}  // namespace

std::vector<KeptValue> kept_values(const std::vector<Operation>& operations, const KernelContext& context,
                                   const PlacedBlock& placed) {
  const double tokens = static_cast<double>(context.microbatch) * static_cast<double>(tokens_of(context));
  std::vector<KeptValue> values;
  values.reserve(operations.size());
  for (const Operation& operation : operations) {
    // x·A of an adapter's matmul, whole on every rank unless its tokens are divided; W also has its gradient.
    const double adapter = operation.tuning.adapter_rank > 0 ? operation.kept_bytes : 0;
    const double share = kept_share(operation, placed);
    const double waiting = waiting_share(operation, placed);
    const bool gathered = !multiplies(operation) && is_kept_gathered(operation, placed);
    // Of a product that is what it reads, if nothing before it keeps that.
    const double read = is_matmul(operation.kind) ? operation.kept_as_input_bytes : 0;
    const double own_input = read > 0 ? tokens * read * input_share(site_of(placed, site_name(operation)), placed) : 0;
    const double until_weight = gathered ? 0 : operation.kept_for_weight_bytes - read;
    const double as_input = gathered ? operation.kept_as_input_bytes : read;
    const Working working = operation.working.value_or(Working{operation.kept_bytes, operation.kept_bytes});
    const double until_input = operation.kept_bytes - as_input - adapter;
    values.push_back(
        {.until_input_gradient = tokens * (until_input * share + adapter) + own_input,
         .until_weight_gradient = tokens * ((until_weight - 2 * adapter) * waiting + 2 * adapter) + own_input,
         .in_forward = tokens * working.forward * share + operation.workspace_bytes,
         .in_input_gradient = tokens * working.input_gradient * share + operation.workspace_bytes,
         .redone = makes_probabilities(operation)});
  }
  return values;
}

ProgramMemory program_memory(const BlockProgram& program) {
  ProgramMemory memory;
  for (const KeptValue& value : program.kept) {
    memory.kept += value.until_input_gradient;
    memory.kept_for_weight += value.until_weight_gradient;
    if (value.redone) memory.redone += value.until_input_gradient;
  }
  return memory;
}

Working largest_working(const std::vector<KeptValue>& kept) {
  Working largest;
  for (const KeptValue& value : kept) {
    largest.forward = std::max(largest.forward, value.in_forward);
    largest.input_gradient = std::max(largest.input_gradient, value.in_input_gradient);
  }
  return largest;
}

}  // namespace plumb

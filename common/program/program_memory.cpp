#include "common/program/program_memory.hpp"

#include <algorithm>

namespace plumb {
namespace {

// Among how many ranks what an operation keeps is divided: its work, of products their output; and what waits for W.
double kept_ways(const Operation& operation, const PlacedBlock& placed) {
  const PlacedSite& site = site_of(placed, site_name(operation));
  const bool product = is_matmul(operation.kind) || operation.kind == OperationKind::lookup;
  return product ? ways_of(placed.mesh, site.kept.front()) : site.ways;
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
    const double share = 1.0 / kept_ways(operation, placed);
    values.push_back(
        {.until_input_gradient = tokens * ((operation.kept_bytes - adapter) * share + adapter),
         .until_weight_gradient = tokens * ((operation.kept_for_weight_bytes - 2 * adapter) * share + 2 * adapter),
         .alone = tokens * operation.kept_bytes * share,
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

double largest_kept(const std::vector<KeptValue>& kept) {
  double largest = 0;
  for (const KeptValue& value : kept) largest = std::max(largest, value.alone);
  return largest;
}

}  // namespace plumb

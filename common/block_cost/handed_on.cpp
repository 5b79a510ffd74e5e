#include "common/block_cost/handed_on.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <variant>

#include "common/block_cost/block_work.hpp"
#include "common/model/recurrent_state.hpp"

namespace plumb {
namespace {

bool is_last(const Slice& slice, const Scenario& scenario) {
  return slice.before + slice.tokens >= scenario.training.sequence;
}

// Keys and values of one token of a microbatch, of all that later tokens read of a layer; one rank's.
double keys_and_values(const Scenario& scenario, const PlacedBlock& placed, const Slice& slice) {
  std::int64_t all = 0;
  for (const PlacedSite& site : placed.sites) {
    if (site.kind != OperationKind::attention) continue;
    for (std::size_t read = 1; read < site.inputs.size(); ++read) all += elements(site.inputs[read].local);
  }
  return static_cast<double>(all * element_bytes(scenario.training.precision)) / static_cast<double>(slice.tokens);
}

std::int64_t window_of(const Scenario& scenario, std::size_t block) {
  const auto* const attention = std::get_if<SoftmaxAttention>(&scenario.model.layers[block - 1].mixer);
  const std::int64_t sequence = scenario.training.sequence;
  return attention == nullptr ? sequence : std::min(attention->window.value_or(sequence), sequence);
}

Bytes rounded(double bytes) { return {std::llround(bytes)}; }

// The first of the backward that makes the slice's gradients: the last one that sees the window's keys before it.
std::size_t last_to_see(const std::vector<Slice>& slices, std::size_t slice, std::int64_t window) {
  const std::int64_t end = slices[slice].before + slices[slice].tokens;
  std::size_t last = slice + 1;
  while (last + 1 < slices.size() && window - 1 > slices[last + 1].before - end) ++last;
  return last;
}

std::vector<HandedOn> of_attention(const Scenario& scenario, std::size_t block, const std::vector<Slice>& slices,
                                   const PlacedBlock& placed) {
  const double each = keys_and_values(scenario, placed, slices.front());
  const std::int64_t window = window_of(scenario, block);
  std::vector<HandedOn> all(slices.size());
  if (each == 0) return {};
  for (std::size_t n = 0; n < slices.size(); ++n) {
    if (is_last(slices[n], scenario)) continue;
    all[n].all = rounded(each * static_cast<double>(std::min(slices[n].tokens, window - 1)));
    if (n + 1 < slices.size()) all[last_to_see(slices, n, window)].gradients_left += all[n].all;
  }
  return all;
}

double share_of_kind(const PlacedBlock& placed, OperationKind kind) {
  const auto site = std::ranges::find(placed.sites, kind, &PlacedSite::kind);
  return site == placed.sites.end() ? 1 : share_of(placed.mesh, *site);
}

std::vector<HandedOn> of_recurrence(const Scenario& scenario, std::size_t block, const std::vector<Slice>& slices,
                                    const PlacedBlock& placed) {
  const Mixer& mixer = scenario.model.layers[block - 1].mixer;
  const RecurrentState of = recurrent_state(mixer);
  const auto sequences = static_cast<double>(scenario.training.microbatch);
  const double state = sequences * static_cast<double>(of.elements * element_bytes(ElementType::fp32)) *
                       share_of_kind(placed, OperationKind::recurrence);
  const double input = sequences * static_cast<double>(of.channels * element_bytes(scenario.training.precision)) *
                       share_of_kind(placed, OperationKind::convolution);
  const bool keeps_chunks = scenario.software.composed && std::holds_alternative<GatedDelta>(mixer);
  std::vector<HandedOn> all(slices.size());
  for (std::size_t n = 0; n < slices.size(); ++n) {
    if (is_last(slices[n], scenario)) continue;
    const std::int64_t tokens = std::min(of.tokens, slices[n].before + slices[n].tokens);
    all[n].all = rounded(state) + rounded(input * static_cast<double>(tokens));
    all[n].beside = keeps_chunks ? Bytes{} : rounded(state);
    if (n + 1 < slices.size()) all[n + 1].gradients_left += all[n].all;
  }
  return all;
}

}  // namespace

std::vector<HandedOn> handed_on(const Scenario& scenario, std::size_t block, const std::vector<Slice>& slices) {
  if (slices.size() < 2 || block == 0 || block > scenario.model.layers.size()) return {};
  const std::shared_ptr<const BlockWork> work = work_of_block(scenario, block, slices.front());
  const PlacedBlock& placed = work->shapes.placed;
  if (recurrent_state(scenario.model.layers[block - 1].mixer).elements > 0) {
    return of_recurrence(scenario, block, slices, placed);
  }
  return of_attention(scenario, block, slices, placed);
}

}  // namespace plumb

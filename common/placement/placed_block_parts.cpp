#include <algorithm>
#include <stdexcept>

#include "common/placement/placed_block.hpp"

namespace plumb {

const PlacedSite& site_of(const PlacedBlock& block, std::string_view name) {
  const auto found = std::ranges::find(block.sites, name, &PlacedSite::name);
  if (found == block.sites.end()) throw std::logic_error("no site " + std::string(name));
  return *found;
}

const PlacedTensor* find_value(const PlacedSite& site, std::string_view name) {
  for (const auto* tensors : {&site.inputs, &site.outputs}) {
    const auto found = std::ranges::find(*tensors, name, [](const PlacedTensor& each) { return each.whole.name; });
    if (found != tensors->end()) return &*found;
  }
  return nullptr;
}

int ways_of(const Mesh& mesh, const PlacedTensor& tensor) { return size(mesh, split_axes(tensor.placement)); }

double share_of(const Mesh& mesh, const PlacedSite& site) {
  const auto is_copied = [&](const PlacedTensor& each) {
    return has(each.whole.shape, Dim::kv_heads) && ways_of(mesh, each) != site.ways;
  };
  if (std::ranges::none_of(site.inputs, is_copied)) return 1.0 / site.ways;
  std::int64_t local = 0;
  std::int64_t whole = 0;
  for (const auto* tensors : {&site.inputs, &site.outputs}) {
    for (const PlacedTensor& each : *tensors) {
      local += elements(each.local);
      whole += elements(each.whole.shape);
    }
  }
  return static_cast<double>(local) / static_cast<double>(whole);
}

MatmulWays matmul_ways(const Mesh& mesh, const PlacedSite& site) {
  MatmulWays ways;
  const PlacedTensor& weight = site.weights.front();
  const PlacedTensor& output = site.outputs.front();
  for (const DimSplit& split : weight.placement.splits) {
    (has(output.whole.shape, split.dim) ? ways.outputs : ways.inputs) *= size(mesh, set_of(split.by));
  }
  for (const DimSplit& split : output.placement.splits) {
    if (!has(weight.whole.shape, split.dim)) ways.tokens *= size(mesh, set_of(split.by));
  }
  return ways;
}

std::int64_t stored_elements(const PlacedBlock& block, std::string_view weight) {
  const auto found =
      std::ranges::find_if(block.weights, [&](const PlacedWeight& each) { return each.stored.whole.name == weight; });
  if (found == block.weights.end()) throw std::logic_error("no weight " + std::string(weight));
  return elements(found->stored.local);
}

const PlacedMove* find_move(const PlacedBlock& block, Phase phase, Role role, std::string_view tensor) {
  const auto found = std::ranges::find_if(block.moves, [&](const PlacedMove& each) {
    return each.phase == phase && each.role == role && each.tensor == tensor && each.move.collective;
  });
  return found == block.moves.end() ? nullptr : &*found;
}

ElementType moved_type(const PlacedMove& each, ElementType precision) {
  return each.role == Role::statistics || each.tensor == "mlp.route" ? ElementType::fp32 : precision;
}

double received_bytes(const PlacedBlock& block, const PlacedMove& each, ElementType precision) {
  return received_elements(block.mesh, each.move) * static_cast<double>(element_bytes(moved_type(each, precision)));
}

}  // namespace plumb

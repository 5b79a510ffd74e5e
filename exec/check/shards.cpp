#include "exec/check/shards.hpp"

#include <algorithm>
#include <cstring>
#include <optional>

#include "common/base/error.hpp"
#include "common/model/lora.hpp"
#include "common/placement/index_ranges.hpp"
#include "exec/stage/primitives/block_parameters.hpp"
#include "exec/stage/tensor/division.hpp"
#include "exec/transport/collectives/collectives.hpp"

namespace plumb::exec {
namespace {

bool same_bits(float a, float b) { return std::memcmp(&a, &b, sizeof a) == 0; }

}  // namespace

Shards::Shards(const Plan& plan) : plan_(plan) {
  const int pipeline = plan.layout.vocabulary_barriers > 0 ? plan.layout.pipeline : 1;
  for (int part = 0; part < pipeline; ++part) {
    for (int position = 0; position < plan.layout.tensor.degree; ++position) {
      add_blocks({.index = part, .count = pipeline}, position, parts_.emplace_back());
    }
  }
}

void Shards::add_blocks(const VocabularyPart& of_vocabulary, int position, std::map<std::string, Part>& parts) const {
  const Model of_part = with_rows_of_part(plan_.model, of_vocabulary);
  for (int block = 0; block <= head_block(plan_.model); ++block) {
    std::optional<Division> division;
    if (plan_.layout.tensor.degree > 1) division.emplace(of_part, block, plan_.layout.tensor, plan_.training, position);
    for (const Parameter& parameter : with_adapters(block_parameters(plan_.model, block), plan_.training.lora)) {
      const std::string& name = parameter.name;
      parts[name] = {.of = elements(parameter),
                     .ranges = division ? elements_within_part(division->owned(name), name, division->elements(name),
                                                               of_vocabulary)
                                        : elements_of_part(parameter, of_vocabulary)};
    }
  }
}

std::size_t Shards::position_of(int rank) const {
  const MeshCoordinates at = coordinates(plan_.layout, rank);
  const int part = plan_.layout.vocabulary_barriers > 0 ? at[static_cast<std::size_t>(MeshAxis::pipeline)] : 0;
  return static_cast<std::size_t>(part * plan_.layout.tensor.degree + at[static_cast<std::size_t>(MeshAxis::tensor)]);
}

std::string Shards::add(int rank, const NamedGradients& mine, Holds holds) {
  const std::vector<int> group = shard_group(plan_.layout, rank);
  const bool all = holds == Holds::all || state_shards(plan_.layout) == 1;
  const std::size_t shards = all ? 1 : group.size();
  const std::size_t shard = all ? 0 : position_in(group, rank);
  const std::map<std::string, Part>& parts = parts_[position_of(rank)];
  std::string different;
  for (const auto& [name, values] : mine) {
    const auto known = parts.find(name);
    const auto size = static_cast<std::int64_t>(values.size());
    const Part part = known == parts.end() ? Part{.of = size, .ranges = {{0, size}}} : known->second;
    const auto owned = static_cast<std::size_t>(elements(part.ranges));
    Whole& whole = found_[name];
    if (whole.values.empty()) {
      whole.values.resize(static_cast<std::size_t>(part.of));
      whole.there.resize(static_cast<std::size_t>(part.of));
    }
    const std::size_t held = elements_of_part(owned, shards, shard);
    if (held != values.size() || static_cast<std::int64_t>(whole.values.size()) != part.of) {
      throw RunError("rank " + std::to_string(rank), "has " + std::to_string(size) + " elements of " + name +
                                                         ", its placement says " + std::to_string(held));
    }
    const std::size_t first = begin_of_part(owned, shards, shard);
    if (put(whole, part, first, values) || !different.empty()) continue;
    different = name;
  }
  return different;
}

bool Shards::put(Whole& whole, const Part& part, std::size_t first, const std::vector<float>& values) {
  bool same = true;
  std::size_t owned = 0;  // elements before, of those that the rank's tensor has
  for (const IndexRange& range : part.ranges) {
    for (auto at = static_cast<std::size_t>(range.begin); at < static_cast<std::size_t>(range.end); ++at, ++owned) {
      if (owned < first || owned >= first + values.size()) continue;
      const float value = values[owned - first];
      if (whole.there[at] && !same_bits(whole.values[at], value)) same = false;
      if (!whole.there[at]) whole.values[at] = value;
      whole.there[at] = true;
    }
  }
  return same;
}

NamedGradients Shards::whole() && {
  NamedGradients all;
  for (auto& [name, whole] : found_) {
    if (std::ranges::find(whole.there, false) != whole.there.end()) {
      throw RunError("gathered tensors", "no rank has some elements of " + name);
    }
    all.emplace(name, std::move(whole.values));
  }
  return all;
}

}  // namespace plumb::exec

#include "exec/check/shards.hpp"

#include <algorithm>
#include <cstring>

#include "common/base/error.hpp"
#include "exec/stage/tensor/division.hpp"
#include "exec/transport/collectives/collectives.hpp"

namespace plumb::exec {
namespace {

bool same_bits(float a, float b) { return std::memcmp(&a, &b, sizeof a) == 0; }

}  // namespace

Shards::Shards(const Plan& plan) : plan_(plan), parts_(static_cast<std::size_t>(plan.layout.tensor.degree)) {
  if (plan.layout.tensor.degree == 1) return;
  const int blocks = static_cast<int>(plan.model.layers.size()) + 2;
  for (std::size_t position = 0; position < parts_.size(); ++position) {
    for (int block = 0; block < blocks; ++block) {
      const Division division(plan.model, block, plan.layout.tensor, plan.training, static_cast<int>(position));
      for (const std::string& name : division.names()) {
        parts_[position][name] = {.of = division.elements(name), .ranges = division.owned(name)};
      }
    }
  }
}

std::string Shards::add(int rank, const NamedGradients& mine, Holds holds) {
  const MeshCoordinates place = coordinates(plan_.layout, rank);
  const int position = place.at(static_cast<std::size_t>(MeshAxis::tensor));
  const auto shard = static_cast<std::size_t>(place.at(static_cast<std::size_t>(MeshAxis::data)));
  const auto shards = static_cast<std::size_t>(state_shards(plan_.layout));
  const std::map<std::string, Part>& parts = parts_[static_cast<std::size_t>(position)];
  std::string different;
  for (const auto& [name, values] : mine) {
    const auto known = parts.find(name);
    const auto size = static_cast<std::int64_t>(values.size());
    const Part part = known == parts.end() ? Part{.of = size, .ranges = {{0, size}}} : known->second;
    std::int64_t owned = 0;
    for (const IndexRange& range : part.ranges) owned += range.end - range.begin;
    Whole& whole = found_[name];
    if (whole.values.empty()) {
      whole.values.resize(static_cast<std::size_t>(part.of));
      whole.there.resize(static_cast<std::size_t>(part.of));
    }
    if (owned != size || static_cast<std::int64_t>(whole.values.size()) != part.of) {
      throw RunError("rank " + std::to_string(rank), "has " + std::to_string(size) + " elements of " + name +
                                                         ", its placement says " + std::to_string(owned));
    }
    const bool all = holds == Holds::all || shards == 1;
    const std::size_t first = all ? 0 : begin_of_part(values.size(), shards, shard);
    const std::size_t end = all ? values.size() : first + elements_of_part(values.size(), shards, shard);
    auto from = values.begin();
    for (const IndexRange& range : part.ranges) {
      for (auto at = static_cast<std::size_t>(range.begin); at < static_cast<std::size_t>(range.end); ++at, ++from) {
        const auto local = static_cast<std::size_t>(from - values.begin());
        if (local < first || local >= end) continue;
        if (whole.there[at] && !same_bits(whole.values[at], *from) && different.empty()) different = name;
        if (!whole.there[at]) whole.values[at] = *from;
        whole.there[at] = true;
      }
    }
  }
  return different;
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

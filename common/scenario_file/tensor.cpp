// `tensor` of a layout: degrees, kinds, depths, sequence parallelism and what is asynchronous, each of which may be
// left open.
#include <algorithm>

#include "common/base/excerpt.hpp"
#include "common/capability/capability.hpp"
#include "common/layout/layout_features.hpp"
#include "common/layout/tensor_grid.hpp"
#include "common/scenario_file/blocks.hpp"

namespace plumb {
namespace {

// Each once.
template <class Value>
void add_once(std::vector<Value>& values, const Value& value, const YamlValue& place) {
  if (std::ranges::find(values, value) != values.end()) place.fail("'" + excerpt(place.text()) + "' stands twice");
  values.push_back(value);
}

std::vector<TensorKind> read_kinds(const YamlValue& value) {
  const auto given = auto_or_values(value);
  if (!given) return {all_tensor_kinds.begin(), all_tensor_kinds.end()};
  std::vector<TensorKind> kinds;
  for (const YamlValue& item : *given) {
    add_once(kinds, static_cast<TensorKind>(item.choice(tensor_kind_names())), item);
  }
  return kinds;
}

std::vector<bool> read_flags(const YamlValue& value) {
  const auto given = auto_or_values(value);
  if (!given) return {true, false};
  std::vector<bool> flags;
  for (const YamlValue& item : *given) add_once(flags, item.boolean(), item);
  return flags;
}

template <class Value>
bool holds(const std::vector<Value>& values, Value value) {
  return std::ranges::find(values, value) != values.end();
}

void read_depth(const YamlValue& block, TensorChoices& choices) {
  const bool several = choices.kinds.size() > 1;
  const bool deep = holds(choices.kinds, TensorKind::two_and_half_d);
  const auto depth = block.find("depth");
  if (!depth) {
    choices.depths.any = several && deep;
    return;
  }
  if (several && !deep) depth->fail("none of the kinds has a depth", "2.5d among them, or no depth");
  choices.depths = read_degrees(*depth, choices.tensor.depth);
}

// At the key that it is about. Of what is open, planning says why it cannot be.
void require_grid_at(const YamlValue& block, const TensorChoices& choices) {
  const auto place = [&](const char* key) { return block.find(key).value_or(block); };
  const TensorLayout& tensor = choices.tensor;
  const bool grids_alone = !holds(choices.kinds, TensorKind::one_d);
  if (grids_alone && holds(choices.sequence_parallel, true)) {
    const UsedFeatures used{
        .set = FeatureSet().set(index_of(Feature::sequence_parallel)).set(index_of(feature_of(tensor.kind)))};
    for (const Refusal& refusal : refusals(used, Purpose::plan)) {
      place("sequence_parallel").fail(refusal.problem, refusal.hint);
    }
  }
  const bool settled = !choices.degrees.open() && choices.kinds.size() == 1 && !choices.depths.open();
  if (!settled && is_grid(tensor)) return;
  Layout alone;
  alone.tensor = tensor;
  try {
    if (choices.kinds.size() == 1) require_grid(alone);
  } catch (const InputError& error) {
    place(tensor.kind == TensorKind::two_and_half_d || tensor.depth == 1 ? "degree" : "depth")
        .fail(error.problem(), error.hint());
  }
}

}  // namespace

bool TensorChoices::open() const {
  return degrees.open() || kinds.size() > 1 || depths.open() || sequence_parallel.size() > 1 ||
         asynchronous.size() > 1 || reshard_after_forward.size() > 1;
}

TensorChoices read_tensor(const YamlValue& block) {
  TensorChoices choices{.place = block};
  if (is_auto(block)) {
    choices.degrees.any = true;
    choices.sequence_parallel = {true, false};
    return choices;
  }
  if (!block.is_map()) {
    choices.tensor.degree = read_degree(block);
    return choices;
  }
  TensorLayout& tensor = choices.tensor;
  if (const auto degree = block.find("degree")) {
    choices.degrees = read_degrees(*degree, tensor.degree);
    choices.place = degree;
  }
  if (const auto kind = block.find("kind")) choices.kinds = read_kinds(*kind);
  tensor.kind = choices.kinds.front();
  read_depth(block, choices);
  if (const auto flag = block.find("sequence_parallel")) {
    choices.sequence_parallel = read_flags(*flag);
    if (!choices.degrees.open() && tensor.degree == 1 && choices.sequence_parallel == std::vector{true}) {
      flag->fail("sequence parallelism gives each tensor rank a part of the tokens, and the tensor degree is 1",
                 "degree: 2 or more beside it, or sequence_parallel: false");
    }
  }
  tensor.sequence_parallel = choices.sequence_parallel.front();
  if (const auto flag = block.find("asynchronous")) {
    choices.asynchronous = read_flags(*flag);
    tensor.asynchronous = choices.asynchronous.front();
    if (!choices.degrees.open() && tensor.degree == 1 && choices.asynchronous == std::vector{true}) {
      flag->fail("what is asynchronous are moves among tensor ranks, and the tensor degree is 1",
                 "degree: 2 or more beside it, or asynchronous: false");
    }
    // Of several layouts those are that can be.
    const bool divides_tokens = holds(choices.kinds, TensorKind::one_d) && holds(choices.sequence_parallel, true);
    const bool in_pieces = divides_tokens || std::ranges::any_of(choices.kinds, has_panels);
    if (holds(choices.asynchronous, true) && !in_pieces) {
      flag->fail(
          "what is asynchronous are gathers and scatters of tokens, of kind 1d with sequence parallelism, and the "
          "panels of 2d and 2.5d",
          "sequence_parallel: true beside it, kind: 2d or 2.5d, or asynchronous: false");
    }
  }
  if (const auto flag = block.find("reshard_after_forward")) {
    choices.reshard_after_forward = read_flags(*flag);
    if (holds(choices.reshard_after_forward, true) && !holds(choices.kinds, TensorKind::three_d)) {
      flag->fail("of a 3d tensor layout alone there is a choice of what forwards gather: 2d and 2.5d let go of it",
                 "kind: 3d, or without reshard_after_forward");
    }
    if (tensor.kind == TensorKind::three_d) tensor.reshard_after_forward = choices.reshard_after_forward.front();
  }
  require_grid_at(block, choices);
  return choices;
}

}  // namespace plumb

#include <algorithm>
#include <array>
#include <optional>
#include <tuple>
#include <utility>

#include "common/placement/table.hpp"

namespace plumb {
namespace {

constexpr std::array<Dim, 4> inner_dims = {Dim::heads, Dim::kv_heads, Dim::width, Dim::vocabulary};

using By = std::vector<Axis>;

By data_axes(const Mesh& mesh) {
  By axes = axes_of(mesh, {"data", "shard", "replicate", "inside", "across", "expert"});
  std::ranges::reverse(axes);  // major first
  return axes;
}

By joined(By a, const By& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Tokens by one list of axes, features by another: what of both a tensor has counts.
struct Division {
  By batch = {};
  By tokens = {};  // sequence; rows of experts follow batch and these
  By inner = {};
  By hidden = {};
  std::optional<By> kv_heads = {};  // where fewer than the others
};
Placement placement_of(const Division& by) {
  Placement placement = with_split({}, Dim::batch, by.batch);
  placement = with_split(std::move(placement), Dim::sequence, by.tokens);
  placement = with_split(std::move(placement), Dim::rows, joined(by.batch, by.tokens));
  for (const Dim dim : inner_dims) {
    const By& axes = dim == Dim::kv_heads && by.kv_heads ? *by.kv_heads : by.inner;
    placement = with_split(std::move(placement), dim, axes);
  }
  return with_split(std::move(placement), Dim::hidden, by.hidden);
}

bool is_inner(const Site& site) {
  const auto any = [](const std::vector<NamedShape>& tensors) {
    return std::ranges::any_of(tensors, [](const NamedShape& tensor) { return is_inner(tensor.shape); });
  };
  return any(site.outputs) || any(site.weights) ||
         std::ranges::any_of(site.inputs, [](const SiteInput& input) { return is_inner(input.value.shape); });
}

// All values of a block, in the two kinds that the layouts tell apart.
void place_values(LayoutTable& table, const std::vector<Site>& sites, const Placement& inner, const Placement& outer) {
  const auto place = [&](const NamedShape& value) {
    table.values[value.name] = restricted(is_inner(value.shape) ? inner : outer, value.shape);
  };
  for (const Site& site : sites) {
    for (const SiteInput& input : site.inputs) place(input.value);
    for (const NamedShape& output : site.outputs) place(output);
    if (site.kind != OperationKind::loss) continue;  // of each token, where its logits are
    for (const NamedShape& output : site.outputs) table.values[output.name] = restricted(inner, output.shape);
  }
}

// Of experts.
bool has_rows(const Site& site) {
  return has(site.inputs.front().value.shape, Dim::rows) || has(site.outputs.front().shape, Dim::rows);
}

// A look-up is a product with the rows' indicators.
bool multiplies(const Site& site) { return is_matmul(site.kind) || site.kind == OperationKind::lookup; }
bool reads_inner(const Site& site) { return is_inner(site.inputs.front().value.shape); }
bool makes_inner(const Site& site) { return is_inner(site.outputs.front().shape); }

bool is_inside(const Shape& shape) { return is_inner(shape) || has(shape, Dim::rows); }
bool is_narrow(const Shape& shape) { return !is_inside(shape) && !has(shape, Dim::hidden); }
bool reads(const Site& site, bool (*is)(const Shape&)) {
  return std::ranges::any_of(site.inputs, [&](const SiteInput& input) { return is(input.value.shape); });
}
bool reads_outer(const Site& site) {
  return reads(site, [](const Shape& shape) { return !is_inside(shape); });
}
bool makes_outer(const Site& site) {
  return std::ranges::any_of(site.outputs, [](const NamedShape& output) { return !is_inside(output.shape); });
}

std::vector<DeclaredMove> declared_in_one_d(Axes over, bool sequence_parallel) {
  using enum Phase;
  const Collective reduce = sequence_parallel ? Collective::reduce_scatter : Collective::all_reduce;
  std::vector<DeclaredMove> declared = {{forward, Role::output, At::exit, reduce, over},
                                        {input_gradient, Role::input_gradient, At::entry, reduce, over},
                                        {forward, Role::statistics, At::loss, Collective::all_reduce, over}};
  if (!sequence_parallel) return declared;
  declared.insert(declared.end(),
                  {{forward, Role::input, At::entry, Collective::all_gather, over},
                   {input_gradient, Role::output_gradient, At::exit, Collective::all_gather, over},
                   {weight_gradient, Role::input, At::entry, Collective::all_gather, over},
                   {weight_gradient, Role::output_gradient, At::lookup, Collective::all_gather, over},
                   {forward, Role::output, At::shortening, Collective::all_reduce, over},
                   {input_gradient, Role::input_gradient, At::shortening, Collective::all_reduce, over}});
  return declared;
}

std::vector<DeclaredMove> declared_in_two_d(Axes rows, Axes columns) {
  using enum Phase;
  std::vector<DeclaredMove> declared = {
      {forward, Role::input, At::product, Collective::all_gather, columns},
      {weight_gradient, Role::input, At::product, Collective::all_gather, columns},
      {input_gradient, Role::input_gradient, At::product, Collective::reduce_scatter, columns},
      {input_gradient, Role::input_gradient, At::narrow, Collective::all_reduce, columns},
      {weight_gradient, Role::weight_gradient, At::product, Collective::reduce_scatter, rows},
      {forward, Role::statistics, At::loss, Collective::all_reduce, columns}};
  for (const Phase phase : {forward, input_gradient}) {
    declared.push_back({phase, Role::weight, At::product, Collective::all_gather, rows});
    declared.push_back({phase, Role::statistics, At::norm, Collective::all_reduce, columns});
  }
  return declared;
}

// Inputs are gathered along the axis that their tokens and not their features have, outputs along that of theirs.
std::vector<DeclaredMove> declared_in_three_d(Axes rows, Axes columns, Axes depth, bool reshard) {
  using enum Phase;
  std::vector<DeclaredMove> declared;
  for (const auto& [at, inputs, outputs] :
       {std::tuple(At::entry_product, depth, columns), std::tuple(At::exit_product, columns, depth)}) {
    declared.insert(declared.end(), {{forward, Role::input, at, Collective::all_gather, inputs},
                                     {forward, Role::output, at, Collective::reduce_scatter, outputs},
                                     {input_gradient, Role::output_gradient, at, Collective::all_gather, outputs},
                                     {input_gradient, Role::input_gradient, at, Collective::reduce_scatter, inputs},
                                     {forward, Role::weight, at, Collective::all_gather, rows},
                                     {weight_gradient, Role::weight_gradient, at, Collective::reduce_scatter, rows}});
    if (!reshard) continue;
    declared.push_back({input_gradient, Role::weight, at, Collective::all_gather, rows});
    declared.push_back({weight_gradient, Role::input, at, Collective::all_gather, inputs});
  }
  declared.insert(declared.end(),
                  {{weight_gradient, Role::output_gradient, At::lookup, Collective::all_gather, depth},
                   {forward, Role::statistics, At::norm, Collective::all_reduce, columns},
                   {input_gradient, Role::statistics, At::norm, Collective::all_reduce, columns},
                   {forward, Role::statistics, At::loss, Collective::all_reduce, depth},
                   {forward, Role::output, At::narrow_product, Collective::all_reduce, columns},
                   {input_gradient, Role::input_gradient, At::narrow, Collective::all_reduce, columns}});
  return declared;
}

}  // namespace

bool is_at(At at, const Site& site) {
  const bool inside = is_inner(site) || has_rows(site);
  switch (at) {
    case At::entry:
      return inside && reads_outer(site);
    case At::exit:
      return inside && makes_outer(site) && site.kind != OperationKind::loss;
    case At::shortening:
      return !has(site.outputs.front().shape, Dim::sequence) && !has(site.outputs.front().shape, Dim::rows);
    case At::product:
      return multiplies(site);
    case At::entry_product:
      return multiplies(site) && makes_inner(site) && !reads_inner(site);
    case At::exit_product:
      return multiplies(site) && !makes_inner(site) && (reads_inner(site) || site.kind == OperationKind::lookup);
    case At::narrow:
      return reads(site, is_narrow);
    case At::narrow_product:
      return multiplies(site) && is_narrow(site.outputs.front().shape);
    case At::norm:
      return site.kind == OperationKind::norm;
    case At::lookup:
      return site.kind == OperationKind::lookup;
    case At::loss:
      return site.kind == OperationKind::loss;
  }
  return false;
}

bool is_inner(const Shape& shape) {
  return std::ranges::any_of(shape, [](const Extent& extent) { return is_inner(extent.dim); });
}

LayoutTable one_d(const Mesh& mesh, const std::vector<Site>& sites, bool sequence_parallel) {
  By tensor = axes_of(mesh, {"tensor", "tensor.copy", "tensor.kv"});
  std::ranges::reverse(tensor);  // major first
  const By kv_heads = axes_of(mesh, {"tensor", "tensor.kv"});
  const By data = data_axes(mesh);
  const By tokens = sequence_parallel ? tensor : By{};
  const Placement inside = placement_of({.batch = data, .inner = tensor, .kv_heads = kv_heads});
  const Placement outside = placement_of({.batch = data, .tokens = tokens});
  LayoutTable table{.name = sequence_parallel ? "1d, sp" : "1d", .keeps_gathered = !sequence_parallel};
  place_values(table, sites, inside, outside);
  for (const Site& site : sites) {
    table.sites[site.name] = is_inner(site) || has_rows(site) ? inside : outside;
    for (const NamedShape& output : site.outputs) {
      if (has(output.shape, Dim::rows)) table.values[output.name] = restricted(inside, output.shape);
    }
    if (site.kind != OperationKind::lookup) continue;  // which reads the tokens' ids, and every rank has all of them
    const NamedShape& ids = site.inputs.front().value;
    table.values[ids.name] = restricted(inside, ids.shape);
  }
  const Axes over = set_of(tensor);
  // Each rank's queries give back a summand of the head's gradient that it shares; what has made it passes that on.
  if (const Axes copies = without(over, set_of(kv_heads)); !is_empty(copies)) {
    for (const Site& site : sites) {
      for (const NamedShape& output : site.outputs) {
        if (has(output.shape, Dim::kv_heads)) table.gradient_sums[output.name] = copies;
      }
    }
  }
  // Experts' sums are added up once they are combined, and those of their input's gradient once these are: of tokens,
  // not of rows.
  for (const Site& site : sites) {
    if (!site.passes_sums) continue;
    const NamedShape& input = site.inputs.front().value;
    if (has(input.shape, Dim::rows)) {
      table.values[input.name] = with_partial(table.values[input.name], over);
    } else {
      table.gradient_sums[site.outputs.front().name] = over;
    }
  }
  table.declared = declared_in_one_d(over, sequence_parallel);
  return table;
}

LayoutTable two_d(const Mesh& mesh, const std::vector<Site>& sites) {
  const By row = axes_of(mesh, {"tensor.row"});
  const By column = axes_of(mesh, {"tensor.column"});
  const By depth = axes_of(mesh, {"tensor.depth"});
  const By batch = joined(joined(data_axes(mesh), depth), row);
  const Placement all = placement_of({.batch = batch, .inner = column, .hidden = column});
  LayoutTable table{.name = depth.empty() ? "2d" : "2.5d", .keeps_gathered = false};
  place_values(table, sites, all, all);
  for (const Site& site : sites) {
    if (!multiplies(site)) {
      table.sites[site.name] = all;
      continue;
    }
    // Sequences and outputs are divided, inputs gathered.
    const Placement compute = restricted(all, site.outputs.front().shape);
    const NamedShape& weight = site.weights.front();
    Placement stored = restricted(compute, weight.shape);
    for (const Extent& extent : weight.shape) {
      const bool contracted = !has(site.outputs.front().shape, extent.dim);
      if (contracted && find_split(all, extent.dim) != nullptr) stored = with_split(stored, extent.dim, row);
    }
    table.sites[site.name] = compute;
    table.weights[weight.name] = stored;
  }
  table.declared = declared_in_two_d(set_of(row), set_of(column));
  return table;
}

LayoutTable three_d(const Mesh& mesh, const std::vector<Site>& sites, bool reshard) {
  const By row = axes_of(mesh, {"tensor.row"});
  const By column = axes_of(mesh, {"tensor.column"});
  const By depth = axes_of(mesh, {"tensor.depth"});
  const By batch = joined(data_axes(mesh), row);
  const Placement inner = placement_of({.batch = joined(batch, column), .inner = depth});
  const Placement outer = placement_of({.batch = joined(batch, depth), .hidden = column});
  LayoutTable table{.name = reshard ? "3d, reshard" : "3d", .keeps_gathered = !reshard};
  place_values(table, sites, inner, outer);
  for (const Site& site : sites) {
    if (!multiplies(site)) {
      table.sites[site.name] = is_inner(site) ? inner : outer;
      continue;
    }
    // Rows of the grid divide the sequences; of inputs and outputs each is divided by an axis of its own.
    const bool crosses = site.kind == OperationKind::lookup || reads_inner(site) != makes_inner(site);
    const Placement compute = placement_of({.batch = batch, .inner = depth, .hidden = column});
    table.sites[site.name] = crosses ? compute : (makes_inner(site) ? inner : outer);
    const NamedShape& weight = site.weights.front();
    Placement stored = restricted(compute, weight.shape);
    const Dim first = weight.shape.front().dim == Dim::experts ? weight.shape[1].dim : weight.shape.front().dim;
    if (crosses && find_split(compute, first) != nullptr) stored = with_split(stored, first, row);
    table.weights[weight.name] = stored;
  }
  table.declared = declared_in_three_d(set_of(row), set_of(column), set_of(depth), reshard);
  return table;
}

LayoutTable layout_table(const Mesh& mesh, const TensorLayout& tensor, const std::vector<Site>& sites) {
  switch (tensor.kind) {
    case TensorKind::one_d:
      break;
    case TensorKind::two_d:
    case TensorKind::two_and_half_d:
      return two_d(mesh, sites);
    case TensorKind::three_d:
      return three_d(mesh, sites, tensor.reshard_after_forward);
  }
  return one_d(mesh, sites, divides_tokens(tensor));
}

}  // namespace plumb

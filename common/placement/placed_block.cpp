#include "common/placement/placed_block.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "common/base/error.hpp"

namespace plumb {
namespace {

constexpr const char* data_input = "tokens";  // each rank reads what it needs of it
constexpr const char* undeclared_hint =
    "declare it for this kind of site in the layout's table, or place the tensor where it is needed";

Placement needed(const Placement& compute, const SiteInput& input) {
  Placement placement = restricted(compute, input.value.shape);
  if (input.reads_all_tokens) {
    std::erase_if(placement.splits, [](const DimSplit& split) { return split.dim == Dim::sequence; });
  }
  return placement;
}

// Of what a site makes, before its sums are added up.
Placement made(const Site& site, const Placement& compute, const Shape& shape) {
  Placement placement = restricted(compute, shape);
  if (!site.statistics.empty()) return placement;
  const Axes contracted = without(split_axes(compute), split_axes(placement));
  return with_partial(std::move(placement), contracted);
}

bool reads_data(const Site& site) { return site.inputs.front().value.name == data_input; }

bool iterates_over(const Site& site, Dim dim) {
  const auto any = [&](const std::vector<NamedShape>& tensors) {
    return std::ranges::any_of(tensors, [&](const NamedShape& tensor) { return has(tensor.shape, dim); });
  };
  return any(site.outputs) || any(site.weights) ||
         std::ranges::any_of(site.inputs, [&](const SiteInput& input) { return has(input.value.shape, dim); });
}

// The table's iteration space of a site, of the dimensions that the site has.
Placement compute_in(const LayoutTable& table, const Site& site) {
  Placement compute = table.sites.at(site.name);
  std::erase_if(compute.splits, [&](const DimSplit& split) { return !iterates_over(site, split.dim); });
  return compute;
}

class Placing {
 public:
  Placing(const Mesh& mesh, const LayoutTable& table, const std::vector<Site>& sites)
      : mesh_(mesh), table_(table), sites_(sites) {
    for (const Site& site : sites) computes_.push_back(compute_in(table, site));
  }

  PlacedBlock block() && {
    block_.mesh = mesh_;
    for (const Site& site : sites_) forward(site);
    for (std::size_t i = sites_.size(); i-- > 0;) input_gradient(i);
    for (std::size_t i = sites_.size(); i-- > 0;) weight_gradient(sites_[i]);
    return std::move(block_);
  }

 private:
  // `site` is one of `sites_`.
  [[nodiscard]] const Placement& compute_of(const Site& site) const {
    return computes_[static_cast<std::size_t>(&site - sites_.data())];
  }
  [[nodiscard]] const Placement& stored(const NamedShape& value) const { return table_.values.at(value.name); }
  // What a weight's use iterates over: its site's work; of what a matmul adds behind its sum, such as a bias, its
  // output as it is kept.
  [[nodiscard]] Placement use_of(const Site& site, const NamedShape& weight) const {
    const bool added = is_matmul(site.kind) && weight.name != site.weights.front().name;
    Placement use = added ? stored(site.outputs.front()) : compute_of(site);
    use.partial = {};
    return use;
  }
  [[nodiscard]] Placement needed_weight(const Site& site, const NamedShape& weight) const {
    return restricted(use_of(site, weight), weight.shape);
  }
  [[nodiscard]] Placement stored_weight(const Site& site, const NamedShape& weight) const {
    const auto found = table_.weights.find(weight.name);
    return found != table_.weights.end() ? found->second : needed_weight(site, weight);
  }

  // Where a site makes several values, each of the input in the same place, of that one alone.
  [[nodiscard]] static bool goes_one_by_one(const Site& site) {
    return site.outputs.size() > 1 && site.inputs.size() == site.outputs.size();
  }
  // The iteration space of one of a site's values: of those that go one by one without the dimensions of the others.
  [[nodiscard]] Placement compute_of(const Site& site, const NamedShape& value) const {
    const Placement& compute = compute_of(site);
    return goes_one_by_one(site) ? restricted(compute, value.shape) : compute;
  }

  // Summands that the site's first input is stored as, and that go through it.
  [[nodiscard]] Axes passed(const Site& site) const {
    return site.passes_sums ? stored(site.inputs.front().value).partial : Axes{};
  }
  // Gradients are not kept as summands, unless the table says so.
  [[nodiscard]] Placement stored_gradient(const NamedShape& value) const {
    Placement placement = stored(value);
    placement.partial = gradient_sums(value);
    return placement;
  }
  [[nodiscard]] Axes gradient_sums(const NamedShape& value) const {
    const auto found = table_.gradient_sums.find(value.name);
    return found == table_.gradient_sums.end() ? Axes{} : found->second;
  }
  [[nodiscard]] Placement needed_input(const Site& site, const SiteInput& input) const {
    const Placement placement = needed(compute_of(site, input.value), input);
    const bool first = input.value.name == site.inputs.front().value.name;
    return first ? with_partial(placement, passed(site)) : placement;
  }
  [[nodiscard]] Placement made_output(const Site& site, const NamedShape& output) const {
    return with_partial(made(site, compute_of(site, output), output.shape), passed(site));
  }

  void forward(const Site& site) {
    const Placement& compute = compute_of(site);
    PlacedSite placed{.name = site.name, .kind = site.kind, .ways = size(mesh_, split_axes(compute))};
    for (const SiteInput& input : site.inputs) {
      placed.inputs.push_back(tensor(input.value, needed_input(site, input)));
      move_input(site, input, Phase::forward);
    }
    for (const NamedShape& weight : site.weights) {
      placed.weights.push_back(tensor(weight, needed_weight(site, weight)));
      move_weight(site, weight, Phase::forward);
    }
    move_statistics(site, Phase::forward);
    for (const NamedShape& output : site.outputs) {
      placed.outputs.push_back(tensor(output, made_output(site, output)));
      placed.kept.push_back(tensor(output, stored(output)));
      move(site, output, {Phase::forward, Role::output}, placed.outputs.back().placement, stored(output));
    }
    block_.sites.push_back(std::move(placed));
  }

  void move_input(const Site& site, const SiteInput& input, Phase phase) {
    if (input.value.name == data_input) return;
    const Placement want = needed_input(site, input);
    std::vector<Placement>& known = gathered_[{input.value.name, phase}];
    if (std::ranges::find(known, want) != known.end()) return;
    known.push_back(want);
    move(site, input.value, {phase, Role::input}, stored(input.value), want);
  }

  void move_weight(const Site& site, const NamedShape& weight, Phase phase) {
    move(site, weight, {phase, Role::weight}, stored_weight(site, weight), needed_weight(site, weight));
  }

  // Sums of a norm's gradient go over what its F summed over; those of the loss are kept.
  void move_statistics(const Site& site, Phase phase) {
    if (site.statistics.empty() || (phase != Phase::forward && site.kind != OperationKind::norm)) return;
    const Placement& compute = compute_of(site);
    const Placement whole = restricted(compute, site.statistics);
    Axes of_site;
    for (const SiteInput& input : site.inputs) of_site = of_site | split_axes(needed(compute, input));
    const Axes over = without(of_site, split_axes(whole));
    move(site, {site.name + ".statistics", site.statistics}, {phase, Role::statistics}, with_partial(whole, over),
         whole);
  }

  void move_output_gradients(const Site& site, Phase phase) {
    for (const NamedShape& output : site.outputs) {
      Placement want = made(site, compute_of(site, output), output.shape);
      want.partial = gradient_sums(output);
      move(site, output, {phase, Role::output_gradient}, stored_gradient(output), want);
    }
  }

  void input_gradient(std::size_t at) {
    const Site& site = sites_[at];
    if (reads_data(site) || !site.goes_back) return;
    move_output_gradients(site, Phase::input_gradient);
    if (!table_.keeps_gathered) {
      for (const NamedShape& weight : site.weights) move_weight(site, weight, Phase::input_gradient);
    }
    move_statistics(site, Phase::input_gradient);
    for (const SiteInput& input : site.inputs) {
      if (is_first_reader(at, input)) reduce_gradient(site, input);
    }
  }

  // Sites that need a value alike add up their gradients before one reduction, behind the I of the first of them.
  [[nodiscard]] bool is_first_reader(std::size_t at, const SiteInput& input) const {
    const Placement want = needed(compute_of(sites_[at]), input);
    for (std::size_t before = 0; before < at; ++before) {
      for (const SiteInput& other : sites_[before].inputs) {
        if (other.value.name == input.value.name && needed(compute_of(sites_[before]), other) == want &&
            partial_gradient(sites_[before], other) == partial_gradient(sites_[at], input)) {
          return false;
        }
      }
    }
    return true;
  }

  // Over the axes that divide what the input has not; where the first input comes as summands, over theirs for the
  // others. All that I gives back is linear in the output's gradient: over its summands, too.
  [[nodiscard]] Axes partial_gradient(const Site& site, const SiteInput& input) const {
    const Placement compute = compute_of(site, input.value);
    const bool first = input.value.name == site.inputs.front().value.name;
    const Axes sums = goes_one_by_one(site) ? gradient_sums(site.outputs[place_of(site, input)])
                      : first               ? gradient_sums(site.outputs.front())
                                            : passed(site);
    return without(split_axes(compute), split_axes(needed(compute, input))) | sums;
  }
  [[nodiscard]] static std::size_t place_of(const Site& site, const SiteInput& input) {
    const auto same = [&](const SiteInput& each) { return each.value.name == input.value.name; };
    return static_cast<std::size_t>(std::ranges::find_if(site.inputs, same) - site.inputs.begin());
  }

  void reduce_gradient(const Site& site, const SiteInput& input) {
    if (input.value.name == data_input) return;
    const Placement partial = with_partial(needed(compute_of(site), input), partial_gradient(site, input));
    move(site, input.value, {Phase::input_gradient, Role::input_gradient}, partial, stored_gradient(input.value));
  }

  // Of a product only W reads the input: W of the first that needs it fetches it for all. So it does the output's
  // gradient where I gives nothing back. What the stored weight splits further is scattered at once; the rest stays in
  // the accumulators.
  void weight_gradient(const Site& site) {
    if (!site.goes_back) return;
    if (reads_data(site)) move_output_gradients(site, Phase::weight_gradient);
    if (!table_.keeps_gathered && is_matmul(site.kind)) {
      for (const SiteInput& input : site.inputs) move_input(site, input, Phase::weight_gradient);
    }
    for (const NamedShape& weight : site.weights) {
      const Placement as_needed = needed_weight(site, weight);
      const Placement kept = stored_weight(site, weight);
      Axes partial = without(split_axes(use_of(site, weight)), split_axes(as_needed));
      for (const NamedShape& output : site.outputs) partial = partial | gradient_sums(output);
      const Axes left = without(partial, split_axes(kept));
      move(site, weight, {Phase::weight_gradient, Role::weight_gradient}, with_partial(as_needed, partial),
           with_partial(kept, left));
      block_.weights.push_back({.stored = tensor(weight, kept), .gradient_partial = left});
    }
  }

  [[nodiscard]] PlacedTensor tensor(const NamedShape& whole, const Placement& placement) const {
    return {.whole = whole, .placement = placement, .local = local_shape(mesh_, whole, placement)};
  }

  void move(const Site& site, const NamedShape& whole, std::pair<Phase, Role> what, const Placement& from,
            const Placement& to) {
    if (from == to) return;
    for (Move& each : moves(mesh_, whole, from, to)) {
      if (each.collective) require_declared(site, whole, what, each);
      block_.moves.push_back(
          {.phase = what.first, .role = what.second, .site = site.name, .tensor = whole.name, .move = std::move(each)});
    }
  }

  void require_declared(const Site& site, const NamedShape& whole, std::pair<Phase, Role> what,
                        const Move& made) const {
    const auto allows = [&](const DeclaredMove& each) {
      return each.phase == what.first && each.role == what.second && each.collective == *made.collective &&
             each.over == made.over && is_at(each.at, site);
    };
    if (std::ranges::any_of(table_.declared, allows)) return;
    throw InputError("layout " + table_.name + ", site " + site.name,
                     "the " + std::string(name_of(what.second)) + " " + whole.name + " (" +
                         std::string(name_of(what.first)) + ") needs an " + std::string(name_of(*made.collective)) +
                         " over " + describe(mesh_, made.over) + ", which the layout does not declare there: from " +
                         describe(mesh_, made.from) + " to " + describe(mesh_, made.to),
                     undeclared_hint);
  }

  const Mesh& mesh_;
  const LayoutTable& table_;
  const std::vector<Site>& sites_;
  std::vector<Placement> computes_;                                           // by site
  std::map<std::pair<std::string, Phase>, std::vector<Placement>> gathered_;  // by value: as what it has been
  PlacedBlock block_;
};

}  // namespace

std::string_view name_of(Role role) {
  switch (role) {
    case Role::input:
      return "input";
    case Role::output:
      return "output";
    case Role::statistics:
      return "statistics";
    case Role::input_gradient:
      return "input gradient";
    case Role::output_gradient:
      return "output gradient";
    case Role::weight:
      return "weight";
    case Role::weight_gradient:
      return "weight gradient";
  }
  return "";
}

std::string_view name_of(Phase phase) {
  switch (phase) {
    case Phase::forward:
      return "F";
    case Phase::input_gradient:
      return "I";
    case Phase::weight_gradient:
      return "W";
  }
  return "";
}

PlacedBlock place_block(const Mesh& mesh, const LayoutTable& table, const std::vector<Site>& sites) {
  return Placing(mesh, table, sites).block();
}

namespace {

// Over how many ranks of a tensor group each key-value head of a block stands.
int copies_of_kv_heads(const Model& model, std::size_t block, const TensorLayout& tensor) {
  if (tensor.kind != TensorKind::one_d || block == 0 || model.layers.empty()) return 1;
  const Layer& layer = block <= model.layers.size() ? model.layers[block - 1] : model.layers.back();
  const auto* attention = std::get_if<SoftmaxAttention>(&layer.mixer);
  if (attention == nullptr || attention->kv_heads >= tensor.degree) return 1;
  return tensor.degree % attention->kv_heads == 0 ? static_cast<int>(tensor.degree / attention->kv_heads) : 1;
}

Mesh mesh_of_block(const Model& model, std::size_t block, const TensorLayout& tensor) {
  Layout layout;
  layout.tensor = tensor;
  return with_copied_heads(mesh_of(layout), copies_of_kv_heads(model, block, tensor));
}

}  // namespace

PlacedBlock place_block(const Model& model, std::size_t block, const TensorLayout& tensor, const Tokens& tokens) {
  const Mesh mesh = mesh_of_block(model, block, tensor);
  const std::vector<Site> sites = block_sites(model, block, tokens);
  return place_block(mesh, layout_table(mesh, tensor, sites), sites);
}

}  // namespace plumb

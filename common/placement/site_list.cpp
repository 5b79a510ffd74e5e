#include "common/placement/site_list.hpp"

#include <algorithm>
#include <stdexcept>

namespace plumb {
namespace {

Shape joined(Shape a, const Shape& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Of a value, the dimensions that count tokens, or those that do not.
Shape part_of(const Shape& shape, bool of_tokens) {
  Shape part;
  for (const Extent& extent : shape) {
    if (counts_tokens(extent.dim) == of_tokens) part.push_back(extent);
  }
  return part;
}

}  // namespace

Shape SiteList::of_tokens(const Shape& behind) const {
  return joined({{Dim::batch, tokens_.sequences}, {Dim::sequence, tokens_.sequence}}, behind);
}

NamedShape SiteList::made_by(const std::string& name) const {
  for (const Site& site : sites_) {
    for (const NamedShape& output : site.outputs) {
      if (output.name == prefix_ + name) return output;
    }
  }
  throw std::logic_error("no site makes " + prefix_ + name);
}

Site& SiteList::add(Site site) {
  site.name.insert(0, prefix_);
  for (NamedShape& output : site.outputs) output.name.insert(0, prefix_);
  for (NamedShape& weight : site.weights) weight.name.insert(0, prefix_);
  sites_.push_back(std::move(site));
  return sites_.back();
}

Site& SiteList::matmul(const std::string& name, const NamedShape& x, const Shape& out, bool bias) {
  Site site{.name = name, .kind = OperationKind::matmul, .inputs = {{x}}};
  site.outputs = {{name, joined(part_of(x.shape, true), out)}};
  site.weights = {{name + ".weight", joined(out, part_of(x.shape, false))}};
  if (bias) site.weights.push_back({name + ".bias", out});
  return add(std::move(site));
}

Site& SiteList::pass(const std::string& name, OperationKind kind, const NamedShape& x) {
  return add({.name = name, .kind = kind, .inputs = {{x}}, .outputs = {{name, x.shape}}});
}

Site& SiteList::norm(const std::string& name, NormKind kind, const NamedShape& x) {
  const Extent last = x.shape.back();
  Site site{.name = name, .kind = OperationKind::norm, .inputs = {{x}}, .outputs = {{name, x.shape}}};
  site.weights = {{name + ".weight", {last}}};
  if (kind == NormKind::layernorm) site.weights.push_back({name + ".bias", {last}});
  site.statistics = {x.shape.begin(), x.shape.end() - 1};
  if (kind == NormKind::layernorm) site.statistics.push_back({Dim::features, 2});  // sum and sum of squares
  return add(std::move(site));
}

Site& SiteList::residual(const std::string& name, const NamedShape& stream, const NamedShape& branch) {
  return add({.name = name,
              .kind = OperationKind::residual,
              .inputs = {{stream}, {branch}},
              .outputs = {{name, stream.shape}}});
}

}  // namespace plumb

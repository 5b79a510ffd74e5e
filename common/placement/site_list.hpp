// Builds the sites of a block one after the other; only *_sites.cpp include it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "common/placement/site.hpp"

namespace plumb {

class SiteList {
 public:
  SiteList(const Model& model, const Tokens& tokens, std::string prefix = {})
      : model_(model), tokens_(tokens), prefix_(std::move(prefix)) {}

  [[nodiscard]] const Model& model() const { return model_; }
  [[nodiscard]] const Tokens& tokens() const { return tokens_; }
  [[nodiscard]] std::int64_t hidden() const { return model_.hidden; }

  // A value of every token: [batch, sequence, …].
  [[nodiscard]] Shape of_tokens(const Shape& behind) const;
  [[nodiscard]] Shape hidden_of_tokens() const { return of_tokens({{Dim::hidden, hidden()}}); }
  // What the site of this name has made.
  [[nodiscard]] NamedShape made_by(const std::string& name) const;

  Site& add(Site site);
  // y[tokens, out…] = x · `name`.weight[out…, in…]; with a bias [out…].
  Site& matmul(const std::string& name, const NamedShape& x, const Shape& out, bool bias = false);
  // The same shape as the input, dimension by dimension.
  Site& pass(const std::string& name, OperationKind kind, const NamedShape& x);
  // Over the last dimension of x, with `name`.weight, of layer norms `name`.bias too.
  Site& norm(const std::string& name, NormKind kind, const NamedShape& x);
  // The branch is added to the stream.
  Site& residual(const std::string& name, const NamedShape& stream, const NamedShape& branch);

  [[nodiscard]] std::vector<Site> take() && { return std::move(sites_); }

 private:
  const Model& model_;
  Tokens tokens_;
  std::string prefix_;
  std::vector<Site> sites_;
};

// Both read `x`, and give back what their last site makes, [tokens, hidden].
[[nodiscard]] NamedShape add_mixer_sites(SiteList& list, const Mixer& mixer, const NamedShape& x);
[[nodiscard]] NamedShape add_mlp_sites(SiteList& list, const Mlp& mlp, const NamedShape& x);

}  // namespace plumb

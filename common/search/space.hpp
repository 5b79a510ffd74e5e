// All candidates that a scenario leaves open, in one canonical order: what a candidate's number means.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/capability/feature.hpp"
#include "common/plan/plan.hpp"
#include "common/search/family.hpp"

namespace plumb {

// Families are numbered by layout, then microbatch, recompute, offload and schedule, each in the scenario's order; the
// candidates of a family by split. Keeps a reference to the scenario.
class SearchSpace {
 public:
  explicit SearchSpace(const Scenario& scenario);

  [[nodiscard]] const Scenario& scenario() const { return scenario_; }
  [[nodiscard]] std::int64_t families() const { return families_; }
  [[nodiscard]] std::int64_t splits() const { return static_cast<std::int64_t>(scenario_.splits.size()); }
  [[nodiscard]] std::int64_t candidates() const { return families_ * splits(); }

  [[nodiscard]] Family family(std::int64_t family) const;
  [[nodiscard]] const Layout& layout_of(std::int64_t family) const;
  [[nodiscard]] PlanChoice choice(std::int64_t candidate) const;

  // Why nothing of the family can be built, as far as its numbers alone tell; none: nothing speaks against it.
  [[nodiscard]] std::optional<std::string> refusal(std::int64_t family) const;

 private:
  [[nodiscard]] std::optional<std::string> cannot_be_planned(const Family& family, std::size_t layout) const;

  const Scenario& scenario_;
  std::vector<Layout> layouts_;
  std::vector<std::string> layout_refusals_;  // by layout; empty: none
  std::vector<Recompute> recomputes_;
  std::vector<Offload> offloads_;
  FeatureSet of_all_ = {};                        // that all candidates have
  std::vector<FeatureSet> layout_features_ = {};  // by layout
  std::int64_t families_ = 0;
  int most_stages_ = 0;
};

}  // namespace plumb

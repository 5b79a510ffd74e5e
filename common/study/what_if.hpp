// What if: named variants of a plan, from other costs to slow ranks and failing hosts, and what each predicts.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "common/base/document/yaml.hpp"
#include "common/graph/disturbance.hpp"
#include "common/plan/plan.hpp"

namespace plumb {

// Computation takes `slower` times as long, from the first action on. Only where all that is given holds.
struct Straggler {
  double slower = 1;
  std::optional<int> rank = {};  // of the pipeline, as in the table of `plumb simulate`
  std::optional<int> machine = {};
  std::optional<int> stage = {};
  std::optional<ActionKind> action = {};
  bool operator==(const Straggler&) const = default;
};

// Each computation takes a lognormal factor of mean 1 as long, drawn by seed, rank and action.
struct Jitter {
  double spread = 0;  // standard deviation of the factor
  std::uint64_t seed = 1;
  bool operator==(const Jitter&) const = default;
};

struct WhatIf {
  std::string name = {};
  Plan plan = {};  // with the costs of this variant
  std::vector<Straggler> stragglers = {};
  std::optional<Jitter> jitter = {};
  std::vector<Disturbance> disturbances = {};
  std::string note = {};  // what to know about the answer; mostly empty
};

// Reads the variants of a list in YAML (keys: docs/how-to/ask-what-if.md). Throws InputError with file and line for
// unknown keys, missing or wrong units, ranks, machines and stages that the plan has not, what matches nothing that the
// plan does, and other costs for a plan whose costs were measured or edited.
[[nodiscard]] std::vector<WhatIf> read_what_if(const std::filesystem::path& path, const Plan& plan);
[[nodiscard]] std::vector<WhatIf> read_what_if(const YamlValue& file, const Plan& plan);

// The graph of the variant's plan with the durations that its stragglers and jitter make.
[[nodiscard]] ScheduleGraph graph_of(const WhatIf& variant);

// The rank whose computation takes most of the chain of actions that ends last; the first of equal ones.
struct BoundingRank {
  int rank = 0;
  double fraction = 0;  // of the step
  bool operator==(const BoundingRank&) const = default;
};
[[nodiscard]] BoundingRank bounding_rank(const ScheduleGraph& graph, const Evaluation& evaluation);

// What never comes back and where it shows first: why a step failed.
struct WhatIfFailure {
  std::vector<Disturbance> causes = {};  // the earliest first, one for each rank
  int rank = -1;                         // of the first action that never ended
  Action action = {};
};

struct WhatIfOutcome {
  Seconds iteration = {};  // this and the next three: nothing if the step failed
  double bubble_makespan_fraction = 0;
  BoundingRank bounding = {};
  Bytes peak = {};            // memory of the fullest rank
  std::string unmet = {};     // which dates lie behind the step's end, in words; mostly empty
  std::size_t never_ran = 0;  // actions; above zero: the step failed
  WhatIfFailure why = {};
  std::string failure =
      {};  // the same in words: "rank 2 failed at 500.0 ms: 37 actions never ended, the first: rank 1: RECV_F …"
};
[[nodiscard]] WhatIfOutcome predict_what_if(const WhatIf& variant, const StepEngine& engine);

}  // namespace plumb

// Short names of choices and numbers, as tables and JSON show them.
#pragma once

#include <string>

#include "common/base/document/json.hpp"
#include "common/planner/planner.hpp"

namespace plumb::sim {

[[nodiscard]] std::string describe(const SplitChoice& split);      // "dynamic", "[6, 7, 7, 5]"
[[nodiscard]] std::string describe(const ScheduleChoice& choice);  // "interleaved-1f1b, 2 chunks"

// "pp8·tp4·dp2", with ", sp" for sequence parallelism and, where that is another nesting than tensor, data, pipeline,
// the axes above one: ", data innermost, then tensor, pipeline".
[[nodiscard]] std::string layout_text(const Layout& layout);

// The layers of each stage, runs of equal ones folded from nine stages on: "[6, 6]", "[3 × 4, 2 × 28]" for four stages
// of 3 layers and 28 of 2; cut if that is still long.
[[nodiscard]] std::string layers_text(const Split& split);

// "demo, 1f1b, dynamic split": tells the plans of one scenario apart.
[[nodiscard]] std::string plan_title(const Plan& plan);

// "2048", and from a million on "2.100 M".
[[nodiscard]] std::string tokens_text(double tokens);

// Model FLOPs over what all ranks' devices could do in that time; 0 if the peak is unknown.
[[nodiscard]] double flops_utilisation(const Plan& plan, Flops model_flops, Seconds iteration);

// A link's or a host's numbers, each with its source.
[[nodiscard]] std::string link_text(const Link& link);
[[nodiscard]] std::string host_text(const HostProfile& host);

// Of the rank whose host is the fullest, where something is offloaded; and what offloading more would free of `rank`
// and need there; empty where the machine says nothing of its host. Without a full stop.
[[nodiscard]] std::string host_text(const Plan& plan, int rank);

// "for megatron; left out: gpipe, zb-h1": the framework and the features that it does not run; empty without one.
[[nodiscard]] std::string framework_text(const Scenario& scenario);
// Place of the experts of a mixture; empty without one.
[[nodiscard]] std::string experts_text(const Model& model);
// Adds "for", "left_out" and "experts" to an object, where there is something to say.
void add_framework(Json& json, const Scenario& scenario);
void add_experts(Json& json, const Model& model);
// Throws InputError (where = the file) for all features of a plan that the framework of this name does not run.
void require_run_by(const std::string& framework, const Plan& plan, const std::string& file);

// The columns for a chart: the terminal's, or 100.
[[nodiscard]] int chart_width();

}  // namespace plumb::sim

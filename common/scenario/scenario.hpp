// What the user wants: model, cluster, training, layout, schedule and split.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/capability/framework.hpp"
#include "common/cluster/machine.hpp"
#include "common/cost/profile/profile.hpp"
#include "common/cost/software.hpp"
#include "common/layout/layout.hpp"
#include "common/model/lora.hpp"
#include "common/model/model.hpp"
#include "common/scenario/offload.hpp"
#include "common/schedule/schedule.hpp"

namespace plumb {

enum class RecomputeMode : std::uint8_t { none, selective, full, first_layers, every_nth_layer };
struct Recompute {
  RecomputeMode mode = RecomputeMode::none;
  int layers = 0;  // of first_layers: how many of each stage; of every_nth_layer: n
  bool operator==(const Recompute&) const = default;
};
// As scenarios write it: "none", "full", "{layers: 2}".
[[nodiscard]] std::string describe(const Recompute& recompute);

// What files may say: a seed is exact as a double.
inline constexpr double most_learning_rate = 1e6;
inline constexpr double most_gradient_norm = 1e9;
inline constexpr std::int64_t largest_seed = std::int64_t{1} << 53;

// Batches are counted in sequences.
struct Training {
  std::int64_t sequence = 0;
  std::int64_t global_batch = 1;
  std::int64_t microbatch = 1;
  ElementType precision = ElementType::fp32;
  Recompute recompute = {};
  Offload offload = {};
  Optimizer optimizer = Optimizer::adam;
  double learning_rate = 1e-3;
  // The gradient of the whole model is scaled down to this norm where it is longer (arXiv 1211.5063, algorithm 1;
  // torch's clip_grad_norm_); 0: never.
  double gradient_clipping = 0;
  std::uint64_t seed = 1;
  std::optional<Lora> lora = {};  // none: all parameters are trained
  bool operator==(const Training&) const = default;
};

enum class SplitMethod : std::uint8_t { uniform, parameters, dynamic, counts, megatron };
struct SplitChoice {
  SplitMethod method = SplitMethod::dynamic;
  std::vector<int> counts = {};  // of counts
  std::string megatron = {};     // of megatron
  bool operator==(const SplitChoice&) const = default;
};

// The name of a split method in scenarios, plans and tables.
[[nodiscard]] std::string_view name_of(SplitMethod method);

// How long a schedule's slices of a sequence are, where their tokens are not written down.
enum class SlicesBy : std::uint8_t { tokens, work };  // as many tokens each, or as much time
[[nodiscard]] const std::vector<std::string>& slices_by_names();

struct ScheduleChoice {
  std::string name = "1f1b";
  int chunks = 1;
  int slices = 1;  // of each sequence
  SlicesBy slices_by = SlicesBy::tokens;
  std::vector<std::int64_t> slice_tokens = {};  // of each slice, where the user says so
  int group = 0;         // microbatches that a chunk runs before the next one; 0: the schedule's own
  int update_every = 0;  // microbatches per optimizer step of an asynchronous schedule; 0: the schedule's own
  int in_flight = 0;     // of a schedule made for times: microbatches that a rank may hold; 0: as memory allows
  bool overlap = false;  // runs overlapped pairs, of a schedule that can do without
  std::optional<Schedule> given = {};  // what a file says; then the name is "file:" and the file's
  bool operator==(const ScheduleChoice&) const = default;
};

// How the name of a schedule begins that is no generator's.
inline constexpr std::string_view schedule_from_file = "file:";

// The stages that a choice makes of a pipeline of so many ranks.
[[nodiscard]] inline int stages_of(const ScheduleChoice& choice, int pipeline) {
  return choice.given ? stages(*choice.given) : pipeline * choice.chunks;
}

// Where the user left a choice open (`auto` or a list) several values stand; `plan` weighs all combinations.
struct Scenario {
  std::string name = {};          // of the file, without its ending
  std::string profile_file = {};  // of the profile, for messages; empty: measured here
  std::string place = {};         // file, and line of its cluster: for what only shows when candidates are weighed
  Model model = {};
  std::vector<std::string> remarks = {};  // on the model's file: what is left out of it, and what is assumed
  Cluster cluster = {};
  Training training = {};
  Layout layout = {};
  Software software = {};            // what plumb-exec does, unless the file says otherwise
  std::vector<Layout> layouts = {};  // candidates; `layout` is the first, and alone where there are none
  // Data degrees by stage are open, of pipelines of these lengths, or of any if it is empty; none: they are not. The
  // candidates for them stand among `layouts`.
  std::optional<std::vector<int>> stage_data_pipelines = {};
  std::vector<Recompute> recomputes = {};       // candidates; the same with training.recompute
  std::vector<Offload> offloads = {};           // candidates; the same with training.offload
  std::vector<std::int64_t> microbatches = {};  // candidates for training.microbatch, at least one
  std::vector<ScheduleChoice> schedules = {};   // candidates, at least one
  std::vector<SplitChoice> splits = {};         // candidates, at least one; `plan` adds uniform
  std::optional<Profile> profile = {};          // measured costs
  std::optional<Framework> framework = {};      // candidates are those that it runs
  bool nodes_open = false;                      // its number of nodes is one of several that may be tried
  std::vector<std::string> left_out = {};       // features of candidates that it does not run
  double expert_load = 1;                       // of the busiest rank's experts, over the mean of all (what if)
  bool operator==(const Scenario&) const = default;
};

// The candidates for layout, recompute and offload: at least one.
[[nodiscard]] std::vector<Layout> layouts_of(const Scenario& scenario);
[[nodiscard]] std::vector<Recompute> recomputes_of(const Scenario& scenario);
[[nodiscard]] std::vector<Offload> offloads_of(const Scenario& scenario);

// Of a step, on each data-parallel rank of the scenario's layout.
[[nodiscard]] std::int64_t microbatches_of(const Scenario& scenario, std::int64_t microbatch);

// True if layouts, recompute modes or what is offloaded are open: too many combinations to list them all.
[[nodiscard]] bool leaves_layout_open(const Scenario& scenario);

// How many combinations it leaves open: 1 where it settles everything.
[[nodiscard]] std::int64_t combinations(const Scenario& scenario);

// Settles one combination of a scenario's candidates. Throws InputError when it cannot be built (say why).
struct PlanChoice {
  std::int64_t microbatch = 1;
  ScheduleChoice schedule = {};
  SplitChoice split = {};
  std::optional<Layout> layout = {};  // this and the next two: none is the scenario's own
  std::optional<Recompute> recompute = {};
  std::optional<Offload> offload = {};
  bool operator==(const PlanChoice&) const = default;
};
// Of a scenario that leaves nothing open.
[[nodiscard]] PlanChoice only_choice(const Scenario& scenario);
// What a schedule was asked for; of one from a file itself.
[[nodiscard]] ScheduleChoice choice_of(const Schedule& schedule);
// A schedule that is searched for the stages' times, which takes seconds.
[[nodiscard]] bool is_made_for_times(const ScheduleChoice& schedule);

}  // namespace plumb

// The readers of a scenario's blocks, one each; `read_scenario` puts them together, command lines replace some.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/document/yaml.hpp"
#include "common/layout/sharding.hpp"
#include "common/scenario/scenario.hpp"
#include "common/scenario_file/read_scenario.hpp"
#include "common/scenario_file/scenario_rules.hpp"

namespace plumb {

// A scenario that stands in another file, as `name`.
[[nodiscard]] Scenario read_scenario(const YamlValue& file, const std::string& name,
                                     const ScenarioOverrides& overrides = {});

// Fails at the key: only tables of published measurements count a step from rank to rank (common/study/published.hpp);
// everything else lets all ranks start together.
[[noreturn]] void refuse_post_validation(const YamlValue& software);

// `auto`, one value or a list of values: the values, or nullopt for auto.
[[nodiscard]] std::optional<std::vector<YamlValue>> auto_or_values(const YamlValue& value);

inline constexpr std::int64_t largest_batch = std::int64_t{1} << 31;

// `training` without what depends on other blocks: those keys stay unset here, once they are numbers.
struct TrainingBlock {
  Training training = {};
  std::vector<Recompute> recomputes = {};
  std::vector<Offload> offloads = {};
  std::optional<ElementType> precision = {};
  std::optional<YamlValue> sequence = {};
  std::optional<YamlValue> global_batch = {};
  std::optional<YamlValue> microbatch = {};
  std::optional<YamlValue> recompute = {};
  std::optional<YamlValue> lora = {};
};
[[nodiscard]] TrainingBlock read_training(const std::optional<YamlValue>& given);

// Throws InputError where a recompute counts more layers than the model has.
void require_layers(const TrainingBlock& training, std::size_t layers);

// `lora: {rank, alpha, targets}` as this model has it; nothing or `none`: no LoRA. Fails for targets that no layer has.
[[nodiscard]] std::optional<Lora> read_lora(const std::optional<YamlValue>& given, const Model& model);

// Returns a machine's block, given its name ("dgx-h100"), its file or the block; what it is `like` is merged in.
[[nodiscard]] YamlValue machine_block(const YamlValue& value);

// Machine, nodes and cores; `ranks` is 0 where the block leaves it to the layout. Without a block: this machine.
struct ClusterBlock {
  Cluster cluster = {};
  ElementType precision = ElementType::fp32;  // given, or the device's usual one
  std::optional<YamlValue> ranks = {};
  std::optional<YamlValue> nodes = {};
  bool nodes_open = false;                // `auto`, and no layout or number of ranks says how many
  std::optional<YamlValue> machine = {};  // its file, or block
};
// `nodes`: in place of `auto`.
[[nodiscard]] ClusterBlock read_cluster(const YamlValue& file, std::optional<ElementType> precision, int nodes);

// Takes as many nodes as these ranks need, in place of `auto`.
void settle_nodes(std::int64_t ranks, ClusterBlock& block);

[[nodiscard]] inline bool is_auto(const YamlValue& value) { return value.is_text() && value.text() == "auto"; }

// Degrees that a key leaves open; none: it says one, or nothing.
struct OpenDegrees {
  bool any = false;            // auto
  std::vector<int> some = {};  // a list
  [[nodiscard]] bool open() const { return any || !some.empty(); }
};
[[nodiscard]] int read_degree(const YamlValue& value);
// `degree` is the one that is said, or the first of several.
[[nodiscard]] OpenDegrees read_degrees(const YamlValue& value, int& degree);

// `tensor` of a layout: what it says, of several the first, and what it leaves open.
struct TensorChoices {
  TensorLayout tensor = {};
  OpenDegrees degrees = {};
  std::vector<TensorKind> kinds = {TensorKind::one_d};
  OpenDegrees depths = {};  // of 2.5d
  std::vector<bool> sequence_parallel = {false};
  std::vector<bool> asynchronous = {false};
  std::vector<bool> reshard_after_forward = {false};  // of 3d
  std::optional<YamlValue> place = {};                // of the degree
  [[nodiscard]] bool open() const;
};
[[nodiscard]] TensorChoices read_tensor(const YamlValue& block);

// `vocabulary` of a layout: barriers of those that the pipeline's ranks divide, at least one; 0: whole.
struct VocabularyChoices {
  std::vector<int> barriers = {0};
  std::optional<YamlValue> place = {};
  [[nodiscard]] bool open() const { return barriers.size() > 1; }
};
[[nodiscard]] VocabularyChoices read_vocabulary(const YamlValue& block);

// Degrees and orders, at least one layout; settles the number of ranks of `cluster` and, where it is left out, of
// pipeline stages. Where degrees are open (auto or a list), their product is the number of ranks of the cluster.
struct LayoutChoices {
  std::vector<Layout> layouts = {};
  std::optional<std::vector<int>> stage_data_pipelines = {};  // as in a scenario
  std::optional<YamlValue> tensor_place = {};                 // of the tensor degree
  std::optional<YamlValue> vocabulary_place = {};
};
[[nodiscard]] LayoutChoices read_layouts(const YamlValue& file, const std::optional<YamlValue>& given,
                                         ClusterBlock& cluster);
// Of one layout; of several, planning tells which of them cannot be. Fail where the model's shapes, the sequence, given
// or the model's own, or the vocabulary cannot be divided as the layout says.
void require_divided_model(const YamlValue& file, const LayoutChoices& choices, const Model& model);
void require_divided_sequence(const YamlValue& file, const std::optional<YamlValue>& given,
                              const LayoutChoices& choices, std::int64_t sequence);
// Fails for what the vocabulary or the barriers do not fit.
void require_vocabulary(const LayoutChoices& choices, const Scenario& scenario);
// Returns the value at a key such as "layout.data.sharding", or the nearest block around it.
[[nodiscard]] YamlValue place_of_key(const YamlValue& file, std::string_view key);
// Fails, each at its key, for all features of what the scenario settles that cannot be planned together; candidates of
// what it leaves open are refused when they are planned.
void require_planned_together(const YamlValue& file, const std::optional<YamlValue>& schedule,
                              const LayoutChoices& choices, const Scenario& scenario);
// Values that a command line may have given in the place of the file's.
struct ChosenKeys {
  std::optional<YamlValue> schedule = {};
  std::optional<YamlValue> split = {};
  // The value of a key such as "layout.data.sharding"; nullopt if it is not there.
  [[nodiscard]] std::optional<YamlValue> find(const YamlValue& file, std::string_view key) const;
};
// `for`: megatron, torchtitan or plumb-exec.
[[nodiscard]] std::optional<Framework> read_framework(const std::optional<YamlValue>& value);
// Keep the candidates that the scenario's framework runs, and note what is left out. Fail at a key that names a feature
// that it does not run, or where no candidate is left.
void keep_layouts_of_framework(const YamlValue& file, const ChosenKeys& chosen, Scenario& scenario);
void keep_schedules_of_framework(const YamlValue& file, const ChosenKeys& chosen, Scenario& scenario);
// Fails for what is wrong in the block whatever the cluster is: for one whose machine is not known.
void require_readable_layout(const YamlValue& given);

// `sharding` of a `data` block, with its `reshard_after_forward`, `prefetch`, `layers_per_unit` and `reduce`: a rule, a
// list of them, or `auto`.
struct ShardingBlock {
  Sharding kind = Sharding::none;
  ShardingAsked asked = {};
  std::optional<YamlValue> place = {};  // of the rule
};
struct ShardingChoices {
  std::vector<ShardingBlock> rules = {{}};
  std::optional<YamlValue> at_use = {};  // prefetch or layers_per_unit, if either is there
  bool any = false;                      // auto: of hsdp a copy on each machine
};
[[nodiscard]] ShardingChoices read_shardings(const YamlValue& data);
// As many as hsdp's degrees say. Fails where they are too many.
[[nodiscard]] int ranks_of(const ShardingBlock& rule);
// Of layouts whose degrees are settled, each with every rule whose degrees fit it; once where nothing is shared out.
// Fails where none is left. `devices`: of a machine.
[[nodiscard]] std::vector<Layout> settled_sharding(const std::vector<Layout>& layouts, const ShardingChoices& choices,
                                                   int devices);

[[nodiscard]] std::vector<ScheduleChoice> read_schedules(const std::optional<YamlValue>& value,
                                                         const ScheduleBounds& bounds);
// {file: my.csv}, with `alphabet` if it must be said: a schedule that others wrote. Messages in it are planned anew.
[[nodiscard]] ScheduleChoice read_schedule_choice(const YamlValue& value, const ScheduleBounds& bounds);
// A name, a file, a block, or a file or block that says how it differs (`like`).
[[nodiscard]] Software read_software_of(const YamlValue& value);
[[nodiscard]] std::vector<SplitChoice> read_splits(const std::optional<YamlValue>& value);

}  // namespace plumb

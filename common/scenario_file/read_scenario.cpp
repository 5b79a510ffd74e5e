#include "common/scenario_file/read_scenario.hpp"

#include <algorithm>
#include <utility>

#include "common/base/input_errors.hpp"
#include "common/block_cost/missing_numbers.hpp"
#include "common/model/files/model_block.hpp"
#include "common/model/files/read_model.hpp"
#include "common/scenario_file/blocks.hpp"
#include "common/scenario_file/fields.hpp"
#include "common/scenario_file/other_files.hpp"
#include "common/scenario_file/scenario_rules.hpp"
#include "common/scenario_file/shipped.hpp"
#include "common/scenario_file/stage_data_choices.hpp"
#include "common/schedule/slices.hpp"

namespace plumb {
namespace {

constexpr std::int64_t largest_auto_microbatch = 64;
Model read_model_of(const YamlValue& value) {
  return value.is_text() ? read_model(find_file(value)) : read_model_block(value);
}

std::int64_t settle_sequence(const std::optional<YamlValue>& value, const Model& model) {
  const std::int64_t usual = default_sequence(model);
  if (!value) return usual;
  const std::int64_t sequence = value->integer();
  if (model.vision && sequence != usual) {
    value->fail(value->path() + ": an image of this model has " + std::to_string(usual) + " tokens, not " +
                value->text());
  }
  if (model.positions == Positions::learned && model.max_positions > 0 && sequence > model.max_positions) {
    value->fail(value->path() + ": the model has learned positions for " + std::to_string(model.max_positions) +
                    " tokens, not " + value->text(),
                "sequence: " + std::to_string(model.max_positions));
  }
  return sequence;
}

// The powers of two that divide the batch.
std::vector<std::int64_t> auto_microbatches(std::int64_t batch) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t size = 1; size <= largest_auto_microbatch && batch % size == 0; size *= 2) sizes.push_back(size);
  return sizes;
}

// Fails at `place`, by the rule's problem and hint.
template <class Rule>
void require_at(const YamlValue& place, const Rule& rule) {
  try {
    rule();
  } catch (const InputError& error) {
    place.fail(error.problem(), error.hint());
  }
}

void settle_batches(const TrainingBlock& block, Scenario& scenario) {
  Training& training = scenario.training;
  std::vector<std::int64_t>& sizes = scenario.microbatches;
  const auto given = block.microbatch ? auto_or_values(*block.microbatch) : std::vector<YamlValue>{};
  if (given) {
    for (const YamlValue& value : *given) sizes.push_back(value.integer());
    if (sizes.empty()) sizes = {scenario.profile ? scenario.profile->shapes.microbatch : 1};
  } else if (scenario.profile) {
    sizes = {scenario.profile->shapes.microbatch};
  }
  const std::int64_t largest = sizes.empty() ? 1 : *std::max_element(sizes.begin(), sizes.end());
  training.global_batch = block.global_batch ? block.global_batch->integer() : default_batch(scenario, largest);
  if (sizes.empty()) sizes = auto_microbatches(training.global_batch);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (training.global_batch % sizes[i] == 0) continue;
    // A default batch is a multiple of the largest size: only a given batch or a given size can be at odds.
    const YamlValue& place = given && i < given->size() ? (*given)[i] : *block.global_batch;
    place.fail("a microbatch of " + std::to_string(sizes[i]) + " does not divide the global batch of " +
                   std::to_string(training.global_batch) + " sequences",
               nearest_divisors("microbatch", training.global_batch, sizes[i]));
  }
  training.microbatch = sizes.front();
  if (block.global_batch) require_at(*block.global_batch, [&] { require_divided_batch(scenario); });
}

void require_stages_fit(const YamlValue& file, const Scenario& scenario) {
  const std::optional<YamlValue> layout = file.find("layout");
  const std::optional<YamlValue> pipeline = layout && layout->is_map() ? layout->find("pipeline") : std::nullopt;
  const std::optional<YamlValue> cluster = file.find("cluster");
  const YamlValue& place = pipeline ? *pipeline : layout ? *layout : cluster ? *cluster : file;
  // `pipeline: auto` alone has one answer: all ranks.
  const bool alone = pipeline && pipeline->is_text() && scenario.layouts.size() == 1;
  try {
    require_stages_fit(scenario);
  } catch (const InputError& error) {
    if (!alone) place.fail(error.problem(), error.hint());
    place.fail(error.problem() + "; tensor and data stay 1 where they are not named",
               "tensor: auto or data: auto beside it: the product of the degrees is the " +
                   std::to_string(scenario.cluster.ranks) + " ranks");
  }
}

void require_splits_fit(const std::optional<YamlValue>& value, const Scenario& scenario) {
  if (!value) return;
  const bool several =
      scenario.splits.size() > 1 && value->is_list() && scenario.splits.size() == value->items().size();
  for (std::size_t i = 0; i < scenario.splits.size(); ++i) {
    require_at(several ? value->items()[i] : *value, [&] { require_split_fits(scenario, scenario.splits[i]); });
  }
}

void require_shares_whole(const YamlValue& file, const Scenario& scenario) {
  try {
    require_divided_shares(scenario);
  } catch (const InputError& error) {
    const YamlValue layout = file.require("layout");
    const std::optional<YamlValue> data = layout.is_map() ? layout.find("data") : std::nullopt;
    (data ? data->require("by_stage") : layout).fail(error.problem(), error.hint());
  }
}

void require_schedule_fits(const std::optional<YamlValue>& value, const Scenario& scenario,
                           const ScheduleBounds& bounds) {
  if (!value) return;
  try {
    require_schedule_fits(scenario, bounds);
  } catch (const InputError& error) {
    const YamlValue place = value->is_list() ? value->items().front() : *value;
    const bool slices = error.where() == "slices" && place.is_map();
    (slices ? place.find("slices").value_or(place) : place).fail(error.problem(), error.hint());
  }
}

// Nothing decisive is made up.
void require_numbers(const Scenario& scenario, const YamlValue& machine) {
  const std::vector<MissingNumber> missing = missing_numbers(scenario);
  if (missing.empty()) return;
  const YamlValue place = missing.front().of_device ? machine.require("device") : machine;
  place.fail(problem_of(missing, scenario.cluster.machine.name), "add to " + lines_of(missing));
}

// What stages send each other is of a size that is counted.
void require_boundary(const YamlValue& file, const Scenario& scenario) {
  try {
    require_countable_messages(scenario);
  } catch (const InputError& error) {
    YamlValue place = file.require("model");
    if (const auto training = file.find("training")) place = *training;
    for (const char* key : {"sequence", "microbatch"}) {
      if (const auto given = place.is_map() ? place.find(key) : std::nullopt) {
        place = *given;
        break;
      }
    }
    place.fail(error.where() + ": " + error.problem(), "a shorter sequence, or a smaller microbatch");
  }
}

// The value of a key, or what a command line gives in its place.
std::optional<YamlValue> chosen(const YamlValue& file, const std::string& key, const std::string& given) {
  return given.empty() ? file.find(key) : YamlValue::parse(given, "--" + key);
}

void refuse_what_is_no_scenario(const YamlValue& file, const std::string& path) {
  refuse_other_files(file.keys(), path);
  if (file.find("format")) {
    throw InputError(path, "is not a scenario: it looks like a plan",
                     "plumb simulate " + path + ", or plumb-exec run " + path);
  }
  if (file.find("model") || !looks_like_model(file)) return;
  throw InputError(path, "is not a scenario: it looks like a model",
                   "write model: " + std::filesystem::path(path).filename().string() +
                       " in a scenario beside it; plumb show " + path + " tells what it is");
}

struct Blocks {
  TrainingBlock training = {};
  ClusterBlock cluster = {};
  LayoutChoices choices = {};
  std::optional<YamlValue> schedule = {};  // the file's, or the command line's
  std::optional<YamlValue> split = {};
};

// What each block says by itself, into the scenario too; all that is wrong there is told at once.
Blocks read_blocks(const YamlValue& file, const ScenarioOverrides& overrides, Scenario& scenario) {
  Blocks blocks;
  InputErrors errors;
  check_fields(scenario_block(), file, errors);
  if (!file.is_map()) errors.throw_if_any();
  errors.attempt([&] { scenario.model = read_model_of(file.require("model")); });
  errors.attempt([&] { blocks.training = read_training(file.find("training")); });
  const bool clustered =
      errors.attempt([&] { blocks.cluster = read_cluster(file, blocks.training.precision, overrides.nodes); });
  errors.attempt([&] {
    const auto layout = file.find("layout");
    if (clustered) blocks.choices = read_layouts(file, layout, blocks.cluster);
    if (!clustered && layout) require_readable_layout(*layout);
  });
  errors.attempt([&] {
    blocks.schedule = chosen(file, "schedule", overrides.schedule);
    (void)read_schedules(blocks.schedule, {.open = true});  // whether it suits layout and batch, once these are known
  });
  errors.attempt([&] {
    if (const auto software = file.find("software")) scenario.software = read_software_of(*software);
  });
  errors.attempt([&] { scenario.framework = read_framework(chosen(file, "for", overrides.framework)); });
  errors.attempt([&] {
    blocks.split = chosen(file, "split", overrides.split);
    scenario.splits = read_splits(blocks.split);
  });
  errors.throw_if_any();
  return blocks;
}

}  // namespace

Scenario read_scenario(const std::filesystem::path& path, const ScenarioOverrides& overrides) {
  return ScenarioFile(path).read(overrides);
}

ScenarioFile::ScenarioFile(const std::filesystem::path& path)
    : file_(YamlValue::load(path)), name_(path.stem().string()) {}

bool ScenarioFile::has_nodes_auto() const {
  try {
    const std::optional<YamlValue> given = file_.is_map() ? file_.find("cluster") : std::nullopt;
    const std::optional<YamlValue> block = given ? std::optional(block_or_file(*given, "cluster")) : std::nullopt;
    const std::optional<YamlValue> nodes = block && block->is_map() ? block->find("nodes") : std::nullopt;
    return nodes && is_auto(*nodes);
  } catch (const InputError&) {  // told where it is read
    return false;
  }
}

Scenario ScenarioFile::read(const ScenarioOverrides& overrides) const {
  Scenario scenario = read_scenario(file_, name_, overrides);
  if (scenario.software.post_validation) refuse_post_validation(file_.require("software"));
  return scenario;
}

Scenario read_scenario(const YamlValue& file, const std::string& name, const ScenarioOverrides& overrides) {
  const std::string& path = file.place().file;
  if (file.is_map()) refuse_what_is_no_scenario(file, path);
  Scenario scenario{.name = name, .place = path};
  auto [training, cluster, choices, schedule, split] = read_blocks(file, overrides, scenario);
  if (const YamlValue model = file.require("model"); model.is_text()) {
    scenario.remarks = model_remarks(find_file(model));
  }
  if (const auto given = file.find("cluster")) scenario.place = to_string(given->place());
  require_layers(training, scenario.model.layers.size());
  require_divided_model(file, choices, scenario.model);
  scenario.training = training.training;
  scenario.training.sequence = settle_sequence(training.sequence, scenario.model);
  require_divided_sequence(file, training.sequence, choices, scenario.training.sequence);
  scenario.layouts = choices.layouts;
  scenario.stage_data_pipelines = std::move(choices.stage_data_pipelines);
  scenario.layout = scenario.layouts.front();
  scenario.cluster = cluster.cluster;
  scenario.nodes_open = cluster.nodes_open;
  if (cluster.nodes_open && overrides.nodes == 0) {
    cluster.nodes->fail("cluster.nodes: auto is open here: the layout does not say how many there are",
                        "plumb plan " + path + " -o plan.json finds how many are needed; or nodes: 1");
  }
  // Degrees by stage are chosen by the time that reductions take behind the backward.
  const bool by_stage = scenario.stage_data_pipelines || std::ranges::any_of(scenario.layouts, has_stage_data);
  if (!file.find("software") && !by_stage) {
    scenario.software = assumed_software(scenario.cluster.machine.device.type);
  }
  scenario.recomputes = training.recomputes;
  scenario.offloads = training.offloads;
  scenario.training.precision = cluster.precision;
  scenario.training.lora = read_lora(training.lora, scenario.model);
  if (!overrides.profile.empty()) {
    scenario.profile = read_profile(overrides.profile);
    scenario.profile_file = overrides.profile;
  } else if (const auto profile = file.find("profile")) {
    scenario.profile = read_profile(find_file(*profile));
    scenario.profile_file = find_file(*profile).string();
  }
  const ChosenKeys chosen_keys{.schedule = schedule, .split = split};
  keep_layouts_of_framework(file, chosen_keys, scenario);
  choices.layouts = scenario.layouts;
  require_planned_together(file, schedule, choices, scenario);
  require_vocabulary(choices, scenario);
  settle_batches(training, scenario);
  require_shares_whole(file, scenario);
  for (Layout& layout : stage_data_layouts(scenario)) scenario.layouts.push_back(std::move(layout));
  const ScheduleBounds bounds = schedule_bounds(scenario);
  scenario.schedules = read_schedules(schedule, bounds);
  keep_schedules_of_framework(file, chosen_keys, scenario);
  require_planned_together(file, schedule, choices, scenario);
  require_stages_fit(file, scenario);
  require_schedule_fits(schedule, scenario, bounds);
  require_splits_fit(split, scenario);
  require_boundary(file, scenario);
  require_numbers(scenario, *cluster.machine);
  return scenario;
}

}  // namespace plumb

#include "common/scenario_file/read_scenario.hpp"

#include <algorithm>
#include <utility>

#include "common/base/input_errors.hpp"
#include "common/block_cost/missing_numbers.hpp"
#include "common/layout/divisible.hpp"
#include "common/layout/message_shares.hpp"
#include "common/model/files/model_block.hpp"
#include "common/model/files/read_model.hpp"
#include "common/scenario/boundary.hpp"
#include "common/scenario_file/blocks.hpp"
#include "common/scenario_file/other_files.hpp"
#include "common/scenario_file/shipped.hpp"
#include "common/scenario_file/stage_data_choices.hpp"
#include "common/schedule/action_index.hpp"
#include "common/schedule/generators/registry.hpp"
#include "common/schedule/slices.hpp"
#include "common/split/split.hpp"

namespace plumb {
namespace {

constexpr std::int64_t largest_auto_microbatch = 64;
// Without a global batch: microbatches per stage, which leave a bubble of about a fifth.
constexpr std::int64_t default_microbatches_per_stage = 4;

Model read_model_of(const YamlValue& value) {
  return value.is_text() ? read_model(find_file(value)) : read_model_block(value);
}

std::int64_t settle_sequence(const std::optional<YamlValue>& value, const Model& model) {
  const std::int64_t usual = default_sequence(model);
  if (!value) return usual;
  const std::int64_t sequence = value->integer(1, longest_sequence);
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

std::string nearest_divisors(const std::string& key, std::int64_t whole, std::int64_t wanted) {
  std::int64_t below = std::min(whole, wanted);
  while (whole % below != 0) --below;
  std::int64_t above = wanted;
  while (above < whole && whole % above != 0) ++above;
  return key + ": " + std::to_string(below) + (above <= whole ? " or " + std::to_string(above) : "");
}

// With several layouts one that each of them divides.
std::int64_t default_batch(const Scenario& scenario, std::int64_t microbatch) {
  const int stages = scenario.layouts.size() > 1 ? scenario.cluster.ranks : scenario.layout.pipeline;
  const std::int64_t shards = scenario.layouts.size() > 1 ? 1 : batch_shards(scenario.layout);
  return default_microbatches_per_stage * stages * microbatch * shards;
}

// Of one layout; of several, planning tells which of them cannot have it.
void require_divided_batch(const YamlValue& place, const Scenario& scenario) {
  if (scenario.layouts.size() > 1 || scenario.stage_data_pipelines) return;
  const std::int64_t shards = batch_shards(scenario.layout);
  const std::int64_t batch = scenario.training.global_batch;
  const auto divides = [&](std::int64_t size) { return batch % (size * shards) == 0; };
  if (std::ranges::any_of(scenario.microbatches, divides)) return;
  const std::int64_t least = std::ranges::min(scenario.microbatches) * shards;
  const std::int64_t below = batch / least * least;
  place.fail(undivided_batch(scenario.layout, std::ranges::min(scenario.microbatches), batch),
             "global_batch: " + (below > 0 ? std::to_string(below) + " or " : "") + std::to_string(below + least) +
                 ", or another data degree");
}

void settle_batches(const TrainingBlock& block, Scenario& scenario) {
  Training& training = scenario.training;
  std::vector<std::int64_t>& sizes = scenario.microbatches;
  const auto given = block.microbatch ? auto_or_values(*block.microbatch) : std::vector<YamlValue>{};
  if (given) {
    for (const YamlValue& value : *given) sizes.push_back(value.integer(1, largest_batch));
    if (sizes.empty()) sizes = {scenario.profile ? scenario.profile->shapes.microbatch : 1};
  } else if (scenario.profile) {
    sizes = {scenario.profile->shapes.microbatch};
  }
  const std::int64_t largest = sizes.empty() ? 1 : *std::max_element(sizes.begin(), sizes.end());
  training.global_batch =
      block.global_batch ? block.global_batch->integer(1, largest_batch) : default_batch(scenario, largest);
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
  if (block.global_batch) require_divided_batch(*block.global_batch, scenario);
}

// Fails at `place` unless `check` passes for the stages of some schedule on some layout.
template <class Check>
void require_some(const YamlValue& place, const Scenario& scenario, Check check) {
  std::optional<InputError> last;
  for (const Layout& layout : scenario.layouts) {
    for (const ScheduleChoice& schedule : scenario.schedules) {
      try {
        check(stages_of(schedule, layout.pipeline));
        return;
      } catch (const InputError& error) {
        last = error;
      }
    }
  }
  place.fail(last->problem(), last->hint());
}

void require_stages_fit(const YamlValue& file, const Scenario& scenario) {
  const std::optional<YamlValue> layout = file.find("layout");
  const std::optional<YamlValue> pipeline = layout && layout->is_map() ? layout->find("pipeline") : std::nullopt;
  const std::optional<YamlValue> cluster = file.find("cluster");
  const YamlValue& place = pipeline ? *pipeline : layout ? *layout : cluster ? *cluster : file;
  // Splits that are written down may leave the first and the last stage without a layer.
  const bool written = std::ranges::any_of(scenario.splits, [](const SplitChoice& split) {
    return split.method == SplitMethod::counts || split.method == SplitMethod::megatron;
  });
  const int layers = static_cast<int>(scenario.model.layers.size()) + (written ? 2 : 0);
  // `pipeline: auto` alone has one answer: all ranks.
  const bool alone = pipeline && pipeline->is_text() && scenario.layouts.size() == 1;
  require_some(place, scenario, [&](int stages) {
    try {
      require_stages(layers, stages);
    } catch (const InputError& error) {
      if (!alone) throw;
      throw InputError(error.where(), error.problem() + "; tensor and data stay 1 where they are not named",
                       "tensor: auto or data: auto beside it: the product of the degrees is the " +
                           std::to_string(scenario.cluster.ranks) + " ranks");
    }
  });
}

void require_splits_fit(const std::optional<YamlValue>& value, const Scenario& scenario) {
  if (!value) return;
  const bool several = value->is_list() && scenario.splits.size() == value->items().size();
  const int layers = static_cast<int>(scenario.model.layers.size());
  for (std::size_t i = 0; i < scenario.splits.size(); ++i) {
    const SplitChoice& choice = scenario.splits[i];
    const bool counts = choice.method == SplitMethod::counts;
    if (!counts && choice.method != SplitMethod::megatron) continue;
    require_some(several && scenario.splits.size() > 1 ? value->items()[i] : *value, scenario, [&](int stages) {
      (void)(counts ? explicit_split(choice.counts, layers, stages) : megatron_split(choice.megatron, layers, stages));
    });
  }
}

// Where every layout has data degrees by stage, some microbatch must divide among the replicas of each stage.
void require_shares_whole(const YamlValue& file, const Scenario& scenario) {
  std::optional<std::string> uneven;
  for (const Layout& layout : scenario.layouts) {
    for (const std::int64_t size : scenario.microbatches) {
      auto found = uneven_shares(layout, size);
      if (!found) return;
      if (!uneven) uneven = std::move(found);
    }
  }
  const YamlValue layout = file.require("layout");
  const std::optional<YamlValue> data = layout.is_map() ? layout.find("data") : std::nullopt;
  const std::int64_t least = least_microbatch(scenario.layout);
  (data ? data->require("by_stage") : layout)
      .fail(*uneven, least > 0 ? "microbatch: " + std::to_string(least) + ", or a multiple of it" : "other degrees");
}

ScheduleBounds schedule_bounds(const Scenario& scenario) {
  const auto shortest = std::ranges::min_element(scenario.layouts, {}, &Layout::pipeline);
  ScheduleBounds bounds{.pipeline = shortest->pipeline,
                        .layers = static_cast<int>(scenario.model.layers.size()),
                        .sequences_per_microbatch = scenario.microbatches.front() * batch_shards(scenario.layout),
                        .open = scenario.layouts.size() > 1};
  for (const std::int64_t size : scenario.microbatches) {
    bounds.microbatches.push_back(microbatches_of(scenario, size));
  }
  return bounds;
}

void require_slices_fit(const YamlValue& place, const ScheduleChoice& choice, std::int64_t sequence) {
  const YamlValue at = place.is_map() ? place.find("slices").value_or(place) : place;
  try {
    require_slices(choice.slice_tokens, sequence, "schedule");
  } catch (const InputError& error) {
    at.fail("schedule " + choice.name + ": " + error.problem(), error.hint());
  }
  const bool divided = choice.slice_tokens.empty() && choice.slices_by == SlicesBy::tokens;
  if (!divided && choice.slices > sequence) {
    at.fail("schedule " + choice.name + ": " + std::to_string(choice.slices) + " slices of a sequence of " +
            std::to_string(sequence) + " tokens");
  }
  if (!divided || sequence % choice.slices == 0) return;
  place.fail("schedule " + choice.name + ": " + std::to_string(choice.slices) + " slices do not divide a sequence of " +
                 std::to_string(sequence) + " tokens",
             nearest_divisors("slices", sequence, choice.slices));
}

// One schedule by name with what stands beside it, as `group: 3`, must suit some microbatch. Of several, those that do
// not are left out when they are weighed; one that is searched for suits all.
void require_schedule_fits(const std::optional<YamlValue>& value, const Scenario& scenario,
                           const ScheduleBounds& bounds) {
  const std::string& name = scenario.schedules.front().name;
  const bool one = std::ranges::all_of(scenario.schedules, [&](const auto& choice) { return choice.name == name; });
  if (!value || !one || bounds.open || scenario.schedules.front().given || find_schedule(name).uses_times) return;
  const YamlValue place = value->is_list() ? value->items().front() : *value;
  require_slices_fit(place, scenario.schedules.front(), scenario.training.sequence);
  std::optional<InputError> first;
  for (const std::int64_t microbatches : bounds.microbatches) {
    for (const ScheduleChoice& choice : scenario.schedules) {
      if (microbatches > largest_schedule) return;
      try {
        (void)generate_schedule(name, {.ranks = bounds.pipeline,
                                       .microbatches = static_cast<int>(microbatches),
                                       .chunks = choice.chunks,
                                       .slices = choice.slices,
                                       .group = choice.group,
                                       .update_every = choice.update_every,
                                       .overlap = choice.overlap,
                                       .vocabulary_barriers = scenario.layout.vocabulary_barriers});
        return;
      } catch (const InputError& error) {
        if (!first) first = error;
      }
    }
  }
  place.fail("schedule " + name + ": " + first->problem(), first->hint());
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
    (void)bytes(boundary_manifest(scenario.model, scenario.training));
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
  errors.attempt([&] {
    file.check_keys({"model", "cluster", "training", "layout", "schedule", "software", "split", "profile"});
  });
  if (!file.is_map()) errors.throw_if_any();
  errors.attempt([&] { scenario.model = read_model_of(file.require("model")); });
  errors.attempt([&] { blocks.training = read_training(file.find("training")); });
  const bool clustered = errors.attempt([&] { blocks.cluster = read_cluster(file, blocks.training.precision); });
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
  errors.attempt([&] {
    blocks.split = chosen(file, "split", overrides.split);
    scenario.splits = read_splits(blocks.split);
  });
  errors.throw_if_any();
  return blocks;
}

}  // namespace

Scenario read_scenario(const std::filesystem::path& path, const ScenarioOverrides& overrides) {
  const YamlValue file = YamlValue::load(path);
  Scenario scenario = read_scenario(file, path.stem().string(), overrides);
  if (scenario.software.post_validation) refuse_post_validation(file.require("software"));
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
  require_vocabulary(choices, scenario);
  settle_batches(training, scenario);
  require_shares_whole(file, scenario);
  for (Layout& layout : stage_data_layouts(scenario)) scenario.layouts.push_back(std::move(layout));
  const ScheduleBounds bounds = schedule_bounds(scenario);
  scenario.schedules = read_schedules(schedule, bounds);
  require_stages_fit(file, scenario);
  require_schedule_fits(schedule, scenario, bounds);
  require_splits_fit(split, scenario);
  require_boundary(file, scenario);
  require_numbers(scenario, *cluster.machine);
  return scenario;
}

}  // namespace plumb

#include "exec/checkpoint/checkpoint_folder.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "common/base/document/json.hpp"
#include "common/base/error.hpp"
#include "common/base/excerpt.hpp"
#include "common/base/files.hpp"
#include "common/model/files/model_json.hpp"
#include "common/plan/parts_json.hpp"
#include "exec/data/safetensors.hpp"

namespace plumb::exec {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view begin_of_name = "step-";
constexpr std::string_view partial = ".partial";
constexpr std::string_view removed = ".removed";
constexpr std::size_t fewest_digits = 6;
constexpr std::uintmax_t largest_index = std::uintmax_t{1} << 30;

void remove_whole(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) throw RunError(path.string(), "could not be removed: " + error.message());
}

// Throws InputError where the system does not say: what cannot be looked at is not passed over.
bool has_index(const fs::path& folder) {
  std::error_code error;
  const bool there = fs::is_regular_file(folder / index_name, error);
  if (!error || error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory) return there;
  throw InputError((folder / index_name).string(), "cannot be looked at: " + error.message(),
                   "may you read the folders that it is in?");
}

void require_same_tensors(const Checkpoint& checkpoint, const CheckpointIndex& wanted) {
  const auto fail = [&](const std::string& name, const std::string& problem) {
    throw InputError(checkpoint.folder.string(), fmt::format("is of another model: {} {}", excerpt(name), problem),
                     "resume it with a plan of the model that it is of");
  };
  const auto& there = checkpoint.index.tensors;
  for (const auto& [name, tensor] : wanted.tensors) {
    const auto found = there.find(name);
    if (found == there.end()) fail(name, "is not in it");
    if (found->second.shape != tensor.shape) {
      fail(name, fmt::format("has the shape {} in it, {} in the plan", shape_text(found->second.shape),
                             shape_text(tensor.shape)));
    }
    if (found->second.frozen != tensor.frozen) {
      fail(name, fmt::format("is {} in it, {} in the plan", found->second.frozen ? "frozen" : "trained",
                             tensor.frozen ? "frozen" : "trained"));
    }
  }
  for (const auto& [name, tensor] : there) {
    if (!wanted.tensors.contains(name)) fail(name, "is in it, and not in the plan");
  }
}

// The first thing that differs, as "layers[3].mixer.window is 128 in it, 64 in the plan"; empty: nothing does.
std::string difference(const Json& there, const Json& wanted, const std::string& path) {
  if (there == wanted) return "";
  const auto named = [&](const std::string& key) { return path.empty() ? key : path + "." + key; };
  if (there.is_object() && wanted.is_object()) {
    for (const auto& [key, value] : wanted.items()) {
      if (!there.contains(key)) return named(key) + " is not in it";
      if (const std::string found = difference(there.at(key), value, named(key)); !found.empty()) return found;
    }
    for (const auto& [key, value] : there.items()) {
      if (!wanted.contains(key)) return named(key) + " is in it, and not in the plan";
    }
  }
  if (there.is_array() && wanted.is_array() && there.size() == wanted.size()) {
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const std::string found = difference(there[i], wanted[i], fmt::format("{}[{}]", path, i));
      if (!found.empty()) return found;
    }
  }
  return fmt::format("{} is {} in it, {} in the plan", path, excerpt(to_line(there)), excerpt(to_line(wanted)));
}

// Shapes do not tell everything: windows, heads, what is normalised.
void require_same_arithmetic(const Checkpoint& checkpoint, const Plan& plan) {
  const Json there = arithmetic_json(checkpoint.index.model);
  const Json wanted = arithmetic_json(plan.model);
  if (const std::string found = difference(there, wanted, "model"); !found.empty()) {
    throw InputError(checkpoint.folder.string(), "is of another model: " + found,
                     "resume it with a plan of the model that it is of");
  }
  const Training& training = checkpoint.index.training;
  if (training.lora != plan.training.lora) {
    throw InputError(
        checkpoint.folder.string(),
        fmt::format("is of another LoRA: {} in it, {} in the plan", training.lora ? describe(*training.lora) : "none",
                    plan.training.lora ? describe(*plan.training.lora) : "none"));
  }
  if (training.optimizer == plan.training.optimizer) return;
  const auto name = [](Optimizer optimizer) { return optimizer_names()[static_cast<std::size_t>(optimizer)]; };
  throw InputError(checkpoint.folder.string(),
                   fmt::format("has the states of another optimizer: {} in it, {} in the plan",
                               name(training.optimizer), name(plan.training.optimizer)),
                   "plan with training: {optimizer: " + name(training.optimizer) + "}");
}

}  // namespace

std::string checkpoint_name(std::int64_t step) { return fmt::format("{}{:0{}}", begin_of_name, step, fewest_digits); }

bool begins_as_checkpoint(std::string_view name) { return name.starts_with(begin_of_name); }

std::optional<std::int64_t> step_of_checkpoint(std::string_view name) {
  if (!begins_as_checkpoint(name)) return std::nullopt;
  const std::string_view digits = name.substr(begin_of_name.size());
  std::int64_t step = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  const bool whole = error == std::errc() && end == digits.data() + digits.size();
  if (!whole || step < 0 || checkpoint_name(step) != name) {
    return std::nullopt;
  }
  return step;
}

std::string rank_file_name(int rank) { return fmt::format("rank-{:05}.safetensors", rank); }

fs::path partial_folder(const fs::path& folder, std::int64_t step) {
  return folder / (checkpoint_name(step) + std::string(partial));
}

CheckpointFolder look_into(const fs::path& folder) {
  CheckpointFolder found;
  std::error_code error;
  if (!fs::exists(folder, error)) return found;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    for (const std::string_view ending : {partial, removed}) {
      if (!name.ends_with(ending)) continue;
      const std::string_view before = std::string_view(name).substr(0, name.size() - ending.size());
      if (step_of_checkpoint(before)) found.leftovers.push_back(name);
    }
    const auto step = step_of_checkpoint(name);
    if (!step) continue;
    (has_index(entry->path()) ? found.steps : found.without_index).push_back(*step);
  }
  if (error) throw InputError(folder.string(), "cannot be read as a folder of checkpoints: " + error.message());
  std::ranges::sort(found.steps);
  std::ranges::sort(found.leftovers);
  std::ranges::sort(found.without_index);
  return found;
}

std::vector<std::string> remove_leftovers(const fs::path& folder, const CheckpointFolder& found) {
  std::vector<std::string> said;
  for (const std::string& name : found.leftovers) {
    try {
      remove_whole(folder / name);
      said.push_back(fmt::format("removed {}, which a run has left that was ended", (folder / name).string()));
    } catch (const RunError& error) {  // of an old checkpoint, in nobody's way
      if (!name.ends_with(removed)) throw;
      said.push_back(error.what());
    }
  }
  return said;
}

CheckpointsByTraining by_training(const fs::path& folder, const std::string& training_id) {
  CheckpointsByTraining found;
  for (const std::int64_t step : look_into(folder).steps) {
    bool own = false;
    try {
      const auto checkpoint = find_checkpoint(folder / checkpoint_name(step));
      own = checkpoint && checkpoint->index.training_id == training_id;
    } catch (const InputError&) {  // damaged: nobody can tell whose it is
    }
    (own ? found.own : found.others).push_back(step);
  }
  return found;
}

void keep_newest(const fs::path& folder, std::vector<std::int64_t>& steps, std::int64_t keep) {
  while (keep > 0 && static_cast<std::int64_t>(steps.size()) > keep) {
    const fs::path old = folder / checkpoint_name(steps.front());
    const fs::path aside = old.string() + std::string(removed);
    steps.erase(steps.begin());
    std::error_code error;
    fs::rename(old, aside, error);
    if (error == std::errc::no_such_file_or_directory) continue;
    if (error) throw RunError(old.string(), "could not be removed: " + error.message());
    remove_whole(aside);
  }
}

std::optional<Checkpoint> find_checkpoint(const fs::path& from) {
  fs::path folder = from;
  if (!has_index(folder)) {
    const CheckpointFolder found = look_into(from);
    if (found.steps.empty()) return std::nullopt;
    folder = from / checkpoint_name(found.steps.back());
  }
  const fs::path index = folder / index_name;
  std::error_code none;
  if (fs::file_size(index, none) > largest_index && !none) throw InputError(index.string(), "is larger than any index");
  return Checkpoint{.folder = folder, .index = parse_index(read_file(index), index.string())};
}

std::vector<std::string> require_fits(const Checkpoint& checkpoint, const Plan& plan, const std::string& data_digest) {
  require_same_tensors(checkpoint, index_of(plan, data_digest));
  require_same_arithmetic(checkpoint, plan);
  require_whole(checkpoint.index, (checkpoint.folder / index_name).string());
  std::vector<std::string> otherwise;
  const auto say = [&](const std::string& what, const auto& before, const auto& now, const std::string& effect) {
    if (before != now) otherwise.push_back(fmt::format("{} was {}, and is {}: {}", what, before, now, effect));
  };
  const Training& before = checkpoint.index.training;
  const Training& now = plan.training;
  const std::int64_t step = checkpoint.index.step;
  say("training.seed", before.seed, now.seed, "the weights are the checkpoint's");
  say("training.global_batch", before.global_batch, now.global_batch,
      fmt::format("the data go on at sequence {}, which was {}", step * now.global_batch, checkpoint.index.sequences));
  say("training.sequence", before.sequence, now.sequence, "the data go on elsewhere in the text");
  say("training.precision", name_of(before.precision), name_of(now.precision), "the bits will differ");
  say("training.learning_rate", before.learning_rate, now.learning_rate, "the new one counts from here on");
  say("training.gradient_clipping", before.gradient_clipping, now.gradient_clipping, "the new one counts from here on");
  if (checkpoint.index.data_digest != data_digest) {
    otherwise.emplace_back("the text to train on is another: it goes on at the same sequence");
  }
  return otherwise;
}

}  // namespace plumb::exec

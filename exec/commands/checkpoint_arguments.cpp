#include "exec/commands/checkpoint_arguments.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <optional>
#include <ostream>

#include "common/base/digest.hpp"
#include "common/base/document/number_check.hpp"
#include "common/base/error.hpp"
#include "common/base/excerpt.hpp"
#include "common/base/files.hpp"
#include "exec/checkpoint/folder_lock.hpp"
#include "exec/commands/session_arguments.hpp"
#include "exec/data/data.hpp"

namespace plumb::exec {
namespace {

namespace fs = std::filesystem;

constexpr const char* newest_word = "latest";

void require_together(const CheckpointArguments& arguments, const SessionOptions& options) {
  const auto needs_save = [&](const char* option) {
    if (arguments.save.empty())
      throw InputError(option, "says nothing without a folder of checkpoints", "add --save DIR");
  };
  if (arguments.every > 0) needs_save("--save-every");
  if (arguments.asynchronous) needs_save("--asynchronous-save");
  if (arguments.keep > 0) needs_save("--keep");
  if (arguments.resume == newest_word) needs_save("--resume latest");
  if (options.emulate && is_training(arguments)) {
    throw InputError(!arguments.save.empty()     ? "--save"
                     : !arguments.resume.empty() ? "--resume"
                                                 : "--log",
                     "there are no weights and no loss when compute is emulated", "leave out --emulate");
  }
  if (options.check && !arguments.resume.empty()) {
    throw InputError("--check",
                     "compares with a single device that trains from the first step on, and --resume does not",
                     "leave one of both out");
  }
}

std::string data_digest(const Plan& plan, const SessionOptions& options) {
  if (plan.model.vision) return "";
  return digest(load_corpus(options.stage.data, plan.model, plan.training.sequence)->text());
}

std::shared_ptr<const Checkpoint> resumed(const CheckpointArguments& arguments, const Plan& plan,
                                          const std::string& data, std::ostream& said) {
  if (arguments.resume.empty()) return nullptr;
  const bool newest = arguments.resume == newest_word;
  const std::string& from = newest ? arguments.save : arguments.resume;
  std::optional<Checkpoint> found = find_checkpoint(from);
  if (!found && !newest) {
    throw InputError(from, "has no checkpoint", "name one that --save has made, or a folder of them");
  }
  if (!found) {
    said << fmt::format("{} has no checkpoint yet: the training begins with its first step\n", from);
    return nullptr;
  }
  const std::vector<std::string> otherwise = require_fits(*found, plan, data);
  const CheckpointIndex& index = found->index;
  said << fmt::format("resumes {}, of step {} ({}, {})\n", found->folder.string(), index.step, excerpt(index.layout),
                      excerpt(index.schedule));
  for (const std::int64_t step : look_into(from).without_index) {
    said << fmt::format("{} has no {}, and is passed over\n", (fs::path(from) / checkpoint_name(step)).string(),
                        index_name);
  }
  for (const std::string& line : otherwise) said << line << '\n';
  return std::make_shared<const Checkpoint>(std::move(*found));
}

std::int64_t first_of(const CheckpointOptions& options) { return options.resume ? options.resume->index.step : 0; }

// What it has.
CheckpointFolder require_free(const fs::path& folder, std::int64_t first) {
  std::error_code none;
  if (fs::exists(folder / index_name, none)) {
    throw InputError(folder.string(), "is a checkpoint itself", "--save names the folder that has it, or another");
  }
  CheckpointFolder found = look_into(folder);
  if (!found.steps.empty() && found.steps.back() > first) {
    throw InputError(
        folder.string(),
        fmt::format("has {} already, and this run begins behind step {}", checkpoint_name(found.steps.back()), first),
        "--resume latest goes on from there; else remove or rename it, or name another folder");
  }
  if (!found.without_index.empty() && found.without_index.back() > first) {
    throw InputError((folder / checkpoint_name(found.without_index.back())).string(),
                     fmt::format("has no {}: it is no checkpoint, and stands where one may be saved", index_name),
                     "remove or rename it, or name another folder with --save");
  }
  return found;
}

void say_others(const CheckpointOptions& options, const Plan& plan, std::ostream& said) {
  const std::string id =
      options.resume ? options.resume->index.training_id : training_id(plan.model, plan.training, options.data_digest);
  const std::vector<std::int64_t> others = by_training(options.folder, id).others;
  if (others.empty()) return;
  constexpr std::size_t most_named = 5;
  std::vector<std::string> names;
  for (const std::int64_t step : others) names.push_back(checkpoint_name(step));
  const std::size_t more = names.size() > most_named ? names.size() - most_named : 0;
  names.resize(names.size() - more);
  said << fmt::format("--keep counts this training's checkpoints alone, and leaves {}{} of {}\n",
                      fmt::join(names, ", "), more > 0 ? fmt::format(" and {} more", more) : "", options.folder);
}

}  // namespace

bool is_training(const CheckpointArguments& arguments) {
  return !arguments.save.empty() || !arguments.resume.empty() || !arguments.log.empty();
}

void add_checkpoint_arguments(CLI::App& command, CheckpointArguments& arguments) {
  constexpr std::int64_t most = 1'000'000'000;
  command
      .add_option(
          "--save", arguments.save,
          "Saves a checkpoint to this folder after the last step. Steps then count from the start of the training, "
          "and --warm-up is 0 unless given.")
      ->type_name("FOLDER");
  command.add_option("--save-every,--save-interval", arguments.every, "Saves one after every N steps, too.")
      ->check(whole_number(1, most));
  command.add_flag("--asynchronous-save,--async-save", arguments.asynchronous,
                   "Writes checkpoints while training goes on, from a copy in memory.");
  command.add_option("--keep", arguments.keep, "Number of newest checkpoints to keep; default: all.")
      ->check(whole_number(1, most));
  command
      .add_option(
          "--resume,--load", arguments.resume,
          "Resumes from a checkpoint at this plan's layout: its folder, a folder of checkpoints (the newest), or "
          "`latest` in --save's folder, which may have none yet. --steps counts the whole training.")
      ->type_name("FOLDER");
  command
      .add_option("--log", arguments.log,
                  "Writes loss, learning rate and time of each step as JSON lines; a resumed run appends.")
      ->type_name("FILE");
}

CheckpointOptions checkpoint_options(const CheckpointArguments& arguments, const Plan& plan,
                                     const SessionOptions& options, std::ostream& said) {
  require_together(arguments, options);
  CheckpointOptions made{
      .folder = arguments.save, .every = arguments.every, .beside = arguments.asynchronous, .keep = arguments.keep};
  made.log = arguments.log;
  if (arguments.save.empty() && arguments.resume.empty()) return made;
  made.data_digest = data_digest(plan, options);
  made.resume = resumed(arguments, plan, made.data_digest, said);
  const std::int64_t first = first_of(made);
  if (first >= all_steps(options)) {
    const std::int64_t one_more = first + 1 - options.warm_up;
    throw InputError(
        "--steps",
        fmt::format("the checkpoint has {} steps already, and the training is to have {}", first, all_steps(options)),
        one_more <= most_steps_of_run ? fmt::format("--steps {} makes one more", one_more) : "");
  }
  if (!arguments.save.empty()) (void)require_free(arguments.save, first);
  return made;
}

void require_beside_checkpoints(const std::string& option, const std::string& output, const std::string& save) {
  if (output.empty() || save.empty()) return;
  const fs::path within = fs::weakly_canonical(output).lexically_relative(fs::weakly_canonical(save));
  if (within.empty()) return;
  const std::string first = within.begin()->string();
  if (!begins_as_checkpoint(first) && first != lock_name) return;
  throw InputError(option, fmt::format("'{}' is a name of what --save keeps in {}", output, save),
                   "another name, or a folder of its own");
}

void take_folder(CheckpointOptions& options, const Plan& plan, std::ostream& said) {
  if (options.folder.empty()) return;
  const fs::path folder = options.folder;
  options.lock = std::make_shared<const FolderLock>(folder);
  const CheckpointFolder found = require_free(folder, first_of(options));
  for (const std::string& line : remove_leftovers(folder, found)) said << line << '\n';
  if (options.keep > 0) say_others(options, plan, said);
}

}  // namespace plumb::exec

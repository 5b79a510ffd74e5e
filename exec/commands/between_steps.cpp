#include "exec/commands/between_steps.hpp"

#include <fmt/format.h>

#include <bit>
#include <iostream>
#include <sstream>
#include <utility>

#include "common/base/error.hpp"
#include "common/base/text.hpp"
#include "exec/checkpoint/restore.hpp"
#include "exec/commands/rank_work.hpp"
#include "exec/host/pauses.hpp"

namespace plumb::exec {
namespace {

constexpr std::chrono::minutes control_time{10};

}  // namespace

BetweenSteps::BetweenSteps(const PreparedPlan& prepared, const SessionOptions& options, Transport& transport,
                           const std::vector<std::unique_ptr<Stage>>& stages)
    : prepared_(prepared), options_(options), transport_(transport) {
  const CheckpointOptions& wanted = options.checkpoint;
  if (wanted.resume) restore(*wanted.resume, stages);
  if (!wanted.folder.empty()) {
    CheckpointIndex index = index_of(prepared.plan, wanted.data_digest);
    if (wanted.resume) index.training_id = wanted.resume->index.training_id;
    saver_.emplace(transport, stages, std::move(index), wanted.folder, wanted.keep);
  }
  if (!wanted.log.empty() && transport.rank() == 0) log_.emplace(wanted.log, first_step(options));
}

void BetweenSteps::after(std::int64_t step, const RankStep& done, Seconds took) {
  const std::int64_t steps = step + 1;
  if (!options_.checkpoint.log.empty()) log(steps, done, took);
  if (!saver_) return;
  if (saver_->is_pending()) {
    if (const auto folder = saver_->finish_if_written()) saved(*folder, begun_);
  }
  if (saves_after(steps)) save(steps);
}

bool BetweenSteps::saves_after(std::int64_t steps) const {
  const int every = options_.checkpoint.every;
  return (every > 0 && steps % every == 0) || steps == all_steps(options_);
}

// The loss is that of all ranks of last stages: rank 0 needs theirs.
void BetweenSteps::log(std::int64_t steps, const RankStep& done, Seconds took) {
  const std::string mine = fmt::format("{:016x}", std::bit_cast<std::uint64_t>(done.loss));
  std::vector<RankLog> logs;
  for (const std::string& text : transport_.gather(mine, unpaused_now() + control_time)) {
    RankStep of_rank;
    of_rank.loss = std::bit_cast<double>(std::stoull(text, nullptr, 16));
    logs.push_back({.rank = static_cast<int>(logs.size()), .steps = {of_rank}});
  }
  if (!log_) return;
  const Training& training = prepared_.plan.training;
  log_->add({.step = steps,
             .loss = losses_of(prepared_, logs).front(),
             .learning_rate = training.learning_rate,
             .sequences = steps * training.global_batch,
             .seconds = took,
             .tokens = training.global_batch * training.sequence});
}

// Beside the steps only where some follow.
void BetweenSteps::save(std::int64_t steps) {
  if (saver_->is_pending()) saved(saver_->finish(), begun_);
  begun_ = Clock::now();
  if (options_.checkpoint.beside && steps < all_steps(options_)) {
    saver_->begin(steps);
  } else {
    saved(saver_->save(steps), begun_);
  }
}

void BetweenSteps::saved(const std::filesystem::path& folder, Clock::time_point begun) {
  saved_.push_back(folder.string());
  if (transport_.rank() != 0 || !options_.tells_steps) return;
  std::cerr << fmt::format("checkpoint: {} in {}\n", folder.string(),
                           plumb::to_text(seconds_of(Clock::now()) - seconds_of(begun)))
            << std::flush;
}

}  // namespace plumb::exec

#include "exec/commands/rank_work.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "common/base/digest.hpp"
#include "common/base/program.hpp"
#include "common/base/text.hpp"
#include "common/layout/lane.hpp"
#include "exec/check/shards.hpp"
#include "exec/commands/between_steps.hpp"
#include "exec/commands/gradients_text.hpp"
#include "exec/data/data.hpp"
#include "exec/data/pretrained_weights.hpp"
#include "exec/device/torch_error.hpp"
#include "exec/emulation/wire_times.hpp"
#include "exec/host/pauses.hpp"
#include "exec/launch/clock_exchange.hpp"
#include "exec/run/patience.hpp"
#include "exec/run/runner.hpp"
#include "exec/run/step_name.hpp"
#include "exec/stage/emulated_stage.hpp"
#include "exec/stage/tensor/action_calls.hpp"
#include "exec/transport/launch_plan/group_calls.hpp"

namespace plumb::exec {
namespace {

constexpr int clock_measurements = 16;  // over the steps: drift changes within hours (temperature)
constexpr std::chrono::milliseconds tell_steps_every{200};
constexpr std::chrono::minutes hand_over_time{10};  // to compare clocks between steps, and for logs at the end

struct Doing {
  int plan = 0;
  Position position;
};

std::optional<Doing> parse(const std::string& text) {
  std::istringstream stream(text);
  Doing doing;
  if (!(stream >> doing.plan >> doing.position.step >> doing.position.action)) return std::nullopt;
  return doing;
}

// Of a rank, in lists by pipeline rank.
std::size_t place(const PreparedPlan& prepared, int rank) {
  return static_cast<std::size_t>(lane_of(prepared.plan.layout, rank).pipeline_rank);
}

// What a rank launches in a step of the plan; nothing where no messages are planned.
RankLaunches own_launches(const PreparedPlan& prepared, int rank, bool emulated) {
  const std::vector<RankLaunches>& of_pipeline = prepared.launches.ranks;
  if (of_pipeline.empty()) return {};
  const std::size_t own = place(prepared, rank);
  return launches_of_rank(of_pipeline[own], lane_of(prepared.plan.layout, rank), prepared.lowered.actions[own],
                          calls_of_rank(prepared.plan, rank, emulated));
}

// What of it all ranks must have alike.
std::string checkpoint_text(const CheckpointOptions& options) {
  std::string text;
  if (!options.folder.empty())
    text += fmt::format(" --save --save-every {} --keep {}{}", options.every, options.keep,
                        options.beside ? " --asynchronous-save" : "");
  if (options.resume) text += fmt::format(" --resume {}", digest(to_json(options.resume->index)));
  return text + (options.log.empty() ? "" : " --log");
}

// Line `number` of a text, from 0.
std::string line(const std::string& text, int number) {
  std::istringstream stream(text);
  std::string found;
  for (int i = 0; i <= number; ++i) std::getline(stream, found);
  return found;
}

}  // namespace

RankWork::RankWork(const std::vector<PreparedPlan>& plans, const SessionOptions& options)
    : plans_(plans),
      options_(options),
      current_plan_(static_cast<std::size_t>(ranks_of(plans.front()))),
      preparing_(current_plan_.size()),
      logs_(current_plan_.size()) {
  for (std::atomic<const char*>& activity : preparing_) activity = "joining the run";
}

int RankWork::account(std::size_t plan, int rank) const {
  return static_cast<int>(plan) * ranks_of(plans_.front()) + rank;
}

int RankWork::account(int rank) const {
  return account(static_cast<std::size_t>(current_plan_[static_cast<std::size_t>(rank)].load()), rank);
}

SessionLogs RankWork::run(Transport& transport, Device& device, Watchdog& watchdog, const HostIdentity& host) {
  try {
    return train(transport, device, watchdog, host);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {  // LibTorch's, with a page of stack: no memory for the weights, for one
    const RunError said(fmt::format("rank {}", transport.rank()), work_error(error));
    transport.abort(said.what());
    throw said;
  }
}

// What a rank has of each plan, in the plans' order.
struct RankWork::Ready {
  std::vector<Stages> stages;
  std::vector<ReceiveArena> arenas;
  std::vector<RankLaunches> launches;
  std::vector<std::unique_ptr<WireTimes>> wires;  // null where collectives are made
};

RankWork::Ready RankWork::made_ready(Transport& transport, Device& device) {
  const int rank = transport.rank();
  StageOptions of_stages = options_.stage;
  of_stages.device = device.name();
  of_stages.transport = &transport;
  if (device.is_asynchronous()) of_stages.streams = &device;
  of_stages.logs_routing = options_.check && divides_weights();
  Ready ready;
  for (std::size_t i = 0; i < plans_.size(); ++i) {
    const PreparedPlan& prepared = plans_[i];
    if (!options_.emulate) count_memory_as(account(i, rank));
    of_stages.patience = patience(prepared.plan, {.deadline_floor = options_.deadline});
    const bool emulates_wire = options_.emulate && !device.is_asynchronous();
    const Emulation emulation{.run = &transport,
                              .gradients = emulates_wire ? GradientMemory::none : GradientMemory::held,
                              .patience = of_stages.patience};
    ready.stages.push_back(options_.emulate ? make_emulated_stages(prepared.plan, rank, emulation)
                                            : make_stages(prepared.plan, rank, of_stages));
    ready.wires.push_back(emulates_wire ? std::make_unique<WireTimes>(prepared.plan) : nullptr);
    ready.launches.push_back(own_launches(prepared, rank, options_.emulate));
    ready.arenas.emplace_back(device, prepared.slots.empty() ? ReceiveSlots{} : prepared.slots[place(prepared, rank)]);
    logs_[static_cast<std::size_t>(rank)].push_back(
        {.rank = rank, .steps = {}, .arena_bytes = ready.arenas.back().bytes()});
  }
  return ready;
}

// `running`: the plan whose accounts count, at each moment.
RunOptions RankWork::run_options(Watchdog& watchdog, Device& device, const std::size_t& running) const {
  RunOptions run;
  run.warm_up = options_.warm_up;
  run.deadline_floor = options_.deadline;
  run.watchdog = &watchdog;
  run.device = &device;
  if (options_.emulate) return run;
  if (options_.transport == "local") {
    run.memory.moved = [&](const std::byte* data, int to_rank) { memory_moved(data, account(running, to_rank)); };
  }
  run.memory.reset_peak = [&](int of_rank) { reset_peak(account(running, of_rank)); };
  run.memory.peak = [&](int of_rank) { return peak_bytes(account(running, of_rank)); };
  run.memory.allocate = allocate_payload;
  run.memory.held = [&](int of_rank) { return held_bytes(account(running, of_rank)); };
  return run;
}

SessionLogs RankWork::train(Transport& transport, Device& device, Watchdog& watchdog, const HostIdentity& host) {
  const int rank = transport.rank();
  const Clock::time_point begun_here = unpaused_now();
  // One deadline for all of it, so that a rank that hangs is named before those that wait for it.
  watchdog.enter(rank, {.step = static_cast<std::int32_t>(first_step(options_)), .action = Position::before},
                 begun_here, after(begun_here, prepare_deadline(options_)));
  const auto ready_until = [&] { return after(unpaused_now(), prepare_deadline(options_)); };
  prepares(rank, "comparing its plan and text with rank 0's");
  require_same_plans(transport);
  prepares(rank, "building its stages");
  if (!options_.emulate) begin_rank_thread(rank);
  device.enter();
  Ready ready = made_ready(transport, device);
  std::vector<RankLog>& logs = logs_[static_cast<std::size_t>(rank)];
  if (options_.checkpoint.resume) prepares(rank, "reading the checkpoint");
  BetweenSteps between(plans_.front(), options_, transport, ready.stages.front());
  prepares(rank, "waiting until all ranks are ready");
  ClockExchange clocks(transport, {.host = host.name, .id = host.clock, .now = [] { return seconds_of(Clock::now()); }},
                       ready_until());
  transport.barrier(ready_until());
  prepares(rank, nullptr);
  std::size_t running = 0;
  RunOptions run = run_options(watchdog, device, running);
  Progress progress("steps");
  Clock::time_point told = Clock::now();
  const std::int64_t steps = all_steps(options_);
  const std::int64_t first = first_step(options_);
  NamedGradients before_last;
  const std::int64_t between_clocks = std::max<std::int64_t>(1, (steps - first) / clock_measurements);
  for (run.first_step = first; run.first_step < steps; ++run.first_step) {
    const Clock::time_point begun = Clock::now();
    if ((run.first_step - first) % between_clocks == 0) clocks.measure(unpaused_now() + hand_over_time);
    for (running = 0; running < plans_.size(); ++running) {
      const PreparedPlan& prepared = plans_[running];
      current_plan_[static_cast<std::size_t>(rank)] = static_cast<int>(running);
      run.launches = prepared.launches.ranks.empty() ? nullptr : &ready.launches[running];
      run.arena = prepared.slots.empty() ? nullptr : &ready.arenas[running];
      run.emulated_wire = ready.wires[running].get();
      if (!options_.emulate) count_memory_as(account(running, rank));
      const bool begins_last = run.first_step + 1 == steps && running == 0;
      if (options_.check && divides_weights() && begins_last) before_last = kept_weights(ready.stages.front());
      RankLog step = run_rank(prepared.plan, prepared.lowered, transport, ready.stages[running], run);
      logs[running].steps.push_back(std::move(step.steps.front()));
      logs[running].receives_beside = ready.arenas[running].refused();
    }
    const Clock::time_point now = Clock::now();
    if (options_.tells_steps && now - told >= tell_steps_every) {
      told = now;
      tell_step(rank, run.first_step, seconds_of(now) - seconds_of(begun));
    }
    if (rank == 0 && !options_.tells_steps) {
      const std::int64_t measured = run.first_step + 1 - options_.warm_up;
      progress.update(std::max<std::int64_t>(measured, 0), options_.steps, measured < 0 ? "warm-up" : "");
    }
    between.after(run.first_step, logs.front().steps.back(), seconds_of(now) - seconds_of(begun));
    if (rank == 0) saved_ = between.saved();
  }

  clocks.measure(unpaused_now() + hand_over_time);
  SessionLogs all = gathered(transport, clocks, logs, ready.stages.front(), before_last);
  all.device = device.name();
  all.checkpoints = between.saved();
  return all;
}

// By the rank that has the loss, on standard error, which ranks that are processes share. It took from the end of this
// rank's step before: other ranks may still work on this one, whose own time is known when all have told theirs.
void RankWork::tell_step(int rank, std::int64_t step, Seconds took) const {
  const PreparedPlan& prepared = plans_.front();
  const auto last = static_cast<std::size_t>(rank_in_replica(prepared.lowered, 0, stages(prepared.lowered) - 1));
  if (rank != lane_of(prepared.plan.layout, 0).ranks[last]) return;
  const Training& training = prepared.plan.training;
  std::string line = step_name(step, options_.warm_up) + ": " + plumb::to_text(took);
  if (ranks_of(prepared) > 1) line += fmt::format(" on rank {}", rank);
  // Of several pipelines each has the loss of its own microbatches, of a grid's ranks each that of its own sequences.
  const Layout& layout = prepared.plan.layout;
  const bool has_all = layout.data.degree == 1 && !(is_grid(layout.tensor) && layout.tensor.degree > 1);
  if (!options_.emulate && replicas(prepared.lowered) == 1 && has_all) {
    const double loss = logs_[static_cast<std::size_t>(rank)].front().steps.back().loss;
    line += std::isnan(loss) ? ", loss nan" : fmt::format(", loss {:.6f}", loss);  // not "-nan"
  }
  if (!options_.emulate) line += fmt::format(", learning rate {:g}", training.learning_rate);
  const double tokens = static_cast<double>(training.global_batch) * static_cast<double>(training.sequence);
  line += fmt::format(", {:.0f} tokens/s\n", tokens / took.value);
  std::cerr << line << std::flush;
}

std::string RankWork::log_so_far(int rank) const {
  nlohmann::json texts = nlohmann::json::array();
  for (const RankLog& log : logs_[static_cast<std::size_t>(rank)]) texts.push_back(to_text(log));
  return nlohmann::json{{"logs", texts}, {"checkpoints", rank == 0 ? saved_ : std::vector<std::string>()}}.dump();
}

SessionLogs RankWork::logs_so_far(const std::vector<std::string>& texts) const {
  SessionLogs all;
  all.ranks.resize(plans_.size());
  std::size_t steps = std::numeric_limits<std::size_t>::max();
  for (const std::string& text : texts) {
    const nlohmann::json parsed = nlohmann::json::parse(text);
    if (all.checkpoints.empty()) parsed.at("checkpoints").get_to(all.checkpoints);
    const nlohmann::json& of_rank = parsed.at("logs");
    if (of_rank.size() != plans_.size()) return {};
    for (std::size_t plan = 0; plan < plans_.size(); ++plan) {
      all.ranks[plan].push_back(parse_rank_log(of_rank[plan].get<std::string>()));
      steps = std::min(steps, all.ranks[plan].back().steps.size());
    }
  }
  if (steps <= static_cast<std::size_t>(warm_up_left(options_))) return {};
  for (std::vector<RankLog>& of_plan : all.ranks) {
    for (RankLog& log : of_plan) log.steps.resize(steps);
  }
  return all;
}

SessionLogs RankWork::logs_so_far() const {
  std::vector<std::string> texts;
  for (std::size_t rank = 0; rank < logs_.size(); ++rank) texts.push_back(log_so_far(static_cast<int>(rank)));
  return logs_so_far(texts);
}

SessionLogs RankWork::gathered(Transport& transport, ClockExchange& clocks, const std::vector<RankLog>& logs,
                               const Stages& first, const NamedGradients& before) const {
  SessionLogs all{.clock_uncertainty = clocks.uncertainty(),
                  .clock_of_rank = clocks.clock_of_rank(),
                  .clock_warnings = clocks.warnings()};
  const std::vector<HostClock> clock_of_rank = clocks.by_rank();
  for (const RankLog& log : logs) {
    std::vector<RankLog> of_plan;
    for (const std::string& text : transport.gather(to_text(log), unpaused_now() + hand_over_time)) {
      const HostClock& clock = clock_of_rank[of_plan.size()];
      turn_to_rank_0(of_plan.emplace_back(parse_rank_log(text)), clock);
    }
    all.ranks.push_back(std::move(of_plan));
  }
  // Rank 0 gets them whole. In `different` the first rank whose copy of something has other bits than one before it.
  std::string different;
  const auto gather = [&](const NamedGradients& mine, Shards::Holds holds = Shards::Holds::all) {
    const std::vector<std::string> parts = transport.gather(to_bytes(mine), unpaused_now() + hand_over_time);
    if (parts.empty()) return NamedGradients();
    Shards shards(plans_.front().plan);
    for (std::size_t rank = 0; rank < parts.size(); ++rank) {
      NamedGradients of_rank;
      (void)add_from_bytes(parts[rank], of_rank);
      const std::string name = shards.add(static_cast<int>(rank), of_rank, holds);
      if (name.empty() || !different.empty()) continue;
      different = fmt::format("rank {}: its copy of {} differs from that of a rank before it", rank, name);
    }
    return std::move(shards).whole();
  };
  const auto of_weights = shards_weights(plans_.front().plan.layout) ? Shards::Holds::part : Shards::Holds::all;
  if (options_.check) {
    all.checked.gradients = gather(gradients(first), Shards::Holds::part);
    if (divides_weights()) {
      all.checked.weights = gather(before, of_weights);
      all.checked.routing = gather(chosen_experts(first));
    }
    all.different_copy = std::exchange(different, "");
  }
  if (options_.gathers_weights) {
    all.weights = gather(kept_weights(first), of_weights);
    if (!different.empty()) throw RunError("", different);
    if (!all.weights.empty()) merge_adapters(plans_.front().plan, all.weights);
  }
  return all;
}

// Stage 0 takes its tokens from the text and the last stage its targets: of different texts these would not belong
// together. Ranks that are threads read one file.
std::string RankWork::data_digest() const {
  if (options_.emulate || options_.transport == "local") return "";
  const Plan& plan = plans_.front().plan;
  return digest(load_corpus(options_.stage.data, plan.model, plan.training.sequence)->text());
}

// Ranks may have been started with different files, or on hosts that have different ones.
void RankWork::require_same_plans(Transport& transport) const {
  const std::string options =
      fmt::format("--steps {} --warm-up {}{}{}{}{}{} --device {}", options_.steps, options_.warm_up,
                  options_.emulate ? " --emulate" : "", options_.check ? " --check" : "",
                  options_.stage.deterministic ? " --deterministic" : "", options_.gathers_weights ? " --export" : "",
                  options_.stage.weights ? " --weights (tensors " + options_.stage.weights->digest() + ")" : "",
                  options_.device) +
      checkpoint_text(options_.checkpoint);
  std::string mine = options + "\n" + data_digest() + "\n";  // a line each, then one of each plan
  for (const PreparedPlan& prepared : plans_) {
    mine += plan_digest(prepared.plan) + costs_digest(prepared.plan.costs) + "\n";
  }
  const std::vector<std::string> all = transport.gather(mine, after(unpaused_now(), prepare_deadline(options_)));
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    const std::string which = fmt::format("rank {}", rank);
    if (line(all[rank], 0) != line(all[0], 0)) {
      throw InputError(which, fmt::format("was started with {}, rank 0 with {}", line(all[rank], 0), line(all[0], 0)),
                       "start all ranks with the same options");
    }
    if (line(all[rank], 1) != line(all[0], 1)) {
      throw InputError(which, "has another text to train on than rank 0",
                       options_.stage.data.empty()
                           ? "the licence texts of their hosts differ: give all ranks one text with --data"
                           : fmt::format("{} must be the same on all hosts", options_.stage.data.string()));
    }
    throw InputError(which, "was started with another plan than rank 0", "give all ranks the same plan file");
  }
}

std::string RankWork::doing(int rank, const Watchdog& watchdog) const {
  if (const char* activity = preparing_[static_cast<std::size_t>(rank)]) return activity;
  const Position position = watchdog.position(rank);
  return fmt::format("{} {} {}", current_plan_[static_cast<std::size_t>(rank)].load(), position.step, position.action);
}

std::string RankWork::describe(int rank, const std::string& doing) const {
  if (doing.empty()) return "before it joined the run";
  const std::optional<Doing> parsed = parse(doing);
  if (!parsed || parsed->plan < 0 || parsed->plan >= static_cast<int>(plans_.size())) return doing;
  const PreparedPlan& prepared = plans_[static_cast<std::size_t>(parsed->plan)];
  const std::string where =
      exec::describe(parsed->position, prepared.lowered, static_cast<int>(place(prepared, rank)), options_.warm_up);
  return plans_.size() == 1 ? where : fmt::format("{}, {}", prepared.plan.name, where);
}

bool RankWork::is_in_step(const std::string& doing) { return parse(doing).has_value(); }

std::string RankWork::describe_all(const std::vector<std::string>& doing) const {
  std::vector<Position> positions;
  int plan = -1;
  for (const std::string& text : doing) {
    const std::optional<Doing> parsed = parse(text);
    if (!parsed || (plan != -1 && parsed->plan != plan)) {
      // Not all are in a step, or not in the same plan: nothing is known of who waits for whom.
      std::string lines;
      for (std::size_t rank = 0; rank < doing.size(); ++rank) {
        lines += fmt::format("  rank {}: {}\n", rank, describe(static_cast<int>(rank), doing[rank]));
      }
      return lines;
    }
    plan = parsed->plan;
    positions.push_back(parsed->position);
  }
  const PreparedPlan& prepared = plans_[static_cast<std::size_t>(plan)];
  return describe_waits(prepared.lowered, prepared.plan.layout, positions, options_.warm_up);
}

}  // namespace plumb::exec

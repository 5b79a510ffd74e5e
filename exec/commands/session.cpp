#include "exec/commands/session.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "common/base/first_signals.hpp"
#include "common/base/text.hpp"
#include "common/layout/lane.hpp"
#include "common/layout/tensor_grid.hpp"
#include "common/schedule/reductions.hpp"
#include "common/schedule/validate/validate.hpp"
#include "common/timeline/diff/replay.hpp"
#include "exec/commands/executed_layout.hpp"
#include "exec/commands/faults.hpp"
#include "exec/commands/member.hpp"
#include "exec/commands/rank_work.hpp"
#include "exec/commands/require_fit.hpp"
#include "exec/device/blas.hpp"
#include "exec/device/host_device.hpp"
#include "exec/device/torch_device.hpp"
#include "exec/host/open_files.hpp"
#include "exec/launch/arrival.hpp"
#include "exec/launch/launch.hpp"
#include "exec/launch/membership.hpp"
#include "exec/launch/processes.hpp"
#include "exec/launch/signal_watch.hpp"
#include "exec/run/patience.hpp"
#include "exec/transport/collectives/rank_group.hpp"
#include "exec/transport/gloo/keep_alive.hpp"
#include "exec/transport/gloo/run_store.hpp"
#include "exec/transport/local/local.hpp"
#include "exec/transport/nccl/nccl.hpp"

namespace plumb::exec {
namespace {

// Whether the names are known and go together.
void require_known(const SessionOptions& options) {
  require_kind_of_device(options.device);
  const std::vector<std::string> transports{"local", "gloo", "nccl"};
  if (std::find(transports.begin(), transports.end(), options.transport) == transports.end()) {
    throw InputError("--transport", "there is no transport '" + options.transport + "'",
                     did_you_mean(options.transport, transports));
  }
  if (options.device == "cpu") {
    if (options.transport != "nccl") return;
    throw InputError("--transport", "'nccl' moves the memory of GPUs, and --device is cpu",
                     "--device cuda, or --transport local or gloo");
  }
  if (options.emulate) {
    throw InputError("--emulate", "waits on the host, and has nothing for a device to do", "leave --device cuda out");
  }
  if (options.transport == "gloo") {
    throw InputError("--transport", "'gloo' moves the host's memory alone, not a device's",
                     "--transport nccl, or local: the ranks share one device");
  }
  if (options.check && !options.stage.deterministic) {
    throw InputError("--check", "compares bits, which on a device depend on timing unless it is told otherwise",
                     "add --deterministic");
  }
}

// Of a rank that is a thread: with --device cuda all share the first that this process sees.
std::unique_ptr<Device> make_device(const SessionOptions& options) {
  return options.device == "cpu" ? make_host_device() : make_torch_device(0);
}

void require_supported(const Plan& plan, const SessionOptions& options) {
  require_known(options);
  require_executed_layout(plan, options);
  if (options.emulate && options.gathers_weights) {
    throw InputError("--export", "there are no weights when compute is emulated", "leave out --emulate");
  }
  if (options.emulate && options.stage.weights) {
    throw InputError("--weights", "nothing is computed with them when compute is emulated", "leave out --emulate");
  }
  if (options.emulate && options.check) {
    throw InputError("--check", "has nothing to compare when compute is emulated", "leave out --emulate");
  }
}

PreparedPlan prepare(Plan plan, const SessionOptions& options) {
  require_supported(plan, options);
  if (options.emulate_bytes) {
    plan.costs.boundary_bytes = {*options.emulate_bytes};
    plan.costs.slice_tokens.clear();  // of every message
    plan.costs.slice_gathering.clear();
  }
  Schedule lowered = lowered_schedule(plan);
  if (!options.fault.empty()) lowered = with_fault(std::move(lowered), options.fault);
  if (!options.force_unchecked) require_valid(lowered);
  LaunchPlan launches;
  if (options.transport == "nccl") launches = plan_launches(lowered, plan.costs);
  std::vector<ReceiveSlots> slots;
  // A schedule with a fault in it, or one that nobody checked, may have no evaluation: it may never end.
  const bool ends = options.fault.empty() && !options.force_unchecked;
  if (options.device != "cpu" && ends) slots = plan_receive_arenas(lowered, plan.costs, launches);
  return {.plan = std::move(plan),
          .lowered = std::move(lowered),
          .launches = std::move(launches),
          .slots = std::move(slots)};
}

std::vector<PreparedPlan> prepare_all(std::vector<Plan> plans, const SessionOptions& options) {
  std::vector<PreparedPlan> prepared;
  for (Plan& plan : plans) {
    prepared.push_back(prepare(std::move(plan), options));
    const int ranks = ranks_of(prepared.back());
    if (ranks == ranks_of(prepared.front())) continue;
    throw InputError(prepared.back().plan.name,
                     fmt::format("has {} ranks, but {} has {}: plans that alternate in one run need the same", ranks,
                                 prepared.front().plan.name, ranks_of(prepared.front())));
  }
  return prepared;
}

std::vector<std::string> doing_of_all(const RankWork& work, const Watchdog& watchdog, int ranks) {
  std::vector<std::string> all;
  for (int rank = 0; rank < ranks; ++rank) all.push_back(work.doing(rank, watchdog));
  return all;
}

// Seconds that ranks have to end after a signal. They have results to write once one of them is in a step.
Seconds grace_after_signal(const std::vector<std::string>& doing) {
  constexpr Seconds to_write{30};
  constexpr Seconds to_leave{3};
  return std::ranges::any_of(doing, RankWork::is_in_step) ? to_write : to_leave;
}

// Removes checkpoints that ranks which are gone have not finished.
void drop_unfinished(const CheckpointOptions& checkpoint) {
  if (checkpoint.folder.empty()) return;
  try {
    (void)remove_leftovers(checkpoint.folder, look_into(checkpoint.folder));
  } catch (const Error&) {  // the next run with this folder reports it
  }
}

// Ends the program although ranks that are threads still work.
[[noreturn]] void leave_threads(const RunError& error, const CheckpointOptions& checkpoint) {
  drop_unfinished(checkpoint);
  leave_at_once(error);
}

SessionLogs run_local(const std::vector<PreparedPlan>& plans, const SessionOptions& options) {
  const int ranks = ranks_of(plans.front());
  if (ranks > 1 && !options.emulate) require_blas_for_threads();
  RankWork work(plans, options);
  std::vector<std::unique_ptr<Device>> devices;
  std::vector<Device*> of_ranks;
  for (int rank = 0; rank < ranks; ++rank) {
    of_ranks.push_back(devices.emplace_back(make_device(options)).get());
  }
  const auto transports =
      of_ranks.front()->is_asynchronous() ? make_local_device_transports(of_ranks) : make_local_transports(ranks);
  const auto stop = [&](const std::string& reason) { transports.front()->abort(reason); };
  Watchdog* hanging = nullptr;
  const auto places = [&](const std::string& said, const std::string& hint) {
    return with_places(said, hint, work.describe_all(doing_of_all(work, *hanging, ranks)), plans);
  };
  std::string hang;  // written and read on the watchdog's thread
  Watchdog watchdog(ranks,
                    {.on_hang =
                         [&](int rank, const Position&, Seconds since) {
                           const std::string reason = hang_reason(work, rank, *hanging, since);
                           if (hang.empty()) hang = reason;
                           stop(reason);
                         },
                     .on_stuck = [&] { leave_threads(RunError("", hang, places(hang, "")), options.checkpoint); }});
  hanging = &watchdog;
  const SignalWatch signals({.on_signal = stop,
                             .on_stuck =
                                 [&](const std::string& reason) {
                                   leave_threads(RunError("", reason, places("", "a rank did not end in time")),
                                                 options.checkpoint);
                                 },
                             .grace = [&] { return grace_after_signal(doing_of_all(work, *hanging, ranks)); },
                             .twice_is_stuck = true});
  SessionLogs logs;
  try {
    run_on_threads(transports, [&](Transport& transport) {
      SessionLogs mine = work.run(transport, *of_ranks[static_cast<std::size_t>(transport.rank())], watchdog, {});
      if (transport.rank() == 0) logs = std::move(mine);
    });
  } catch (const RunError& error) {
    if (const std::string told = signals.reason(); !told.empty()) logs = work.logs_so_far();
    if (logs.interrupted = signals.reason(); !logs.ranks.empty()) return logs;
    throw RunError(error.where(), error.problem(), places(error.what(), error.hint()));
  }
  return logs;
}

std::string signal_text(int signal) { return fmt::format("killed by signal {} ({})", signal, ::strsignal(signal)); }

std::string stop_text(const RankStop& stop) {
  return fmt::format("stopped by signal {} (SIG{}), and has not gone on for {}", stop.signal,
                     ::sigabbrev_np(stop.signal), to_text(stop.since));
}

// Returns what the ranks have left in the store before they ended; nothing if one of them has left nothing.
SessionLogs logs_of_ended(RunStore& store, const RankWork& work, int ranks) {
  std::vector<std::string> texts;
  const Clock::time_point deadline = Clock::now() + std::chrono::seconds(1);  // it takes note without an answer
  while (static_cast<int>(texts.size()) < ranks) {
    if (const auto text = store.find(log_name(static_cast<int>(texts.size())))) {
      texts.push_back(*text);
    } else if (Clock::now() > deadline) {
      return {};
    }
  }
  return work.logs_so_far(texts);
}

// Tells when a rank has not joined the run in time. Counts the launcher's looks, not time: a pause is no waiting.
class Joining {
 public:
  Joining(RunStore& store, int ranks, Seconds timeout)
      : store_(store), ranks_(ranks), timeout_(timeout), looks_(timeout.value / look_every_s) {}

  // Returns the reason to give up; empty if there is none.
  [[nodiscard]] std::string look() {
    if (joined_ || ++done_ < looks_) return "";
    done_ = looks_;
    std::vector<int> missing;
    for (int rank = 0; rank < ranks_; ++rank) {
      if (store_.said(rank).empty()) missing.push_back(rank);
    }
    joined_ = missing.empty();
    if (joined_) return "";
    return fmt::format("{} of {} did not join the run within {:g} s; {}", ranks_text(missing), ranks_, timeout_.value,
                       longer_start_deadline);
  }

 private:
  static constexpr double look_every_s = 0.02;  // as run_as_processes looks

  RunStore& store_;
  int ranks_;
  Seconds timeout_;
  double looks_;
  double done_ = 0;
  bool joined_ = false;
};

// End of a run whose ranks are processes of this host. An interrupted run has logs.
struct LauncherEnd {
  ExitStatus status = ExitStatus::done;
  SessionLogs logs = {};
};

// Run of ranks that are processes of this host, as their launcher sees it.
class Launch {
 public:
  Launch(const std::vector<PreparedPlan>& plans, const SessionOptions& options)
      : plans_(plans),
        options_(options),
        ranks_(ranks_of(plans.front())),
        store_(RunStore::host(0)),
        work_(plans, options) {}

  // Starts the ranks and reports, once for all of them, why the run failed.
  [[nodiscard]] LauncherEnd run() {
    const SignalWatch signals({.on_signal = [&](const std::string& reason) { store_->stop(reason); }});
    Joining joining(*store_, ranks_, options_.start_deadline);
    const ProcessesEnd end =
        run_as_processes({.ranks = ranks_,
                          .store_port = store_->port(),
                          .program = {},
                          .arguments = {},
                          .stopped_limit = std::min(ProcessOptions{}.stopped_limit, options_.deadline),
                          .grace_when_told = [&] { return grace_after_signal(doing_); },
                          .told_to_end = [&] { return signals.times(); },
                          .give_up = [&] { return joining.look(); },
                          .before_ending = [&] { look(); }});
    const std::string told = signals.reason();
    if (told.empty() && end.stopped.empty() && end.gave_up.empty() && end.failures.empty()) {
      return {.status = static_cast<ExitStatus>(end.answer)};
    }
    drop_unfinished(options_.checkpoint);
    if (!told.empty()) return interrupted(told, end);
    if (const RankStop* stop = stop_to_blame(end)) fail(place(stop->rank), stop_text(*stop));
    if (!end.gave_up.empty()) fail("", end.gave_up);
    return failed(end);
  }

 private:
  // Until ranks are told to end.
  void look() {
    for (int rank = 0; rank < ranks_; ++rank) doing_.push_back(KeepAlive::doing_of(store_->said(rank)));
  }

  [[nodiscard]] std::string place(int rank) const {
    return fmt::format("rank {}, {}", rank, work_.describe(rank, doing_[static_cast<std::size_t>(rank)]));
  }

  [[noreturn]] void fail(const std::string& where, const std::string& problem) const {
    throw RunError(where, problem, with_places(where + " " + problem, "", work_.describe_all(doing_), plans_));
  }

  // Returns the rank whose stop ended the run, if one did. Ranks that waited for it may have failed a moment before.
  [[nodiscard]] const RankStop* stop_to_blame(const ProcessesEnd& end) const {
    constexpr Seconds too_short{1};
    const bool was_killed = !end.failures.empty() && end.failures.front().signal != 0;
    if (end.stopped.empty() || was_killed || end.stopped.front().since < std::min(too_short, options_.deadline))
      return nullptr;
    return &end.stopped.front();
  }

  [[nodiscard]] LauncherEnd interrupted(const std::string& told, const ProcessesEnd& end) const {
    if (store_->find(all_trained)) {
      throw RunError("", told, options_.check ? "while a single device checked the run" : "while results were written");
    }
    SessionLogs logs = logs_of_ended(*store_, work_, ranks_);
    logs.interrupted = told;
    if (!logs.ranks.empty()) return {.status = ExitStatus::run_failed, .logs = std::move(logs)};
    std::string lost;  // in the run: a rank that still starts has nothing to leave
    for (const RankEnd& rank : end.killed) {
      if (doing_.empty() || !RankWork::is_in_step(doing_[static_cast<std::size_t>(rank.rank)])) continue;
      lost += fmt::format("{}rank {} was {}", lost.empty() ? "" : ", ", rank.rank, signal_text(rank.signal));
    }
    const std::vector<std::string> nowhere(static_cast<std::size_t>(ranks_));
    throw RunError("", told, with_places("", lost, work_.describe_all(doing_.empty() ? nowhere : doing_), plans_));
  }

  [[nodiscard]] LauncherEnd failed(const ProcessesEnd& end) const {
    const RankEnd& first = end.failures.front();
    if (first.signal != 0) fail(place(first.rank), signal_text(first.signal));
    std::string reason = store_->stop_reason();
    // Behind the run, as when its results cannot be written, a rank has reported the reason itself.
    if (reason.empty() && KeepAlive::is_gone(store_->said(first.rank))) {
      return {.status = static_cast<ExitStatus>(first.exit_status)};
    }
    if (reason.empty() && end.own_pause > RunStore::silence_limit) {
      reason = fmt::format("the launcher was stopped for {}: its ranks lost it, and ended", to_text(end.own_pause));
    }
    if (reason.empty()) reason = fmt::format("rank {} ended with status {}", first.rank, first.exit_status);
    if (first.exit_status == static_cast<int>(ExitStatus::wrong_input)) throw InputError("", reason);
    fail("", reason);
  }

  const std::vector<PreparedPlan>& plans_;
  const SessionOptions& options_;
  int ranks_;
  std::shared_ptr<RunStore> store_;
  RankWork work_;
  std::vector<std::string> doing_;  // by rank, when the run's end began
};

LauncherEnd run_launcher(const std::vector<PreparedPlan>& plans, const SessionOptions& options) {
  const int ranks = ranks_of(plans.front());
  if (options.transport == "nccl") require_nccl_here(ranks, this_host());
  require_files_of_ranks(plans, options, ranks_from(0, ranks), HostsStore::launcher);
  require_fit(plans, options, ranks_from(0, ranks), this_host());
  return Launch(plans, options).run();
}

bool makes_collectives(const PreparedPlan& prepared) {
  const Layout& layout = prepared.plan.layout;
  if (divides_tensors(layout) || layout.data.degree > 1) return true;
  return std::ranges::any_of(prepared.lowered.actions, [](const std::vector<Action>& list) {
    return std::ranges::any_of(list, [](const Action& action) { return is_reduction(action.kind); });
  });
}

PlanRun finish(const PreparedPlan& prepared, const SessionLogs& all, std::size_t plan, const SessionOptions& options) {
  const std::vector<RankLog>& logs = all.ranks[plan];
  const std::string producer =
      fmt::format("plumb-exec {} {}{}", options.transport, options.device, options.emulate ? " emulated" : "");
  PlanRun run{.plan = prepared.plan,
              .timeline = merge_logs(prepared.plan, prepared.lowered, logs, producer,
                                     static_cast<std::size_t>(warm_up_left(options))),
              .warm_up = {},
              .arenas = {},
              .losses = {},
              .check = {},
              .weights = {}};
  if (options.device != "cpu") {
    for (const RankLog& log : logs) run.arenas.push_back({log.arena_bytes, log.receives_beside});
  }
  run.timeline.clock_uncertainty = all.clock_uncertainty;
  if (all.clock_uncertainty > Seconds{0}) run.timeline.clock_of_rank = all.clock_of_rank;
  run.clock_warnings = all.clock_warnings;
  if (options.emulate && makes_collectives(prepared)) {  // which move nothing then
    for (RankSummary& rank : run.timeline.ranks) rank.by_axis.reset();
  }
  const auto measured = run.timeline.steps.begin() + warm_up_left(options);
  for (auto step = run.timeline.steps.begin(); step != measured; ++step) run.warm_up.push_back(step->duration);
  run.timeline.steps.erase(run.timeline.steps.begin(), measured);
  if (!options.emulate) run.losses = losses_of(prepared, logs);
  if (!options.emulate && prepared.plan.training.gradient_clipping > 0) {
    for (const RankStep& step : logs.front().steps) run.gradient_norms.push_back(step.gradient_norm);
  }
  if (options.fault.empty()) {
    run.replay_error_fraction = replay(graph_of(run.timeline), median_step(run.timeline)).error_fraction;
  }
  return run;
}

void require_equal_copies(const SessionLogs& logs, CheckResult& check) {
  if (logs.different_copy.empty()) return;
  check.passed = check.bitwise_equal = false;
  check.problem += (check.problem.empty() ? "" : "; ") + logs.different_copy;
}

// Of the first plan, until a signal ends it.
void check_run(const SessionOptions& options, SessionLogs& logs, const SignalWatch& signals, SessionResult& result) {
  PlanRun& run = result.runs.front();
  StageOptions stage = options.stage;
  stage.device = logs.device;
  logs.checked.losses = run.losses;
  logs.checked.warm_up = options.warm_up;
  logs.checked.start = options.stage.weights;
  try {
    run.check = check_against_reference(run.plan, stage, logs.checked, {.stop = signals.stop()});
  } catch (const plumb::Stopped&) {
    result.check_interrupted = signals.reason();
    result.status = ExitStatus::run_failed;
    return;
  }
  require_equal_copies(logs, *run.check);
  if (!run.check->passed) result.status = ExitStatus::answer_is_no;
}

SessionResult result_of(const std::vector<PreparedPlan>& prepared, SessionLogs logs, const SessionOptions& options) {
  std::optional<SignalWatch> signals;  // before the results are made: they are not lost
  if (options.check && logs.interrupted.empty()) signals.emplace();
  SessionResult result;
  for (std::size_t i = 0; i < prepared.size(); ++i) {
    result.runs.push_back(finish(prepared[i], logs, i, options));
  }
  result.runs.front().weights = std::move(logs.weights);
  result.interrupted = logs.interrupted;
  result.checkpoints = std::move(logs.checkpoints);
  if (!logs.interrupted.empty()) {
    result.status = ExitStatus::run_failed;
  } else if (options.check) {
    check_run(options, logs, *signals, result);
  }
  return result;
}

// Variables that a shell has kept from another run look like a launcher's.
std::string without_launcher(const Membership& member) {
  const char* variables = "RANK WORLD_SIZE";
  if (member.launcher == "Slurm") variables = "SLURM_PROCID";
  if (member.launcher == "Open MPI") variables = "OMPI_COMM_WORLD_RANK";
  return fmt::format("as many ranks as the plan has; if no launcher has started this: unset {}", variables);
}

bool launched_by_plumb(const std::optional<Membership>& member) { return member && member->launcher == "plumb-exec"; }

}  // namespace

std::int64_t all_steps(const SessionOptions& options) {
  return static_cast<std::int64_t>(options.warm_up) + options.steps;
}

std::int64_t first_step(const SessionOptions& options) {
  return options.checkpoint.resume ? options.checkpoint.resume->index.step : 0;
}

int warm_up_left(const SessionOptions& options) {
  return static_cast<int>(std::max<std::int64_t>(0, options.warm_up - first_step(options)));
}

std::string clock_lines(const PlanRun& run) {
  const Seconds within = run.timeline.clock_uncertainty;
  if (within == Seconds{0}) return "";
  std::string lines = fmt::format("the clocks of the hosts were compared: times of two ranks agree within {}\n",
                                  plumb::to_text(within));
  for (const std::string& warning : run.clock_warnings) lines += warning + "\n";
  return lines;
}

std::optional<SignalWatch> while_results_are_written() {
  if (!launched_by_plumb(membership(environment_variable))) return std::nullopt;
  return std::make_optional<SignalWatch>(SignalActions{.on_signal = [](const std::string&) {
    remove_unfinished_file();
    (void)std::signal(SIGTERM, SIG_DFL);
    (void)std::raise(SIGTERM);
  }});
}

SessionResult run_session(std::vector<Plan> plans, const SessionOptions& options) {
  // The device keeps the host's order of launches over all communicators (launches_of_rank); NCCL before 2.26 does not.
  if (options.transport == "nccl") ::setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", /*overwrite=*/0);
  const std::vector<PreparedPlan> prepared = prepare_all(std::move(plans), options);
  const int ranks = ranks_of(prepared.front());
  SessionLogs logs;
  bool launched = false;
  std::optional<SignalWatch> until_checked;  // between the ranks' watch and the check's, too
  if (options.transport == "local") {
    if (options.check) until_checked.emplace();
    (void)raise_open_files();
    require_fit(prepared, options, ranks_from(0, ranks), this_host());
    logs = run_local(prepared, options);
  } else {
    const std::optional<Membership> member = membership(environment_variable);
    if (!member) {
      LauncherEnd end = run_launcher(prepared, options);
      if (end.logs.interrupted.empty()) return {.status = end.status, .runs = {}};
      return result_of(prepared, std::move(end.logs), options);
    }
    if (member->size != ranks) {
      const InputError refusal(
          member->launcher,
          fmt::format("has started {} ranks, but {} needs {}", member->size, prepared.front().plan.name, ranks),
          without_launcher(*member));
      // One of them speaks: rank 0, if it is there.
      if (member->rank != 0 && is_told(*member)) return {.status = ExitStatus::wrong_input, .runs = {}};
      if (member->rank == 0) tell_ranks(*member, refusal);
      throw refusal;
    }
    launched = launched_by_plumb(member);
    try {
      logs = run_member(prepared, options, *member, this_host(), options.check ? &until_checked : nullptr);
    } catch (const Error& error) {
      // The launcher prints the reason, once.
      if (launched) return {.status = error.status(), .runs = {}};
      if (const auto* failed = dynamic_cast<const RunError*>(&error)) {
        throw RunError(failed->where(), failed->problem(), with_legend(*failed, prepared));
      }
      throw;
    }
    if (member->rank != 0) return {};
  }
  set_state_at_signal("its results were being written");
  SessionResult result = result_of(prepared, std::move(logs), options);
  if (launched) result.check_interrupted.clear();
  return result;
}

}  // namespace plumb::exec

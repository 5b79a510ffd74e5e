#include "exec/commands/member.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <optional>
#include <set>
#include <string_view>
#include <thread>

#include "common/base/text.hpp"
#include "common/schedule/action_words.hpp"
#include "exec/commands/require_fit.hpp"
#include "exec/device/host_device.hpp"
#include "exec/host/pauses.hpp"
#include "exec/launch/arrival.hpp"
#include "exec/launch/world.hpp"
#include "exec/run/patience.hpp"
#include "exec/stage/tensor/action_calls.hpp"
#include "exec/transport/gloo/gloo.hpp"
#include "exec/transport/gloo/keep_alive.hpp"
#include "exec/transport/gloo/own_address.hpp"
#include "exec/transport/nccl/nccl.hpp"

namespace plumb::exec {
namespace {

constexpr Seconds tell_timeout{60};                  // to tell ranks that wait that this one does not come
constexpr Seconds seen_soon{2};                      // what was started before this rank, or together with it
constexpr std::chrono::minutes look_around_time{2};  // until all have found their devices: the first use takes a while

// Every rank says when it needs the store no longer, behind its reason for ending; whoever hosts it stays until the
// others have, for a while.
struct StoreKeeper {
  std::shared_ptr<RunStore> hosted;
  std::shared_ptr<RunStore> joined;
  int rank = 0;
  int ranks = 1;

  static std::string left(int rank) { return fmt::format("left/{}", rank); }

  [[nodiscard]] bool all_left() const {
    for (int other = 0; other < ranks; ++other) {
      if (other != rank && !joined->find(left(other))) return false;
    }
    return true;
  }

  ~StoreKeeper() {
    const Clock::time_point deadline = Clock::now() + std::chrono::seconds(5);
    try {
      if (!hosted) joined->put(left(rank), "");
      while (hosted && !all_left() && Clock::now() < deadline)
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    } catch (const std::exception&) {  // then nobody can say anything any more
    }
  }
};

// Lets a watchdog and signals, which outlive the transport, stop the run: through it while it is there, else through
// the store, where all ranks look.
class Stoppable {
 public:
  explicit Stoppable(RunStore& store) : store_(store) {}

  void set(Transport* transport) {
    const std::scoped_lock lock(mutex_);
    transport_ = transport;
  }
  void abort(const std::string& reason) {
    const std::scoped_lock lock(mutex_);
    if (transport_ != nullptr) return transport_->abort(reason);
    try {
      store_.stop(reason);
    } catch (const std::exception& error) {  // whoever hosts it is gone, and with it the run
      unsaid_ = reason + "; " + error.what();
    }
  }
  // The reason of an abort that nobody could be told, and why not; empty: there is none.
  [[nodiscard]] std::string unsaid() {
    const std::scoped_lock lock(mutex_);
    return unsaid_;
  }

 private:
  RunStore& store_;
  std::mutex mutex_;
  Transport* transport_ = nullptr;
  std::string unsaid_;
};

struct Found {
  std::unique_ptr<Device> device;  // null: `member` says why
  WorldMember member;
};

// Never throws what is wrong with this host alone: the other ranks would wait for one that has gone.
Found look_around(const Membership& member, const Host& host) {
  Found found{.device = nullptr, .member = {.host = host.identity.name, .host_id = host.identity.id}};
  try {
    const NcclFound nccl = require_nccl(host.nccl_library);
    require_streams_for_nccl(host);
    found.member.library = "NCCL " + nccl.version;
    found.member.shares_devices = nccl.shares_devices;
    const int index = device_of_rank(member, host.visible_devices(), nccl.shares_devices);
    found.device = host.make_device(index);
    found.member.device = found.device->name();
    if (const auto facts = host.device_facts(index)) found.member.device_bus = facts->bus;
  } catch (const Error& error) {
    found.member.refusal = refusal_of(error);
  }
  return found;
}

// Of all plans that alternate: in the order that plan_communicators gives, which is that of the set.
NcclOptions nccl_options(const std::vector<PreparedPlan>& plans, const SessionOptions& options, const Host& host) {
  std::set<CommunicatorSpec> communicators;
  std::set<std::size_t> bytes;
  for (const PreparedPlan& prepared : plans) {
    const auto of_plan = plan_communicators(prepared.lowered, prepared.plan.layout, tensor_parts(prepared.plan));
    communicators.insert(of_plan.begin(), of_plan.end());
    for (const Bytes own : message_bytes(prepared.plan.costs)) bytes.insert(static_cast<std::size_t>(own.value));
  }
  return {.communicators = {communicators.begin(), communicators.end()},
          .message_bytes = {bytes.begin(), bytes.end()},
          .start_timeout = options.start_deadline,
          .library_file = host.nccl_library};
}

GlooOptions gloo_options(const SessionOptions& options, const Membership& member, const RankWork& work,
                         const Watchdog& watchdog) {
  GlooOptions gloo{.rank = member.rank,
                   .size = member.size,
                   .address = member.address,
                   .port = member.port,
                   .attempt = member.attempt,
                   .start_timeout = options.start_deadline};
  if (!options.emulate && options.transport == "gloo") {
    gloo.allocate = allocate_payload;
    gloo.allocate_part = [&work, rank = member.rank](std::size_t bytes) {
      count_memory_as(work.account(rank));
      return allocate_payload(bytes);
    };
  }
  gloo.doing = [&work, &watchdog, rank = member.rank] { return work.doing(rank, watchdog); };
  gloo.describe = [&work](int rank, const std::string& doing) { return work.describe(rank, doing); };
  return gloo;
}

std::shared_ptr<RunStore> hosted_store(const Membership& member) {
  if (!member.hosts_store) return nullptr;
  return RunStore::host(member.port,
                        is_loopback(member.address) ? RunStore::Reach::this_host : RunStore::Reach::all_hosts);
}

// Tells all ranks why this one ends; what the first that ended has said.
std::string announced(RunStore& store, const Error& own) {
  const std::string reason = own.what();
  try {
    store.stop(reason, own.status());
    return store.stop_reason();
  } catch (const Error& error) {  // whoever hosts it is gone, and with it the run: that may be what has failed here
    return reason.find(error.problem()) == std::string::npos ? reason + "; " + error.what() : reason;
  }
}

// Because of another rank, with the status that it ends with: whoever waits for all does not see which was first.
[[noreturn]] void end_as_told(RunStore& store, const std::string& reason) {
  ExitStatus status = ExitStatus::run_failed;
  try {
    status = store.stop_status();
  } catch (const Error&) {  // the reason is known all the same
  }
  if (status == ExitStatus::wrong_input) throw InputError("", reason);
  throw Stopped(reason);
}

// Whoever has started the ranks makes a result of the steps until then.
void leave_log(RunStore& store, const RankWork& work, const Membership& member) {
  if (member.launcher != "plumb-exec") return;
  try {
    store.put(log_name(member.rank), work.log_so_far(member.rank));
  } catch (const std::exception&) {  // without it the reason is said all the same
  }
}

// Joins the run's store. A launcher of this host listens before it starts ranks, and answers at once unless it is
// stopped; on other hosts rank 0 may be late.
std::shared_ptr<RunStore> joined_store(const SessionOptions& options, const Membership& member) {
  constexpr Seconds from_launcher{5};
  wait_for_listener(member.address, member.port, options.start_deadline);
  const Seconds timeout =
      member.launcher == "plumb-exec" ? std::min(from_launcher, options.start_deadline) : options.start_deadline;
  return RunStore::join(member.address, member.port, timeout, member.attempt);
}

// Announces this rank with its options and what it is doing, and waits for the others. Throws if one does not join in
// time, or was started with other options.
void await_all(RunStore& store, const SessionOptions& options, const Membership& member, const std::string& doing) {
  // Before the others can see this rank: from then on they watch it.
  store.say(member.rank, KeepAlive::sign_of_life(0, doing));
  const Rendezvous rendezvous{.put = [&](const std::string& key, const std::string& value) { store.put(key, value); },
                              .find = [&](const std::string& key) { return store.find(key); }};
  const auto poll = [&] {
    if (const std::string reason = store.stop_reason(); !reason.empty()) throw Stopped(reason);
  };
  require_same_start(fmt::format("--device {} --transport {}", options.device, options.transport), member, rendezvous,
                     poll, options.start_deadline);
}

// How to read the first action that a message names.
std::string legend(const std::vector<PreparedPlan>& plans, const std::string& text) {
  const int slices = plans.front().lowered.slices;
  const bool alike =
      std::ranges::all_of(plans, [&](const PreparedPlan& prepared) { return prepared.lowered.slices == slices; });
  return alike ? legend_of(text, slices) : "";
}

}  // namespace

void require_nccl_here(int ranks, const Host& host) {
  const NcclFound nccl = require_nccl(host.nccl_library);
  require_streams_for_nccl(host);
  const int visible = host.visible_devices();
  if (visible == 0) (void)host.make_device(0);  // says why
  if (ranks <= visible || nccl.shares_devices) return;
  throw InputError(
      "--transport",
      fmt::format("'nccl' gives each of the {} ranks a device of its own, and this process sees {}", ranks, visible),
      "a plan with fewer ranks, CUDA_VISIBLE_DEVICES, or --transport local, where ranks share one device");
}

std::string log_name(int rank) { return fmt::format("log/{}", rank); }

std::string hang_reason(const RankWork& work, int rank, const Watchdog& watchdog, Seconds since) {
  const std::string doing = work.doing(rank, watchdog);
  return fmt::format("rank {}, {}: hangs for {}, longer than its deadline; {}", rank, work.describe(rank, doing),
                     to_text(since), RankWork::is_in_step(doing) ? longer_deadline : longer_start_deadline);
}

void leave_hanging() {
  constexpr const char* message = "plumb-exec: a rank still hangs in its action: leaving without it\n";
  (void)!::write(STDERR_FILENO, message, std::strlen(message));
  std::_Exit(static_cast<int>(ExitStatus::run_failed));
}

std::string with_places(const std::string& said, const std::string& hint, const std::string& places,
                        const std::vector<PreparedPlan>& plans) {
  const std::string text = hint + (hint.empty() ? "" : "\n") + "where each rank stood:\n" + places;
  return text + legend(plans, said + "\n" + text);
}

std::string with_legend(const RunError& error, const std::vector<PreparedPlan>& plans) {
  const std::string read = legend(plans, error.what());
  return error.hint() + (error.hint().empty() || read.empty() ? "" : "\n") + read;
}

void tell_ranks(const Membership& member, const Error& error) {
  if (member.size == 1) return;
  try {
    const auto hosted = hosted_store(member);
    wait_for_listener(member.address, member.port, seen_soon);
    const auto store = RunStore::join(member.address, member.port, tell_timeout, member.attempt);
    const StoreKeeper keeper{.hosted = hosted, .joined = store, .rank = member.rank, .ranks = member.size};
    (void)announced(*store, error);
  } catch (const Error&) {
  }
}

bool is_told(const Membership& member) {
  const Clock::time_point deadline =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seen_soon.value));
  try {
    wait_for_listener(member.address, member.port, seen_soon);
    const auto store = RunStore::join(member.address, member.port, seen_soon, member.attempt);
    while (store->stop_reason().empty()) {
      if (Clock::now() > deadline) return false;  // another run's, for one: nothing is left there
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    const StoreKeeper leaving{.hosted = nullptr, .joined = store, .rank = member.rank, .ranks = member.size};
    return true;
  } catch (const Error&) {
    return false;
  }
}

SessionLogs run_member(const std::vector<PreparedPlan>& plans, const SessionOptions& options, const Membership& member,
                       const Host& host, std::optional<SignalWatch>* afterwards) {
  const auto hosted = hosted_store(member);
  const auto store = joined_store(options, member);
  const StoreKeeper keeper{.hosted = hosted, .joined = store, .rank = member.rank, .ranks = member.size};
  RankWork work(plans, options);
  Stoppable running(*store);
  Watchdog* watching = nullptr;
  Watchdog watchdog(member.size,
                    {.on_hang = [&](int rank, const Position&,
                                    Seconds since) { running.abort(hang_reason(work, rank, *watching, since)); },
                     .on_stuck = leave_hanging});
  watching = &watchdog;
  // They outlive the handlers below: this rank's reason is told before its connections close.
  std::unique_ptr<Device> device = make_host_device();
  std::unique_ptr<Transport> transport;
  std::optional<SignalWatch> signals;  // caught while the log is left, too: a signal may follow a stop of the store
  if (afterwards != nullptr) afterwards->emplace();
  if (host.watches_signals) {
    signals.emplace(SignalActions{.on_signal = [&](const std::string& reason) {
      running.abort(fmt::format("rank {}: {}", member.rank, reason));
    }});
  }
  try {
    if (member.launcher != "plumb-exec") {  // which has looked before it started this rank
      require_files_of_ranks(plans, options, {member.rank}, hosted ? HostsStore::rank : HostsStore::another);
    }
    work.prepares(member.rank, "waiting for the other ranks to join");
    await_all(*store, options, member, work.doing(member.rank, watchdog));
    work.prepares(member.rank, "connecting to the other ranks");
    transport = make_gloo_transport(gloo_options(options, member, work, watchdog), store);
    if (member.launcher != "plumb-exec") {  // which has looked before it started this rank
      require_fit(plans, options, ranks_of_host(member, environment_variable), host);
    }
    if (options.transport == "nccl") {
      const Rendezvous rendezvous{
          .put = [&](const std::string& key, const std::string& value) { store->put(key, value); },
          .find = [&](const std::string& key) { return store->find(key); }};
      Found found = look_around(member, host);
      require_world(found.member, *transport, rendezvous, unpaused_now() + look_around_time);
      device = std::move(found.device);
      transport = make_nccl_transport(nccl_options(plans, options, host), std::move(transport), *device, rendezvous);
    }
    running.set(transport.get());
    const auto gone = [](Stoppable* stoppable) { stoppable->set(nullptr); };
    const std::unique_ptr<Stoppable, decltype(gone)> while_it_lives(&running, gone);
    SessionLogs logs = work.run(*transport, *device, watchdog, host.identity);
    if (member.rank == 0 && member.launcher == "plumb-exec") store->put(all_trained, "");
    return logs;
  } catch (const Stopped& stopped) {
    leave_log(*store, work, member);
    end_as_told(*store, stopped.what());
  } catch (const RunError& error) {
    leave_log(*store, work, member);
    // A rank that fails closes its connections after it has said why: who only notices these says that instead.
    if (const std::string unsaid = running.unsaid(); !unsaid.empty()) throw Stopped(unsaid);
    const std::string first = announced(*store, error);
    if (!std::string_view(error.what()).starts_with(first)) end_as_told(*store, first);
    throw;
  } catch (const Error& error) {
    (void)announced(*store, error);
    throw;
  }
}

}  // namespace plumb::exec

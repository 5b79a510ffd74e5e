#include "exec/transport/nccl/nccl.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "exec/host/pauses.hpp"
#include "exec/transport/message_lines.hpp"
#include "exec/transport/nccl/nccl_collectives.hpp"
#include "exec/transport/nccl/nccl_communicators.hpp"
#include "exec/transport/nccl/nccl_flights.hpp"
#include "exec/transport/parcel_lines.hpp"
#include "exec/transport/receive_buffers.hpp"
#include "exec/transport/step_launches.hpp"

namespace plumb::exec {
namespace {

using namespace std::chrono_literals;

constexpr auto look_every = 20us;

CommunicatorUse use_of(Channel channel) {
  return channel == Channel::forward ? CommunicatorUse::down : CommunicatorUse::up;
}

// What goes one way in a batch as one send or receive of NCCL's.
struct Part {
  const LaunchOperation* operation = nullptr;
  Payload payload;
};

class NcclTransport final : public Transport {
 public:
  NcclTransport(const NcclOptions& options, std::unique_ptr<Transport> control, Device& device,
                const Rendezvous& rendezvous)
      : options_(options),
        control_(std::move(control)),
        device_(device),
        communicators_(load_nccl(options.library_file), options, *control_, device, rendezvous),
        call_(communicators_.library().call),
        buffers_(device),
        messages_(control_->rank(), buffers_),
        step_(control_->rank()) {
    const bool evicts = std::ranges::any_of(communicators_.members(), [&](const NcclCommunicators::Member& member) {
      return spec_of(member).use == CommunicatorUse::evictions;
    });
    if (evicts) parcels_.emplace(*control_, buffers_);
    for (const NcclCommunicators::Member& member : communicators_.members()) {
      if (spec_of(member).use == CommunicatorUse::down && lane_.empty()) lane_ = spec_of(member).ranks;
    }
  }

  // What is under way ends first, unless the run was stopped.
  ~NcclTransport() override {
    if (aborter_.joinable()) aborter_.join();
    const Clock::time_point deadline = Clock::now() + 5s;
    try {
      while (!flights_.empty() && !communicators_.aborted() && Clock::now() < deadline) {
        flights_.release_ended();
        std::this_thread::sleep_for(look_every);
      }
    } catch (const std::exception&) {  // the device has failed: nothing is under way any more
    }
    if (!flights_.empty()) communicators_.abort();
  }

  [[nodiscard]] int rank() const override { return control_->rank(); }
  [[nodiscard]] int size() const override { return control_->size(); }

  void send(int peer, Channel channel, Payload payload) override {
    if (between_hosts(channel)) return control_->send(peer, channel, std::move(payload));
    if (std::ranges::find(options_.message_bytes, payload.size) == options_.message_bytes.end()) {
      throw failure(fmt::format("sends {} bytes to rank {}, and messages have {}", payload.size, peer,
                                fmt::join(options_.message_bytes, " or ")));
    }
    require_peer(peer, channel);
    messages_.send(peer, channel, std::move(payload));
  }

  void expect(int peer, Channel channel, std::size_t bytes, int count) override {
    if (between_hosts(channel)) return control_->expect(peer, channel, bytes, count);
    require_peer(peer, channel);
    messages_.expect(peer, channel, bytes, count);
  }

  [[nodiscard]] Received receive(int peer, Channel channel, Clock::time_point deadline) override {
    if (between_hosts(channel)) return control_->receive(peer, channel, deadline);
    Payload payload = messages_.receive(peer, channel);
    received_ += Bytes{static_cast<std::int64_t>(payload.size)};
    return {std::move(payload), Clock::now()};
  }

  // What is expected, and when, the launches say.
  void send_parcel(int peer, Parcel parcel) override { parcels().send(peer, std::move(parcel)); }
  void expect_parcels(int /*peer*/, int /*count*/) override {}
  [[nodiscard]] bool has_parcel(int peer) override { return parcels().has(peer); }
  [[nodiscard]] ReceivedParcel receive_parcel(int peer, Clock::time_point /*deadline*/) override {
    Parcel parcel = parcels().receive(peer);
    received_ += bytes_of(parcel);
    return {std::move(parcel), Clock::now()};
  }

  // Of memory of the device, in the order of its compute stream; the deadline is that of the moment awaited later.
  void all_reduce(std::span<const int> group, std::span<float> values, Clock::time_point /*deadline*/) override {
    if (group.size() == 1) return;
    const auto found = std::ranges::find_if(communicators_.members(), [&](const NcclCommunicators::Member& member) {
      return adds(spec_of(member).use) && std::ranges::equal(spec_of(member).ranks, group);
    });
    if (found == communicators_.members().end()) throw failure("no communicator was declared for this sum");
    auto* bytes = reinterpret_cast<std::byte*>(values.data());
    device_.compute().wait(collective({.kind = Collective::all_reduce,
                                       .use = spec_of(*found).use,
                                       .group = group,
                                       .input = bytes,
                                       .output = bytes,
                                       .count = values.size(),
                                       .type = ElementType::fp32,
                                       .ready = device_.compute().record()}));
  }

  void barrier(Clock::time_point deadline) override { control_->barrier(deadline); }
  [[nodiscard]] std::vector<std::string> gather(const std::string& text, Clock::time_point deadline) override {
    return control_->gather(text, deadline);
  }

  // From any thread: NCCL's part takes time, so a thread of its own does it.
  void abort(const std::string& reason) noexcept override {
    control_->abort(reason);
    abort_communicators();
  }

  [[nodiscard]] Bytes received_bytes() const override { return received_; }

  void begin_step(const RankLaunches& launches, std::span<const int> lane) override {
    lane_.assign(lane.begin(), lane.end());
    started_.clear();
    step_.begin(launches);
    if (parcels_) parcels_->begin_step(launches);
  }

  void receive_into(const ReceiveArena& arena, int peer, Channel channel,
                    std::span<const std::int32_t> slots) override {
    buffers_.plan(peer, channel, arena, slots);
  }

  void reach(std::int32_t place) override {
    while (const LaunchBatch* const batch = step_.next(place)) launch(*batch);
  }

  void began(std::int32_t index, const MomentPtr& start) override { started_[index] = start; }

  [[nodiscard]] std::vector<Launched> end_step() override { return step_.end(); }

  void poll() override {
    poll_control();
    look_for_errors();
    flights_.release_ended();
  }

  void await(const MomentPtr& moment, Clock::time_point deadline) override {
    while (!has_come(moment)) {
      poll();
      if (!has_passed(deadline)) {
        std::this_thread::sleep_for(look_every);
        continue;
      }
      throw PastDeadline(failure(fmt::format("{} has not ended before the deadline", flights_.oldest(nullptr))));
    }
    flights_.release_ended();
  }

  [[nodiscard]] MomentPtr collective(const CollectiveCall& call) override {
    const CommunicatorSpec spec{.use = call.use, .ranks = {call.group.begin(), call.group.end()}};
    NcclCommunicators::Member* member = communicators_.find(spec);
    if (member == nullptr) throw failure("is in no communicator " + describe(spec));
    const LaunchBatch* const batch = step_.made(spec, call);
    Stream& stream = *member->stream;
    stream.wait(call.ready);
    const MomentPtr begin = batch == nullptr || batch->call ? nullptr : stream.record();  // else a part of its action
    put(spec, batch, [&] { return put_collective(call_, call, *member, spec.ranks.size()); });
    const MomentPtr end = stream.record();
    if (batch != nullptr) step_.launched(begin, end);
    // What it reads and writes is not held: whoever asks for it lets its compute wait for the end before it lets go.
    flights_.add({.batch = batch, .use = spec.use, .work = batch == nullptr ? describe(spec) : "", .end = end});
    const Bytes bytes = received_by(call, spec.ranks.size(), static_cast<std::size_t>(member->rank));
    received_ += bytes;
    count_received(spec.ranks, bytes);
    return end;
  }

 private:
  // Whether the next sum is one of this use. The same ranks may have several communicators.
  [[nodiscard]] bool adds(CommunicatorUse use) const {
    if (const auto next = step_.next_sum()) return use == *next;
    return use != CommunicatorUse::down && use != CommunicatorUse::up && use != CommunicatorUse::evictions;
  }

  [[nodiscard]] RunError failure(const std::string& problem) const {
    return RunError(fmt::format("rank {}", rank()), problem);
  }
  [[nodiscard]] ParcelLines& parcels() {
    if (!parcels_) throw failure("evicts or loads, and no communicator was declared for that");
    return *parcels_;
  }
  [[nodiscard]] const CommunicatorSpec& spec_of(const NcclCommunicators::Member& member) const {
    return communicators_.specs()[static_cast<std::size_t>(member.index)];
  }

  void abort_communicators() noexcept {
    try {
      const std::scoped_lock lock(aborter_mutex_);
      if (!aborter_.joinable()) aborter_ = std::thread([this] { communicators_.abort(); });
    } catch (...) {  // no thread: the others meet their deadlines, and this process ends by its watchdog
    }
  }

  // A stop leaves nobody to talk to: what waits on the device for a peer is to end.
  void poll_control() {
    try {
      control_->poll();
    } catch (...) {
      abort_communicators();
      throw;
    }
  }

  void require_peer(int peer, Channel channel) {
    const bool is_peer = peer != rank() && std::ranges::find(lane_, peer) != lane_.end();
    if (is_peer && of_lane(use_of(channel)) != nullptr) return;
    throw failure(fmt::format("has no peer {}: there are {} ranks", peer, std::max<std::size_t>(1, lane_.size())));
  }

  // The communicator of this rank's pipeline; null: there is none.
  [[nodiscard]] NcclCommunicators::Member* of_lane(CommunicatorUse use) {
    return communicators_.find({.use = use, .ranks = lane_});
  }

  // Puts one group on a communicator's stream: what `operations` calls starts and ends together. For errors: `batch`,
  // or null.
  template <class Operations>
  void put(const CommunicatorSpec& spec, const LaunchBatch* batch, const Operations& operations) {
    ncclResult_t result = ncclSuccess;
    {
      const NcclCommunicators::Use use(communicators_);
      if (!communicators_.aborted()) {
        result = call_.group_start();
        if (result == ncclSuccess) result = operations();
        const ncclResult_t ended = call_.group_end();
        if (result == ncclSuccess) result = ended;
      }
    }
    if (communicators_.aborted()) {
      poll_control();  // says why
      throw Stopped("the communicators were aborted");
    }
    if (result == ncclSuccess) return;
    throw nccl_error(communicators_.library(), fmt::format("rank {}", rank()),
                     batch == nullptr ? describe(spec) : words(*batch), result);
  }

  void launch(const LaunchBatch& batch) {
    NcclCommunicators::Member* member = of_lane(batch.use);
    if (member == nullptr) throw failure("has no communicator for " + words(batch));
    Stream& stream = *member->stream;
    flights_.let_go_of_oldest(device_.compute());
    std::vector<Part> parts = take_parts(batch);
    for (const Part& part : parts) stream.wait(part.payload.ready);
    if (batch.not_before >= 0) stream.wait(started_[batch.not_before]);
    const MomentPtr begin = stream.record();
    put(spec_of(*member), nullptr, [&] { return put_parts(parts, *member); });
    const MomentPtr end = stream.record();
    step_.launched(begin, end);
    Flight flight{.batch = &batch, .use = batch.use, .work = {}, .end = end, .held = {}};
    Parcel parcel;
    for (Part& part : parts) {
      if (part.operation->sends) {
        flight.held.push_back(std::move(part.payload));
        continue;
      }
      // Held by whoever takes it, and not here: the buffer could not be used again before the host has seen its end.
      part.payload.ready = end;
      if (batch.use == CommunicatorUse::evictions) {
        parcel.push_back(std::move(part.payload));
      } else {
        messages_.launched(*part.operation, std::move(part.payload));
      }
    }
    const LaunchOperation& first = batch.operations.front();
    if (batch.use == CommunicatorUse::evictions && !first.sends) parcels().launched(first.peer, std::move(parcel));
    flights_.add(std::move(flight));
  }

  // A message is one part of its batch, an evicted or loaded parcel, which is alone in its batch, several or none.
  std::vector<Part> take_parts(const LaunchBatch& batch) {
    std::vector<Part> parts;
    for (const LaunchOperation& operation : batch.operations) {
      if (batch.use != CommunicatorUse::evictions) {
        parts.push_back(
            {&operation, operation.sends ? messages_.take_to_send(operation) : messages_.take_buffer(operation)});
        continue;
      }
      Parcel parcel =
          operation.sends ? parcels().take_to_send(operation) : parcels().take_buffers(operation, [this] { poll(); });
      for (Payload& part : parcel) parts.push_back({&operation, std::move(part)});
    }
    return parts;
  }

  // Both sides know that a message is empty.
  ncclResult_t put_parts(const std::vector<Part>& parts, const NcclCommunicators::Member& member) {
    auto* const stream = static_cast<cudaStream_t>(member.stream->native());
    for (const auto& [operation, payload] : parts) {
      if (payload.size == 0) continue;
      const int peer = position_of(operation->peer);
      const ncclResult_t result =
          operation->sends ? call_.send(payload.data, payload.size, ncclInt8, peer, member.communicator, stream)
                           : call_.receive(payload.data, payload.size, ncclInt8, peer, member.communicator, stream);
      if (result != ncclSuccess) return result;
    }
    return ncclSuccess;
  }

  // Of a rank of the pipeline, as its communicators count.
  [[nodiscard]] int position_of(int peer) const {
    return static_cast<int>(std::ranges::find(lane_, peer) - lane_.begin());
  }

  void look_for_errors() {
    for (NcclCommunicators::Member& member : communicators_.members()) {
      const CommunicatorSpec& spec = communicators_.specs()[static_cast<std::size_t>(member.index)];
      ncclResult_t state = ncclSuccess;
      {
        const NcclCommunicators::Use use(communicators_);
        if (communicators_.aborted()) return;
        const ncclResult_t asked = call_.comm_get_async_error(member.communicator, &state);
        if (asked != ncclSuccess) state = asked;
      }
      if (state == ncclSuccess || state == ncclInProgress) continue;
      throw nccl_error(communicators_.library(), fmt::format("rank {}", rank()), flights_.oldest(&spec), state);
    }
  }

  NcclOptions options_;
  std::unique_ptr<Transport> control_;
  Device& device_;
  NcclCommunicators communicators_;
  const NcclFunctions& call_;
  ReceiveBuffers buffers_;
  MessageLines messages_;
  std::optional<ParcelLines> parcels_;  // where there is a communicator of evictions
  std::vector<int> lane_;               // ranks of the run that this one's pipeline has
  StepLaunches step_;
  std::map<std::int32_t, MomentPtr> started_;  // by index of a compute action
  Flights flights_;
  Bytes received_;
  std::mutex aborter_mutex_;
  std::thread aborter_;
};

}  // namespace

std::unique_ptr<Transport> make_nccl_transport(const NcclOptions& options, std::unique_ptr<Transport> control,
                                               Device& device, const Rendezvous& rendezvous) {
  return std::make_unique<NcclTransport>(options, std::move(control), device, rendezvous);
}

}  // namespace plumb::exec

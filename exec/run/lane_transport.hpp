// Shows a rank of a layout the ranks of its own pipeline only.
#pragma once

#include "common/layout/lane.hpp"
#include "exec/transport/transport.hpp"

namespace plumb::exec {

// `rank`, `size`, peers and the groups of sums are the pipeline's. All else is that of all ranks: barriers, gathers,
// stops, and what errors name.
class LaneTransport final : public Transport {
 public:
  // `world` is of all ranks, and must outlive this.
  LaneTransport(Transport& world, Lane lane) : world_(world), lane_(std::move(lane)) {}

  // Of all ranks.
  [[nodiscard]] Transport& world() { return world_; }
  [[nodiscard]] int world_rank() const { return world_.rank(); }
  [[nodiscard]] const std::vector<int>& lane() const { return lane_.ranks; }
  // Throws RunError for what is no rank of the pipeline.
  [[nodiscard]] int world_rank(int pipeline_rank) const;

  [[nodiscard]] int rank() const override { return lane_.pipeline_rank; }
  [[nodiscard]] int size() const override { return static_cast<int>(lane_.ranks.size()); }
  void send(int peer, Channel channel, Payload payload) override;
  void expect(int peer, Channel channel, std::size_t bytes, int count) override;
  [[nodiscard]] bool has_message(int peer, Channel channel) override;
  [[nodiscard]] Received receive(int peer, Channel channel, Clock::time_point deadline) override;
  void send_parcel(int peer, Parcel parcel) override;
  void expect_parcels(int peer, int count) override;
  [[nodiscard]] bool has_parcel(int peer) override;
  [[nodiscard]] ReceivedParcel receive_parcel(int peer, Clock::time_point deadline) override;
  void all_reduce(std::span<const int> group, std::span<float> values, Clock::time_point deadline) override;
  void barrier(Clock::time_point deadline) override { world_.barrier(deadline); }
  [[nodiscard]] std::vector<std::string> gather(const std::string& text, Clock::time_point deadline) override {
    return world_.gather(text, deadline);
  }
  void abort(const std::string& reason) noexcept override { world_.abort(reason); }
  [[nodiscard]] Bytes received_bytes() const override { return world_.received_bytes(); }
  void begin_step(const RankLaunches& launches, std::span<const int> lane) override {
    world_.begin_step(launches, lane);
  }
  void receive_into(const ReceiveArena& arena, int peer, Channel channel, std::span<const std::int32_t> slots) override;
  void reach(std::int32_t place) override { world_.reach(place); }
  void began(std::int32_t index, const MomentPtr& start) override { world_.began(index, start); }
  [[nodiscard]] std::vector<Launched> end_step() override { return world_.end_step(); }
  void poll() override { world_.poll(); }
  void await(const MomentPtr& moment, Clock::time_point deadline) override { world_.await(moment, deadline); }
  void set_meanwhile(std::function<void()> work) override { world_.set_meanwhile(std::move(work)); }
  [[nodiscard]] const std::function<void()>& meanwhile() const override { return world_.meanwhile(); }
  [[nodiscard]] MomentPtr collective(const CollectiveCall& call) override { return world_.collective(call); }

 private:
  Transport& world_;
  Lane lane_;
};

}  // namespace plumb::exec

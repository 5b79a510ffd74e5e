// Parcels between two ranks over Gloo, in order: a table of sizes first, then the parts.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "exec/transport/gloo/gloo_queues.hpp"

namespace plumb::exec {

// Of a parcel's parts; in memory that outlives its travel. Plain: LibTorch's would be counted by thread.
struct SizeTable {
  std::shared_ptr<std::int64_t> count = std::make_shared<std::int64_t>(0);
  std::shared_ptr<std::vector<std::int64_t>> bytes = std::make_shared<std::vector<std::int64_t>>();
};

// Parcels to one peer. No grants: Gloo holds each message back until the peer has posted its buffer, and the table says
// how large that is.
class OutgoingParcels {
 public:
  OutgoingParcels(GlooFabric& fabric, int peer);
  OutgoingParcels(const OutgoingParcels&) = delete;
  OutgoingParcels& operator=(const OutgoingParcels&) = delete;
  ~OutgoingParcels();

  void push(Parcel parcel);
  void release();                          // as Outgoing
  void drain(Clock::time_point deadline);  // as Outgoing

 private:
  struct Sending {
    Payload part;     // alive until the peer has it; none for a table
    SizeTable table;  // likewise
    GlooWork work;
  };

  void run();

  GlooFabric& fabric_;
  int peer_;
  std::mutex mutex_;  // of all below; taken before the ending's
  std::condition_variable changed_;
  bool closing_ = false;
  std::uint64_t sent_ = 0;
  std::deque<Sending> sending_;
  std::vector<Payload> delivered_;
  std::thread thread_;
};

// Parcels from one peer. The thread reads tables, makes buffers and notes arrivals, whatever the rank is doing.
class IncomingParcels {
 public:
  IncomingParcels(GlooFabric& fabric, int peer, std::function<Payload(std::size_t bytes)> allocate);
  IncomingParcels(const IncomingParcels&) = delete;
  IncomingParcels& operator=(const IncomingParcels&) = delete;
  ~IncomingParcels();

  void expect(int count);
  [[nodiscard]] bool has_arrived();
  [[nodiscard]] ReceivedParcel receive(Clock::time_point deadline);

 private:
  void run();
  [[nodiscard]] bool take_next();
  // Wait for what has been posted; false if it is to end.
  [[nodiscard]] bool read(const std::vector<at::Tensor>& into, std::unique_lock<std::mutex>& lock);

  GlooFabric& fabric_;
  int peer_;
  std::function<Payload(std::size_t bytes)> allocate_;
  int unreceived_ = 0;  // of the rank's thread alone: expected and not received yet
  Arrivals<ReceivedParcel> arrivals_;
  std::mutex mutex_;  // of all below; taken before the ending's
  std::condition_variable changed_;
  bool closing_ = false;
  int expected_ = 0;
  std::uint64_t posted_ever_ = 0;
  std::vector<GlooWork> reading_;
  std::thread thread_;
};

}  // namespace plumb::exec

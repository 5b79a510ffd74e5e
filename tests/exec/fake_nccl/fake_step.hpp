// A rank's step on streams, as exec/transport/transport.hpp describes it, with compute that only checks.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <tuple>
#include <utility>
#include <vector>

#include "exec/run/messages.hpp"
#include "tests/exec/device/async_device.hpp"
#include "tests/exec/fake_nccl/fake_evictions.hpp"
#include "tests/exec/transport/transports.hpp"

namespace plumb::exec {

// What a message holds: all bytes tell which it is.
inline std::byte mark_of(const Action& receive) {
  const int number = receive.stage * 131 + receive.microbatch * 7 + (goes_forward(receive.kind) ? 1 : 64);
  return static_cast<std::byte>(number & 0xff);
}

// One step of a rank of a lowered schedule whose compute only checks what it gets and writes what it hands on.
class FakeStep {
 public:
  // `arena`: where planned receives go; null: none is planned.
  FakeStep(const Schedule& lowered, Transport& transport, test::AsyncDevice& device, std::size_t bytes,
           const ReceiveArena* arena = nullptr)
      : lowered_(lowered), transport_(transport), device_(device), bytes_(bytes), arena_(arena) {}

  // Returns how many inputs were not those that the schedule says.
  int run(const RankLaunches& launches, double seconds) {
    const auto& list = lowered_.actions[static_cast<std::size_t>(transport_.rank())];
    std::vector<int> lane(static_cast<std::size_t>(transport_.size()));
    std::iota(lane.begin(), lane.end(), 0);
    transport_.begin_step(launches, lane);
    announce_receives(lowered_, {Bytes{static_cast<std::int64_t>(bytes_)}}, arena_, transport_);
    for (std::size_t i = 0; i < list.size(); ++i) {
      const auto index = static_cast<std::int32_t>(i);
      transport_.reach(index);
      transport_.poll();
      perform(list[i], index);
    }
    transport_.reach(static_cast<std::int32_t>(list.size()));
    for (const Launched& launched : transport_.end_step()) transport_.await(launched.end, in_seconds(seconds));
    transport_.await(device_.compute().record(), in_seconds(seconds));
    return *wrong_;
  }

 private:
  using Key = std::tuple<bool, int, int>;  // forward, the consuming stage, the microbatch

  [[nodiscard]] static Channel channel_of(const Action& action) {
    return goes_forward(action.kind) ? Channel::forward : Channel::backward;
  }
  [[nodiscard]] int peer_of(const Action& action) const {
    const int stage = is_send(action.kind) ? consumer_stage(action) : producer_stage(action);
    return rank_of(lowered_, stage, action.microbatch);
  }

  void perform(const Action& action, std::int32_t index) {
    if (is_send(action.kind)) {
      Payload payload = take({goes_forward(action.kind), consumer_stage(action), action.microbatch});
      transport_.send(peer_of(action), channel_of(action), std::move(payload));
    } else if (is_receive(action.kind)) {
      values_[{goes_forward(action.kind), action.stage, action.microbatch}] =
          transport_.receive(peer_of(action), channel_of(action), in_seconds(600)).payload;
    } else if (is_eviction(action.kind)) {
      evictions_.perform(action);
    } else if (action.kind == ActionKind::reduce_tied) {
      reduce(action);
    } else if (is_compute(action.kind) && action.kind != ActionKind::weight_gradient &&
               action.kind != ActionKind::recompute) {
      compute(action, index);
    } else if (is_compute(action.kind)) {
      transport_.began(index, device_.compute().record());
    }
  }

  void compute(const Action& action, std::int32_t index) {
    const bool forward = goes_forward(action.kind);
    const bool has_input = producer_stage(action) >= 0 && producer_stage(action) < stages(lowered_);
    if (has_input) {
      Payload input = take({forward, action.stage, action.microbatch});
      device_.compute().wait(input.ready);
      transport_.began(index, device_.compute().record());
      const std::byte wanted = mark_of(
          {forward ? ActionKind::receive_forward : ActionKind::receive_backward, action.stage, action.microbatch});
      // Not the owner: as with LibTorch, memory is let go when its last use has been put on the stream.
      device_.compute().run([wrong = wrong_, data = input.data, size = input.size, wanted] {
        for (std::size_t i = 0; i < size; ++i) {
          if (data[i] != wanted) {
            ++*wrong;
            return;
          }
        }
      });
    } else {
      transport_.began(index, device_.compute().record());
    }
    const int consumer = consumer_stage(action);
    if (consumer < 0 || consumer >= stages(lowered_)) return;
    Payload output = device_.allocate(bytes_);
    const std::byte mark =
        mark_of({forward ? ActionKind::receive_forward : ActionKind::receive_backward, consumer, action.microbatch});
    device_.compute().run(
        [data = output.data, size = output.size, mark] { std::memset(data, static_cast<int>(mark), size); });
    output.ready = device_.compute().record();
    values_[{forward, consumer, action.microbatch}] = std::move(output);
  }

  void reduce(const Action& action) {
    const int first = lowered_.rank_of_stage.front();
    const int last = lowered_.rank_of_stage.back();
    const std::vector<int> group{std::min(first, last), std::max(first, last)};
    const auto sum = std::make_shared<std::vector<float>>(8, action.stage == 0 ? 1.5F : 2.0F);
    transport_.all_reduce(group, *sum, in_seconds(600));
    device_.compute().run([wrong = wrong_, sum] {
      for (const float value : *sum) *wrong += value == 3.5F ? 0 : 1;
    });
  }

  Payload take(const Key& key) {
    const auto found = values_.find(key);
    if (found == values_.end()) throw RunError("test", "a value is not there");
    Payload payload = std::move(found->second);
    values_.erase(found);
    return payload;
  }

  const Schedule& lowered_;
  Transport& transport_;
  test::AsyncDevice& device_;
  std::size_t bytes_;
  const ReceiveArena* arena_;
  std::map<Key, Payload> values_;
  // What is on the stream may come to its end after a step that was broken off.
  std::shared_ptr<std::atomic<int>> wrong_ = std::make_shared<std::atomic<int>>(0);
  FakeEvictions evictions_{lowered_, transport_, device_, wrong_};
};

}  // namespace plumb::exec

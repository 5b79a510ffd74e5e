// What the queues between ranks over Gloo share: kinds, tags, grants, and the way to post.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "exec/device/payload.hpp"
#include "exec/transport/ending.hpp"
#include "exec/transport/host_links.hpp"

namespace plumb::exec {

enum class QueueKind : int { forward, backward, control, parcel, collective, sums, gathers };

// Gloo matches by tag and neither compares sizes nor survives a message larger than its buffer. So a receiver first
// grants what it expects, and the sender sends only what was granted: expected at the start of a step, all messages of
// a queue need one grant. That there is a buffer for a granted message is Gloo's to see to: it holds a send back until
// the matching receive is posted. One grant is under way at a time; what is expected meanwhile shares the next one.
// Between ranks of one host a small message goes another way, once it is granted: on a link, straight from rank to
// rank, where Gloo wakes three threads for each.
enum class Leg : int { grant, payload };
[[nodiscard]] int tag_of(QueueKind kind, Leg leg, std::uint64_t sequence);

inline constexpr std::chrono::milliseconds gloo_never = std::chrono::hours(24);  // Gloo closes all when one wait ends

using GlooWork = c10::intrusive_ptr<c10d::Work>;

// What all queues of a rank share.
struct GlooFabric {
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group;
  Ending ending;
  std::function<bool(int peer)> has_left = {};  // and was not lost: it has said that it has gone; empty: nobody knows
  std::unique_ptr<HostLinks> links = {};
  std::function<bool(int peer)> is_near = {};  // `links` leads there, and the peer says so, too; empty: nobody is
  [[nodiscard]] GlooWork post(const at::Tensor& tensor, int peer, int tag, bool send) const;
};

// What a receiver tells a sender: the next `count` messages have so many bytes each.
struct Grant {
  std::int64_t bytes = 0;
  std::int64_t count = 0;
};

// A grant in memory that outlives its travel. Also what travels for an empty message.
struct TravellingGrant {
  std::shared_ptr<Grant> grant;
  at::Tensor tensor;
};

}  // namespace plumb::exec

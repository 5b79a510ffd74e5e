// Who sends what to whom where the ranks of two neighbouring stages hold shares of a microbatch of different size.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/layout/layout.hpp"

namespace plumb {

// Sequences of a microbatch that a rank of this stage takes, of `microbatch` on each rank of the widest one; 0: its
// replicas do not divide the microbatch.
[[nodiscard]] std::int64_t share_of_stage(const Layout& layout, int stage, std::int64_t microbatch);

// The smallest size of a microbatch on the widest stage's ranks that the replicas of every stage divide; 0: none
// that a batch could have.
[[nodiscard]] std::int64_t least_microbatch(const Layout& layout);

// Why the replicas of some stage do not divide a microbatch; none: they do.
[[nodiscard]] std::optional<std::string> uneven_shares(const Layout& layout, std::int64_t microbatch);

// Replica i of d takes the i-th d-th of a microbatch, in the order of its sequences, so that every byte crosses once
// (many to many: DAPPLE, arXiv 2007.01045, section 3, "split and concat"); ranks of a tensor group send to those of the
// same place in theirs.
struct MessageShare {
  int from = 0;  // ranks of the layout
  int to = 0;
  double fraction = 0;  // of the whole microbatch
  bool operator==(const MessageShare&) const = default;
};
// From one pipeline rank to another, by sender, then receiver.
[[nodiscard]] std::vector<MessageShare> message_shares(const Layout& layout, int from_stage, int to_stage);

}  // namespace plumb

#include "common/layout/message_shares.hpp"

#include <algorithm>
#include <numeric>

namespace plumb {

std::int64_t share_of_stage(const Layout& layout, int stage, std::int64_t microbatch) {
  const std::int64_t whole = microbatch * layout.data.degree;
  const std::int64_t degree = data_degree(layout, stage);
  return whole % degree == 0 ? whole / degree : 0;
}

std::int64_t least_microbatch(const Layout& layout) {
  constexpr std::int64_t most = std::int64_t{1} << 31;
  std::int64_t whole = 1;
  for (int stage = 0; stage < layout.pipeline; ++stage) {
    whole = std::lcm(whole, std::int64_t{data_degree(layout, stage)});
    if (whole > most) return 0;
  }
  return whole / layout.data.degree;
}

std::optional<std::string> uneven_shares(const Layout& layout, std::int64_t microbatch) {
  if (!has_stage_data(layout)) return std::nullopt;
  for (int stage = 0; stage < layout.pipeline; ++stage) {
    if (share_of_stage(layout, stage, microbatch) > 0) continue;
    return "a microbatch of " + std::to_string(microbatch * layout.data.degree) + " sequences (" +
           std::to_string(microbatch) + " on each of " + std::to_string(layout.data.degree) +
           " replicas) does not divide among the " + std::to_string(data_degree(layout, stage)) +
           " replicas of pipeline rank " + std::to_string(stage);
  }
  return std::nullopt;
}

std::vector<MessageShare> message_shares(const Layout& layout, int from_stage, int to_stage) {
  // In units of which every replica, of either stage, has a whole number.
  const std::int64_t senders = data_degree(layout, from_stage);
  const std::int64_t receivers = data_degree(layout, to_stage);
  const auto whole = static_cast<double>(senders * receivers);
  const auto data = static_cast<std::size_t>(MeshAxis::data);
  std::vector<MessageShare> shares;
  for (int lane = 0; lane < stage_width(layout, from_stage); ++lane) {
    const int from = first_rank(layout, from_stage) + lane;
    MeshCoordinates at = coordinates(layout, from);
    const std::int64_t sender = at.at(data);
    at.at(static_cast<std::size_t>(MeshAxis::pipeline)) = to_stage;
    for (std::int64_t receiver = 0; receiver < receivers; ++receiver) {
      const std::int64_t begin = std::max(sender * receivers, receiver * senders);
      const std::int64_t end = std::min((sender + 1) * receivers, (receiver + 1) * senders);
      if (begin >= end) continue;
      at.at(data) = static_cast<int>(receiver);
      shares.push_back({from, rank_at(layout, at), static_cast<double>(end - begin) / whole});
    }
  }
  return shares;
}

}  // namespace plumb

// What a rank receives in a step, payload, without what ranks tell each other of their collectives; and what its
// actions spend on collectives within them.
#pragma once

#include <utility>
#include <vector>

#include "common/base/units.hpp"
#include "exec/run/rank_log.hpp"
#include "exec/transport/transport.hpp"

namespace plumb::exec {

class RankTraffic {
 public:
  // `world`, which must outlive this, counts all; the groups are its ranks.
  RankTraffic(Transport& world, std::vector<int> tensor_group, std::vector<int> data_group)
      : world_(world), tensor_group_(std::move(tensor_group)), data_group_(std::move(data_group)) {}

  void begin_step() {
    before_ = received();
    spent_ = world_.within_actions();
  }

  // What comes while `tell` runs is no payload.
  template <class Tell>
  void telling(const Tell& tell) {
    const Received before = received();
    tell();
    const Received now = received();
    before_.all += now.all - before.all;
    before_.in_tensor += now.in_tensor - before.in_tensor;
    before_.in_data += now.in_data - before.in_data;
  }

  void end_step(RankStep& step) {
    const Received now = received();
    step.received_bytes = now.all - before_.all;
    step.received_in_tensor = now.in_tensor - before_.in_tensor;
    step.received_in_data = now.in_data - before_.in_data;
    step.within = since(world_.within_actions(), spent_);
  }

 private:
  // Since the start.
  struct Received {
    Bytes all = {};
    Bytes in_tensor = {};
    Bytes in_data = {};
  };
  [[nodiscard]] Received received() {
    const GroupBytes& in_groups = world_.received_in_groups();
    return {.all = world_.received_bytes(),
            .in_tensor = bytes_within(tensor_group_, in_groups),
            .in_data = bytes_within(data_group_, in_groups)};
  }

  Transport& world_;
  std::vector<int> tensor_group_;
  std::vector<int> data_group_;
  Received before_ = {};  // this step's payload
  TimesWithin spent_ = {};
};

}  // namespace plumb::exec

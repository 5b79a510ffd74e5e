// Evictions of a rank's step on streams: parcels of known bytes there, and checked when they are back.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "common/schedule/action_index.hpp"
#include "tests/exec/device/async_device.hpp"
#include "tests/exec/transport/transports.hpp"

namespace plumb::exec {

class FakeEvictions {
 public:
  // `wrong` counts what is not as it was.
  FakeEvictions(const Schedule& lowered, Transport& transport, test::AsyncDevice& device,
                std::shared_ptr<std::atomic<int>> wrong)
      : lowered_(lowered),
        index_(index_actions(lowered)),
        transport_(transport),
        device_(device),
        wrong_(std::move(wrong)) {}

  // Either half of an EVICT or a LOAD, at its place in the list.
  void perform(const Action& action) {
    const int owner = rank_of(lowered_, action.stage, action.microbatch);
    const bool own = owner == transport_.rank();
    const int peer = own ? index_.rank_at(index_.find_partner(action)) : owner;
    const std::pair key(action.stage, action.microbatch);
    if (!sends_activations(lowered_, transport_.rank(), action)) {
      transport_.expect_parcels(peer, 1);
      *wrong_ += transport_.has_parcel(peer) ? 0 : 1;
      Parcel parcel = transport_.receive_parcel(peer, in_seconds(600)).parcel;
      if (own) return check_parcel(action, parcel);
      kept_[key] = std::move(parcel);
    } else if (own) {
      Parcel parcel;
      for (const std::size_t size : part_sizes(action)) {
        Payload& part = parcel.emplace_back(size == 0 ? Payload{} : device_.allocate(size));
        device_.compute().run([data = part.data, size, mark = mark_of_part(action)] {
          if (size > 0) std::memset(data, static_cast<int>(mark), size);
        });
      }
      const MomentPtr ready = device_.compute().record();
      for (Payload& part : parcel) part.ready = ready;
      transport_.send_parcel(peer, std::move(parcel));
    } else {
      transport_.send_parcel(peer, std::move(kept_.at(key)));
      kept_.erase(key);
    }
  }

 private:
  // Parcels of three parts, one of them empty, of sizes that differ by microbatch; one of a microbatch in five has
  // none.
  [[nodiscard]] static std::vector<std::size_t> part_sizes(const Action& action) {
    const auto number = static_cast<std::size_t>(action.microbatch);
    if (number % 5 == 3) return {};
    return {8 + 4 * number, 0, 32 + static_cast<std::size_t>(action.stage)};
  }
  [[nodiscard]] static std::byte mark_of_part(const Action& action) {
    return static_cast<std::byte>(200 - 13 * action.stage - action.microbatch);
  }

  void check_parcel(const Action& action, const Parcel& parcel) {
    const std::vector<std::size_t> sizes = part_sizes(action);
    *wrong_ += parcel.size() == sizes.size() ? 0 : 1;
    for (std::size_t i = 0; i < std::min(parcel.size(), sizes.size()); ++i) {
      const Payload& part = parcel[i];
      *wrong_ += part.size == sizes[i] ? 0 : 1;
      device_.compute().wait(part.ready);
      device_.compute().run([wrong = wrong_, data = part.data, size = part.size, mark = mark_of_part(action)] {
        if (!std::all_of(data, data + size, [mark](std::byte byte) { return byte == mark; })) ++*wrong;
      });
    }
  }

  const Schedule& lowered_;
  ActionIndex index_;
  Transport& transport_;
  test::AsyncDevice& device_;
  std::shared_ptr<std::atomic<int>> wrong_;
  std::map<std::pair<std::int32_t, std::int32_t>, Parcel> kept_;  // for a partner, by stage and microbatch
};

}  // namespace plumb::exec

// A stage that holds parts of tensors and computes nothing: what checkpoints see of one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "exec/stage/stage.hpp"

namespace plumb::exec::test {

// By weight and state, the values of a whole tensor or of a part of one.
using States = std::map<std::pair<std::string, StateKind>, std::vector<float>>;

class StoredStage final : public Stage {
 public:
  struct Held {
    std::string weight;
    StateKind kind = StateKind::weight;
    IndexRanges ranges = {};
    std::vector<float> values = {};
    ElementType type = ElementType::fp32;
  };

  explicit StoredStage(std::vector<Held> held) : held_(std::move(held)) {}

  [[nodiscard]] const std::vector<Held>& held() const { return held_; }
  [[nodiscard]] std::vector<StatePart> state_parts() override {
    std::vector<StatePart> parts;
    for (Held& each : held_) {
      parts.push_back(
          {.weight = each.weight,
           .kind = each.kind,
           .type = each.type,
           .ranges = each.ranges,
           .read = [&each](std::int64_t first,
                           std::span<float> to) { std::copy_n(at(each, first, to.size()), to.size(), to.begin()); },
           .write =
               [&each](std::int64_t first, std::span<const float> from) {
                 std::copy(from.begin(), from.end(), at(each, first, from.size()));
               }});
    }
    return parts;
  }
  [[nodiscard]] std::int64_t updates() const override { return updates_; }
  void resume_updates(std::int64_t made) override { updates_ = made; }

  void begin_step(std::int64_t /*step*/) override {}
  [[nodiscard]] Payload forward(int /*microbatch*/, Payload /*input*/) override { return {}; }
  void recompute(int /*microbatch*/) override {}
  [[nodiscard]] Payload input_gradient(int /*microbatch*/, Payload /*gradient*/) override { return {}; }
  [[nodiscard]] Parcel evict(int /*microbatch*/) override { return {}; }
  void load(int /*microbatch*/, Parcel /*parcel*/) override {}
  void weight_gradient(int /*microbatch*/) override {}
  [[nodiscard]] std::vector<DeviceFloats> gradients() override { return {}; }
  [[nodiscard]] DeviceFloats tied_gradient() override { return {}; }
  void optimizer_step() override {}
  void end_step() override {}
  [[nodiscard]] double loss() const override { return 0; }

 private:
  static std::vector<float>::iterator at(Held& held, std::int64_t first, std::size_t count) {
    if (first < 0 || static_cast<std::size_t>(first) + count > held.values.size()) throw std::out_of_range(held.weight);
    return held.values.begin() + first;
  }

  std::vector<Held> held_;
  std::int64_t updates_ = 7;
};

}  // namespace plumb::exec::test

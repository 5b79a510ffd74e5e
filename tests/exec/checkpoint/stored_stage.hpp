// A stage that holds parts of tensors and computes nothing: what checkpoints see of one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tests/exec/run/idle_stage.hpp"

namespace plumb::exec::test {

// By weight and state, the values of a whole tensor or of a part of one.
using States = std::map<std::pair<std::string, StateKind>, std::vector<float>>;

class StoredStage final : public IdleStage {
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

 private:
  static std::vector<float>::iterator at(Held& held, std::int64_t first, std::size_t count) {
    if (first < 0 || static_cast<std::size_t>(first) + count > held.values.size()) throw std::out_of_range(held.weight);
    return held.values.begin() + first;
  }

  std::vector<Held> held_;
  std::int64_t updates_ = 7;
};

}  // namespace plumb::exec::test

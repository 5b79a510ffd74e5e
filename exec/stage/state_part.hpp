// What a rank has of a weight or of one of its optimizer states, as checkpoints write and read it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/units.hpp"
#include "common/placement/index_ranges.hpp"

namespace plumb::exec {

// A weight itself (the fp32 master copy where there is one), and AdamW's two moments.
enum class StateKind : std::uint8_t { weight, first_moment, second_moment };
// As torch.optim names them: "weight", "exp_avg", "exp_avg_sq".
[[nodiscard]] constexpr std::string_view name_of(StateKind kind) {
  switch (kind) {
    case StateKind::weight:
      return "weight";
    case StateKind::first_moment:
      return "exp_avg";
    case StateKind::second_moment:
      return "exp_avg_sq";
  }
  return "";
}

struct StatePart {
  std::string weight;  // global name, of common/model/parameters.hpp
  StateKind kind = StateKind::weight;
  ElementType type = ElementType::fp32;  // that has all its values: narrower of frozen weights that are
  IndexRanges ranges = {};               // which elements of the whole tensor, in the order of the memory
  // A copy of a weight that is made from another part is not saved, and one whose memory another part has not restored.
  bool saved = true;
  bool restored = true;
  // Values from element `first` of this part on, as fp32; of a device they are there when the call returns.
  std::function<void(std::int64_t first, std::span<float> values)> read = {};
  std::function<void(std::int64_t first, std::span<const float> values)> write = {};
};

}  // namespace plumb::exec

// Why a search left candidates out: counted by reason, so that one line speaks for thousands.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "common/base/units.hpp"
#include "common/layout/layout.hpp"

namespace plumb {

enum class LeftOutWhy : std::uint8_t {
  cannot_be_built,
  memory_bound,  // not even weights, states and the least activations fit
  does_not_fit,  // weighed, and too large
  slower_by_bound,
  unproven,  // its split was neither found nor ruled out in the steps that a proof may take
};

// "cannot_be_built": as in JSON.
[[nodiscard]] std::string_view name_of(LeftOutWhy why);

// Candidates of one tensor degree and kind, one pipeline degree and one way to hold the vocabulary, or of one reason
// that they cannot be built.
struct LeftOut {
  LeftOutWhy why = LeftOutWhy::cannot_be_built;
  std::string reason = {};  // why not, where it was not weighed; of those that differ in numbers alone the first
  int tensor = 0;           // 0: of any layout
  TensorKind kind = TensorKind::one_d;
  int pipeline = 0;
  int vocabulary_barriers = 0;
  std::int64_t candidates = 0;
  Bytes least_bytes = {};   // that any of them needs
  Seconds least_time = {};  // that any of them takes
  bool operator==(const LeftOut&) const = default;
};

// Adds up what is left out.
class LeftOutLog {
 public:
  void cannot_be_built(const std::string& reason, std::int64_t candidates);
  void unproven(const std::string& reason, std::int64_t candidates);
  void too_large(LeftOutWhy why, const Layout& layout, Bytes bytes, std::int64_t candidates);
  void too_slow(const Layout& layout, Seconds time, std::int64_t candidates);

  // By why, then the most candidates first, then reason, tensor degree and kind, pipeline degree and barriers.
  [[nodiscard]] std::vector<LeftOut> sorted() const;
  [[nodiscard]] std::int64_t candidates(LeftOutWhy why) const;

 private:
  LeftOut& entry(LeftOutWhy why, const Layout& layout);
  void add_by_reason(LeftOutWhy why, const std::string& reason, std::int64_t candidates);
  std::map<std::tuple<LeftOutWhy, int, TensorKind, int, int>, LeftOut> entries_;
  std::map<std::pair<LeftOutWhy, std::string>, LeftOut> by_reason_;  // by reason without its numbers
};

}  // namespace plumb

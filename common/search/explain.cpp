#include "common/search/explain.hpp"

#include <algorithm>
#include <array>
#include <tuple>

#include "common/base/text.hpp"

namespace plumb {

std::string_view name_of(LeftOutWhy why) {
  constexpr std::array<std::string_view, 5> names = {"cannot_be_built", "memory_bound", "does_not_fit",
                                                     "slower_by_bound", "unproven"};
  return names.at(static_cast<std::size_t>(why));
}

LeftOut& LeftOutLog::entry(LeftOutWhy why, const Layout& layout) {
  const LeftOut of{.why = why,
                   .tensor = layout.tensor.degree,
                   .kind = layout.tensor.kind,
                   .pipeline = layout.pipeline,
                   .vocabulary_barriers = layout.vocabulary_barriers};
  const std::tuple key(why, of.tensor, of.kind, of.pipeline, of.vocabulary_barriers);
  return entries_.try_emplace(key, of).first->second;
}

void LeftOutLog::cannot_be_built(const std::string& reason, std::int64_t candidates) {
  add_by_reason(LeftOutWhy::cannot_be_built, reason, candidates);
}

void LeftOutLog::unproven(const std::string& reason, std::int64_t candidates) {
  add_by_reason(LeftOutWhy::unproven, reason, candidates);
}

void LeftOutLog::add_by_reason(LeftOutWhy why, const std::string& reason, std::int64_t candidates) {
  LeftOut& found = by_reason_[{why, without_numbers(reason)}];
  found.why = why;
  found.reason = found.candidates == 0 ? reason : std::min(found.reason, reason);
  found.candidates += candidates;
}

void LeftOutLog::too_large(LeftOutWhy why, const Layout& layout, Bytes bytes, std::int64_t candidates) {
  LeftOut& found = entry(why, layout);
  found.least_bytes = found.candidates == 0 ? bytes : std::min(found.least_bytes, bytes);
  found.candidates += candidates;
}

void LeftOutLog::too_slow(const Layout& layout, Seconds time, std::int64_t candidates) {
  LeftOut& found = entry(LeftOutWhy::slower_by_bound, layout);
  found.least_time = found.candidates == 0 ? time : std::min(found.least_time, time);
  found.candidates += candidates;
}

std::vector<LeftOut> LeftOutLog::sorted() const {
  std::vector<LeftOut> result;
  for (const auto& [key, entry] : by_reason_) result.push_back(entry);
  for (const auto& [key, entry] : entries_) result.push_back(entry);
  std::ranges::sort(result, [](const LeftOut& a, const LeftOut& b) {
    return std::tuple(a.why, -a.candidates, a.reason, a.tensor, a.kind, a.pipeline, a.vocabulary_barriers) <
           std::tuple(b.why, -b.candidates, b.reason, b.tensor, b.kind, b.pipeline, b.vocabulary_barriers);
  });
  return result;
}

std::int64_t LeftOutLog::candidates(LeftOutWhy why) const {
  std::int64_t sum = 0;
  for (const auto& [key, entry] : by_reason_) sum += entry.why == why ? entry.candidates : 0;
  for (const auto& [key, entry] : entries_) sum += entry.why == why ? entry.candidates : 0;
  return sum;
}

}  // namespace plumb

#include "exec/transport/step_launches.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "common/base/error.hpp"

namespace plumb::exec {
namespace {

// Sums with another rank of the pipeline, and all collectives of groups.
bool is_made_by_action(const LaunchBatch& batch) { return is_sum(batch.use) || batch.call != nullptr; }

bool fits(const GroupCall& planned, const CommunicatorSpec& over, const CollectiveCall& call) {
  if (planned.of != over || planned.kind != call.kind || planned.reduction != call.reduction) return false;
  if (!std::ranges::equal(planned.bucket, call.bucket, {}, {}, &CollectiveValue::count)) return false;
  return planned.open || planned.count == call.count;
}

std::string describe(const CommunicatorSpec& over, const CollectiveCall& call) {
  const bool maximum = call.reduction == Reduction::maximum;
  const std::string values = call.bucket.size() < 2 ? "" : fmt::format(" in {} values", call.bucket.size());
  return fmt::format("{}{} of {} elements{} on {}", name_of(call.kind), maximum ? " (maximum)" : "", call.count, values,
                     exec::describe(over));
}

}  // namespace

RunError StepLaunches::failure(const std::string& problem) const {
  return RunError(fmt::format("rank {}", rank_), problem);
}

void StepLaunches::begin(const RankLaunches& launches) {
  launches_ = &launches;
  next_ = 0;
  place_ = -1;
  launched_.assign(launches.size(), {});
  for (std::size_t i = 0; i < launches.size(); ++i) launched_[i].batch = &launches[i];
}

const LaunchBatch* StepLaunches::next(std::int32_t place) {
  if (launches_ == nullptr) return nullptr;
  place_ = place;
  for (; next_ < launches_->size() && (*launches_)[next_].place <= place; ++next_) {
    const LaunchBatch& batch = (*launches_)[next_];
    if (!is_made_by_action(batch)) return &batch;
    if (batch.place == place) return nullptr;
    if (batch.call && !batch.call->open)
      throw failure(words(batch) + " was not made in " + to_string(batch.operations.front().action));
  }
  return nullptr;
}

const LaunchBatch* StepLaunches::made(const CommunicatorSpec& over, const CollectiveCall& call) const {
  if (launches_ == nullptr) return nullptr;
  const bool has_next = next_ < launches_->size() && (*launches_)[next_].place == place_;
  const LaunchBatch* const batch = has_next ? &(*launches_)[next_] : nullptr;
  if (!is_of_group(over.use)) return batch != nullptr && batch->use == over.use ? batch : nullptr;
  if (batch != nullptr && batch->call && fits(*batch->call, over, call)) return batch;
  const bool comes = batch != nullptr && is_made_by_action(*batch);
  throw failure(fmt::format("{} was made where {}", describe(over, call),
                            comes ? words(*batch) + " comes next" : "its action makes none any more"));
}

std::optional<CommunicatorUse> StepLaunches::next_sum() const {
  if (launches_ == nullptr || next_ == launches_->size() || !is_made_by_action((*launches_)[next_]))
    return std::nullopt;
  return (*launches_)[next_].use;
}

void StepLaunches::launched(const MomentPtr& begin, const MomentPtr& end) {
  const LaunchBatch& batch = (*launches_)[next_];
  Launched& of = launched_[next_];
  if (!of.begin) of.begin = begin;
  of.end = end;
  // Of sums of gradients others may follow.
  if (!is_made_by_action(batch) || (batch.call && !batch.call->open)) ++next_;
}

std::vector<Launched> StepLaunches::end() {
  if (launches_ != nullptr && next_ < launches_->size()) {
    throw failure(fmt::format("{} batches were not launched, the first {}", launches_->size() - next_,
                              words((*launches_)[next_])));
  }
  launches_ = nullptr;
  return std::exchange(launched_, {});
}

std::string words(const LaunchBatch& batch) {
  if (batch.call) return describe(*batch.call);
  std::string text;
  for (const LaunchOperation& operation : batch.operations) {
    const char* direction = is_sum(batch.use) ? "with" : operation.sends ? "to" : "from";
    text += fmt::format("{}{} {} rank {}", text.empty() ? "" : " + ", to_string(operation.action), direction,
                        operation.peer);
  }
  return fmt::format("{} on {}", text, name(batch.use));
}

}  // namespace plumb::exec

#include "exec/transport/launch_plan/group_calls.hpp"

#include <cstdint>

namespace plumb::exec {

std::string describe(const GroupCall& call) { return call.what + " on " + describe(call.of); }

const GroupCalls& calls_of(const RankCalls& calls, const Action& action) {
  static const GroupCalls none;
  auto found = calls.find({action.kind, action.stage, action.microbatch});
  if (found == calls.end()) found = calls.find({action.kind, action.stage});
  return found == calls.end() ? none : found->second;
}

RankLaunches launches_of_rank(const RankLaunches& of_pipeline, const Lane& lane, const std::vector<Action>& list,
                              const RankCalls& calls) {
  RankLaunches launches;
  auto next = of_pipeline.begin();
  const auto add_messages = [&](std::int32_t until) {
    for (; next != of_pipeline.end() && next->place <= until; ++next) {
      launches.push_back(*next);
      for (LaunchOperation& operation : launches.back().operations) {
        operation.peer = lane.ranks.at(static_cast<std::size_t>(operation.peer));
      }
    }
  };
  for (std::size_t place = 0; place < list.size(); ++place) {
    const auto index = static_cast<std::int32_t>(place);
    add_messages(index);
    for (const auto& call : calls_of(calls, list[place])) {
      launches.push_back({.use = call->of.use,
                          .operations = {{.action = list[place], .index = index, .peer = -1}},
                          .place = index,
                          .call = call});
    }
  }
  add_messages(static_cast<std::int32_t>(list.size()));
  return launches;
}

}  // namespace plumb::exec

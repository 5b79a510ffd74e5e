// Every schedule over the shapes that torch.distributed.pipelining's own tests use, and what holds for all of them.
#include <array>
#include <map>
#include <optional>

#include "common/base/error.hpp"
#include "common/schedule/interchange.hpp"
#include "common/schedule/registry.hpp"
#include "common/schedule/validate.hpp"
#include "tests/catch.hpp"

using namespace plumb;

namespace {

struct GridShape {
  int chunks;
  int microbatches;
  int ranks;
};

// test_schedule.py: local stages, microbatches, ranks.
constexpr std::array<GridShape, 23> pytorch_grid{
    {{2, 2, 2},  {2, 4, 4},  {2, 8, 2},  {2, 8, 4},   {2, 8, 8},   {4, 4, 4},    {4, 8, 4}, {4, 8, 8},
     {4, 16, 4}, {4, 32, 4}, {4, 64, 4}, {4, 16, 16}, {4, 32, 32}, {4, 128, 64}, {3, 2, 2}, {3, 8, 2},
     {3, 12, 4}, {4, 6, 3},  {4, 10, 5}, {2, 3, 4},   {2, 4, 4},   {2, 10, 4},   {2, 15, 4}}};

// Nothing where the schedule refuses the shape.
std::optional<Schedule> generate(const ScheduleEntry& entry, const GridShape& grid) {
  ScheduleShape shape{.ranks = grid.ranks, .microbatches = grid.microbatches};
  if (entry.fixed_chunks > 0) {
    shape.chunks = entry.fixed_chunks;
  } else if (entry.uses_chunks) {
    shape.chunks = grid.chunks;
  }
  try {
    return entry.generate(shape);
  } catch (const InputError& error) {
    CHECK(error.where() == "schedule " + entry.name);
    CHECK_FALSE(error.hint().empty());
    return std::nullopt;
  }
}

template <class Check>
void for_each_schedule(const Check& check) {
  for (const ScheduleEntry& entry : schedule_entries()) {
    for (const GridShape& shape : pytorch_grid) {
      CAPTURE(entry.name, shape.chunks, shape.microbatches, shape.ranks);
      if (const std::optional<Schedule> schedule = generate(entry, shape)) check(*schedule);
    }
  }
}

}  // namespace

TEST_CASE("PyTorch's grid: what a schedule takes is valid, lowered or not") {
  for_each_schedule([](const Schedule& schedule) {
    const auto problems = validate(schedule);
    INFO((problems.empty() ? std::string() : problems.front().text));
    CHECK(problems.empty());
    const auto lowered = validate(lower(schedule, {}));
    INFO((lowered.empty() ? std::string() : lowered.front().text));
    CHECK(lowered.empty());
  });
}

// Execution is compared bitwise with one device's, which adds up gradients in this order.
TEST_CASE("PyTorch's grid: each stage of each replica runs W (or B) in the order of the microbatches") {
  for_each_schedule([](const Schedule& schedule) {
    for (const auto& list : schedule.actions) {
      std::map<std::pair<int, int>, int> next;  // by stage and replica
      for (const Action& action : list) {
        if (action.kind != ActionKind::backward && action.kind != ActionKind::weight_gradient) continue;
        const int replica = replica_of(schedule, action.microbatch);
        const auto first = next.try_emplace({action.stage, replica}, replica * schedule.microbatches / 2).first;
        // Slices of a sequence go backwards.
        const int sequence = action.microbatch / schedule.slices;
        CHECK(sequence >= first->second / schedule.slices);
        if (schedule.slices == 1) CHECK(action.microbatch == first->second);
        ++first->second;
      }
    }
  });
}

// The second at its place in the first's list, one rank for both.
TEST_CASE("PyTorch's grid: overlapped pairs are F and B of different stages or replicas, next to each other") {
  for_each_schedule([](const Schedule& schedule) {
    std::map<Action, Action> partners;
    for (const OverlappedPair& pair : schedule.overlapped) {
      CHECK(pair.first.kind == ActionKind::forward);
      CHECK(pair.second.kind == ActionKind::backward);
      CHECK(pair.first.microbatch != pair.second.microbatch);
      CHECK(partners.emplace(pair.first, pair.second).second);
    }
    std::size_t found = 0;
    for (const auto& list : schedule.actions) {
      for (std::size_t at = 0; at + 1 < list.size(); ++at) {
        const auto pair = partners.find(list[at]);
        if (pair == partners.end()) continue;
        CHECK(list[at + 1] == pair->second);
        ++found;
      }
    }
    CHECK(found == partners.size());
  });
}

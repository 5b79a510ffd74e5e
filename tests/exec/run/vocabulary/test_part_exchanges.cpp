// What ranks exchange for the parts of a vocabulary: who gets what, in which order, beside what they do, and what is
// said where nothing comes.
#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/plan/vocabulary_costs.hpp"
#include "common/schedule/vocabulary_parts.hpp"
#include "exec/launch/launch.hpp"
#include "exec/run/vocabulary/part_exchanges.hpp"
#include "exec/transport/local/local.hpp"
#include "tests/catch.hpp"
#include "tests/exec/run/idle_stage.hpp"
#include "tests/exec/stage/models.hpp"
#include "tests/exec/stage/training_plan.hpp"
#include "tests/exec/transport/transports.hpp"

using namespace plumb;
using namespace plumb::exec;

namespace {

constexpr int parts = 3;

Plan plan_of(int barriers) {
  Model model = test::llama(parts);
  model.vocabulary = 240;
  Plan plan = test::training_plan({.model = model, .ranks = parts, .microbatches = 3, .vocabulary_barriers = barriers});
  plan.costs.boundary_bytes = Bytes{2 * sizeof(float)};
  return plan;
}

Payload numbers(float a, float b) {
  Payload made = plain_memory(2 * sizeof(float));
  std::memcpy(made.data, std::array{a, b}.data(), made.size);
  return made;
}

std::vector<float> values(const Payload& payload) {
  std::vector<float> read(payload.size / sizeof(float));
  std::memcpy(read.data(), payload.data, payload.size);
  return read;
}

// What threads find: Catch2's checks are for one.
struct Held {
  std::atomic<int> wrong = 0;
  void operator()(bool holds) { wrong += holds ? 0 : 1; }
};

// Of a head's part: its summand is what it was told of all parts, in their order.
class Listening final : public test::IdleStage {
 public:
  explicit Listening(bool makes_summand) : makes_summand_(makes_summand) {}
  Payload join_statistics(int /*microbatch*/, std::span<const Payload> of_parts) override {
    for (const Payload& part : of_parts) heard.push_back(values(part).front());
    return makes_summand_ ? numbers(1, 10) : Payload{};
  }
  std::vector<float> heard;

 private:
  bool makes_summand_;
};

// All ranks have these exchanges, in this order.
struct Kinds {
  ActionKind kind;
  bool of_head;
};
Schedule with_exchanges(Schedule lowered, const std::vector<Kinds>& kinds, int microbatches) {
  for (int rank = 0; rank < parts; ++rank) {
    std::vector<Action>& list = lowered.actions[static_cast<std::size_t>(rank)];
    list.clear();
    for (int k = 0; k < microbatches; ++k) {
      for (const auto& [kind, of_head] : kinds) {
        list.push_back({kind, of_head ? head_part(lowered, rank) : embedding_part(lowered, rank), k});
      }
    }
  }
  return lowered;
}

// One rank, as its runner drives it.
class Driver {
 public:
  Driver(const Plan& plan, const Schedule& lowered, Transport& transport)
      : lowered_(lowered),
        rank_(transport.rank()),
        head(plan.layout.vocabulary_barriers == 1),
        exchanges(
            plan, lowered, transport, [this](const Action&) -> Stage& { return head; }, plain_memory) {
    exchanges.begin_step(events);
  }

  Action of_head(ActionKind kind, int microbatch) const { return {kind, head_part(lowered_, rank_), microbatch}; }
  Action of_embedding(ActionKind kind, int microbatch) const {
    return {kind, embedding_part(lowered_, rank_), microbatch};
  }
  void perform(const Action& action) {
    Event event{
        .action = action, .rank = rank_, .start = seconds_of(Clock::now()), .end = {}, .waited = {}, .bytes = {}};
    exchanges.perform(event);
    events.push_back(event);
    exchanges.progress();
  }
  Payload input(const Action& action) {
    exchanges.await(action, in_seconds(20));
    return exchanges.take(action);
  }

 private:
  const Schedule& lowered_;
  int rank_;

 public:
  Listening head;
  std::vector<Event> events;
  PartExchanges exchanges;
};

}  // namespace

TEST_CASE("parts get what is broadcast, the statistics of all in the order of the ranks, and one rank gets sums") {
  for (const int barriers : {1, 2}) {
    const Plan plan = plan_of(barriers);
    const Schedule lowered = with_exchanges(lowered_schedule(plan),
                                            {{ActionKind::reduce, false},
                                             {ActionKind::broadcast, true},
                                             {ActionKind::all_reduce, true},
                                             {ActionKind::reduce, true},
                                             {ActionKind::broadcast, false}},
                                            2);
    Held hold;
    run_on_threads(make_local_transports(parts), [&](Transport& transport) {
      Driver mine(plan, lowered, transport);
      mine.events.reserve(100);
      const int rank = transport.rank();
      const float own = static_cast<float>(rank + 1);
      for (int k = 0; k < 2; ++k) {
        const Action last{ActionKind::forward, parts - 1, k};
        const Action first_part = mine.of_embedding(ActionKind::forward, k);
        mine.exchanges.put(first_part, numbers(own, own * 10));
        mine.perform(mine.of_embedding(ActionKind::reduce, k));
        if (rank == 0) hold(values(mine.input({ActionKind::forward, 0, k})) == std::vector<float>{6, 60});
        if (rank == parts - 1) mine.exchanges.put(last, numbers(7, static_cast<float>(k)));
        mine.perform(mine.of_head(ActionKind::broadcast, k));
        hold(values(mine.input(mine.of_head(ActionKind::forward, k))) == std::vector<float>{7, static_cast<float>(k)});
        mine.exchanges.put(mine.of_head(barriers == 1 ? ActionKind::input_gradient : ActionKind::forward, k),
                           numbers(own, 0));
        mine.perform(mine.of_head(ActionKind::all_reduce, k));
        if (barriers == 1) mine.perform(mine.of_head(ActionKind::reduce, k));
        (void)mine.input(mine.of_head(barriers == 1 ? ActionKind::weight_gradient : ActionKind::backward, k));
        if (barriers == 2) {
          mine.exchanges.put(mine.of_head(ActionKind::backward, k), numbers(own, 10));
          mine.perform(mine.of_head(ActionKind::reduce, k));
        }
        if (rank == parts - 1) {
          const std::vector<float> sum = barriers == 1 ? std::vector<float>{3, 30} : std::vector<float>{6, 30};
          hold(values(mine.input({ActionKind::backward, parts - 1, k})) == sum);
        }
        if (rank == 0) mine.exchanges.put({ActionKind::backward, 0, k}, numbers(5, 5));
        mine.perform(mine.of_embedding(ActionKind::broadcast, k));
        hold(values(mine.input(mine.of_embedding(ActionKind::backward, k))) == std::vector<float>{5, 5});
      }
      mine.exchanges.finish(in_seconds(20));
      mine.exchanges.end_step();
      hold(mine.head.heard == std::vector<float>{1, 2, 3, 1, 2, 3});
      for (const Event& event : mine.events) hold(event.end >= event.start);
    });
    CHECK(hold.wrong == 0);
  }
}

// As in 1F1B: rank 0 waits for a message that rank 1 sends only when it has what rank 0 still has to hand on.
TEST_CASE("a rank that waits for a message hands on what others wait for") {
  const Plan plan = plan_of(1);
  const Schedule lowered =
      with_exchanges(lowered_schedule(plan), {{ActionKind::all_reduce, true}, {ActionKind::reduce, true}}, 1);
  Held hold;
  run_on_threads(make_local_transports(parts), [&](Transport& transport) {
    Driver mine(plan, lowered, transport);
    mine.events.reserve(100);
    const int rank = transport.rank();
    if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(20));  // its statistics come late
    mine.exchanges.put(mine.of_head(ActionKind::input_gradient, 0), numbers(1, 0));
    mine.perform(mine.of_head(ActionKind::all_reduce, 0));
    mine.perform(mine.of_head(ActionKind::reduce, 0));
    if (rank == parts - 1) {
      hold(values(mine.input({ActionKind::backward, parts - 1, 0})) == std::vector<float>{3, 30});
      transport.send(0, Channel::backward, numbers(4, 4));
    }
    if (rank == 0) {
      transport.expect(parts - 1, Channel::backward, 2 * sizeof(float), 1);
      mine.exchanges.progress_until_message(parts - 1, Channel::backward, in_seconds(20));
      hold(values(transport.receive(parts - 1, Channel::backward, in_seconds(20)).payload) == std::vector<float>{4, 4});
    }
    (void)mine.input(mine.of_head(ActionKind::weight_gradient, 0));
    mine.exchanges.finish(in_seconds(20));
    mine.exchanges.end_step();
  });
  CHECK(hold.wrong == 0);
}

TEST_CASE("exchanges that do not arrive, are not made or not used are named") {
  const Plan plan = plan_of(2);
  const Schedule lowered =
      with_exchanges(lowered_schedule(plan), {{ActionKind::broadcast, true}, {ActionKind::reduce, false}}, 1);
  auto transports = make_local_transports(parts);
  Driver first(plan, lowered, *transports[0]);
  first.events.reserve(10);
  first.perform(first.of_head(ActionKind::broadcast, 0));
  CHECK_THROWS_WITH(first.exchanges.await(first.of_head(ActionKind::forward, 0), in_seconds(0.01)),
                    ContainsSubstring("BCAST0") && ContainsSubstring("no message from rank 2"));
  CHECK_THROWS_WITH(first.exchanges.end_step(), ContainsSubstring("BCAST0 has not ended"));
  CHECK_THROWS_WITH(first.exchanges.take(first.of_head(ActionKind::forward, 0)), ContainsSubstring("has not brought"));
  Driver last(plan, lowered, *transports[parts - 1]);
  last.events.reserve(10);
  last.exchanges.put({ActionKind::forward, parts - 1, 0}, numbers(1, 1));
  CHECK_THROWS_WITH(last.exchanges.put({ActionKind::forward, parts - 1, 0}, numbers(1, 1)),
                    ContainsSubstring("BCAST0 sends was made twice"));
  last.exchanges.put(last.of_embedding(ActionKind::forward, 0), numbers(1, 1));
  last.exchanges.progress();  // both are sent before their places
  CHECK_THROWS_WITH(last.exchanges.end_step(), ContainsSubstring("BCAST0 has brought was never used"));
  last.perform(last.of_head(ActionKind::broadcast, 0));
  CHECK(last.events.front().bytes == Bytes{2 * sizeof(float)});
  CHECK(values(last.input(last.of_head(ActionKind::forward, 0))) == std::vector<float>{1, 1});
  last.exchanges.end_step();
}

// Whoever comes late, all of its moments are those of its messages: of one clock, since the ranks are threads.
TEST_CASE("an exchange begins when a rank has its own values and ends when the last arrives") {
  const Plan plan = plan_of(2);
  const Schedule lowered =
      with_exchanges(lowered_schedule(plan), {{ActionKind::broadcast, true}, {ActionKind::all_reduce, true}}, 1);
  Held hold;
  std::atomic<double> broadcast_made = 0;
  std::atomic<double> statistics_made = 0;
  run_on_threads(make_local_transports(parts), [&](Transport& transport) {
    Driver mine(plan, lowered, transport);
    mine.events.reserve(100);
    const int rank = transport.rank();
    const auto now = [] { return seconds_of(Clock::now()).value; };
    const auto late = [] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); };
    if (rank == parts - 1) {
      late();
      broadcast_made = now();
      mine.exchanges.put({ActionKind::forward, parts - 1, 0}, numbers(7, 7));
    }
    mine.perform(mine.of_head(ActionKind::broadcast, 0));
    hold(values(mine.input(mine.of_head(ActionKind::forward, 0))) == std::vector<float>{7, 7});
    const double taken = now();
    const Event& broadcast = mine.events[0];
    hold(broadcast.start == broadcast.end);  // it takes no time of its own, neither here nor there
    hold(broadcast.start.value >= broadcast_made && broadcast.end.value <= taken);
    if (rank == 1) {
      late();
      statistics_made = now();
    }
    const double own = now();
    mine.exchanges.put(mine.of_head(ActionKind::forward, 0), numbers(1, 0));
    const double given = now();
    mine.perform(mine.of_head(ActionKind::all_reduce, 0));
    mine.exchanges.await(mine.of_head(ActionKind::backward, 0), in_seconds(20));
    const Event& statistics = mine.events[1];
    hold(statistics.start.value >= own && statistics.start.value <= given);
    hold(statistics.end.value >= statistics_made && statistics.end.value <= now());
    (void)mine.exchanges.take(mine.of_head(ActionKind::backward, 0));
    mine.exchanges.end_step();
  });
  CHECK(hold.wrong == 0);
}

// Between threads a message is the sender's memory.
TEST_CASE("a rank may change its copy of a broadcast") {
  const Plan plan = plan_of(1);
  const Schedule lowered = with_exchanges(lowered_schedule(plan), {{ActionKind::broadcast, true}}, 1);
  Held hold;
  std::atomic<int> changed = 0;
  run_on_threads(make_local_transports(parts), [&](Transport& transport) {
    Driver mine(plan, lowered, transport);
    mine.events.reserve(100);
    const bool is_root = transport.rank() == parts - 1;
    if (is_root) mine.exchanges.put({ActionKind::forward, parts - 1, 0}, numbers(7, 8));
    mine.perform(mine.of_head(ActionKind::broadcast, 0));
    const Payload got = mine.input(mine.of_head(ActionKind::forward, 0));
    const auto give_up = Clock::now() + std::chrono::seconds(20);
    if (is_root) {
      while (changed < parts - 1 && Clock::now() < give_up) std::this_thread::yield();
      hold(values(got) == std::vector<float>{7, 8});
    } else {
      const Payload other = numbers(static_cast<float>(transport.rank()), 0);
      std::memcpy(got.data, other.data, other.size);
      ++changed;
    }
    mine.exchanges.end_step();
  });
  CHECK(hold.wrong == 0);
}

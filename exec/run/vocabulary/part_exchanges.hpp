// What the ranks of a pipeline exchange for the parts of a vocabulary that is divided over them, beside what each
// computes: BCAST, ALLRED and REDUCE (common/schedule/vocabulary_parts.hpp).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "common/plan/plan.hpp"
#include "common/timeline/timeline.hpp"
#include "exec/run/vocabulary/exchange_order.hpp"
#include "exec/stage/stage.hpp"
#include "exec/transport/transport.hpp"

namespace plumb::exec {

// On hosts. As a prediction has it, one line has all broadcasts of a rank and another one all sums, each in the order
// of the rank's list, and neither holds up what the rank computes: only what needs a result waits for it. What has come
// is taken on whenever the rank looks, also while it waits for something else, since others may wait for what follows.
//
// Over gloo a rank that needs a sum holds p−1 summands beside what LibTorch's allocators count.
//
// Each sends straight to each that needs it: of p ranks and hidden states of n bytes a broadcast brings n to each but
// the one that had them, a sum (p−1)·n to the one that needs it, statistics (p−1)·12 bytes a token to each. Sums are
// added as in exec/transport/collectives/sum.hpp, in the order of the ranks.
class PartExchanges {
 public:
  using StageOf = std::function<Stage&(const Action& action)>;
  using Allocate = std::function<Payload(std::size_t bytes)>;

  // Of a rank of the pipeline, as `transport` sees it, with a vocabulary that is divided. All but `plan`, whose costs
  // say how large messages are, must outlive this.
  PartExchanges(const Plan& plan, const Schedule& lowered, Transport& transport, StageOf stage_of, Allocate allocate);

  // What the rank goes on with while it waits here, often and without waiting. Throws through here what it throws.
  void beside_waits(std::function<void()> work) { beside_waits_ = std::move(work); }

  // `events` are those of the step, in the order of the rank's list; they stay where they are.
  void begin_step(std::vector<Event>& events);
  // Throws RunError for what nobody has taken.
  void end_step() const;

  // BCAST, ALLRED or REDUCE of `event`, the next to be added to the step's: it begins in its turn, as soon as what it
  // sends is made, and may have ended before its place.
  void perform(Event& event);

  // Whether the input, or the result, of a compute action comes from here or goes here.
  [[nodiscard]] bool gives_input(const Action& action) const { return exchange_before(lowered_, action).has_value(); }
  [[nodiscard]] bool takes_result(const Action& action) const { return !exchanges_behind(lowered_, action).empty(); }

  // Waits until what the action needs has come: takes on what has. Throws as Transport::receive, naming what it waits
  // for.
  void await(const Action& action, Clock::time_point deadline);
  // Its input, when it has; empty of one that needs only others' to have ended.
  [[nodiscard]] Payload take(const Action& action);
  void put(const Action& action, Payload result);

  // Takes on what has come. Never waits. Throws as Transport::receive.
  void progress();
  // So, until a message of a peer is there, or until the deadline.
  void progress_until_message(int peer, Channel channel, Clock::time_point deadline);
  // Until all that has begun has ended.
  void finish(Clock::time_point deadline);

 private:
  struct Exchange {
    Action action;                          // as this rank names it
    std::optional<std::size_t> event = {};  // its place, once the rank has come to it
    bool begun = false;
    Seconds start = {};
    Seconds end = {};
    Payload own = {};                             // what this rank gives
    std::size_t bytes = 0;                        // of that, or of what it gets
    std::vector<std::optional<Payload>> of = {};  // by rank, of those that give something
    Clock::time_point arrived = {};               // the last of these
  };
  struct Line {
    Channel channel;
    std::deque<Exchange> exchanges = {};
    Seconds free_from = {};  // when the last one ended
  };

  [[nodiscard]] int root_of(const Action& exchange) const;
  [[nodiscard]] bool is_under_way(const Action& exchange) const;

  void advance(Line& line);
  // Between two looks at what has come.
  void go_on(Clock::time_point waits_since) const;
  [[nodiscard]] bool gives(const Action& exchange) const;
  [[nodiscard]] bool may_begin(const Exchange& exchange) const;
  void begin(Exchange& exchange, const Line& line);
  static void write(Event& event, const Exchange& exchange);
  [[nodiscard]] std::optional<int> awaited(const Exchange& exchange) const;
  void end(Exchange& exchange);
  void finish_broadcast(Exchange& exchange);
  void finish_statistics(Exchange& exchange);
  void finish_sum(Exchange& exchange);
  void wait_for(const std::function<bool()>& done, Clock::time_point deadline);
  [[noreturn]] void fail_waiting(Clock::time_point deadline);

  const Schedule& lowered_;
  Transport& transport_;
  StageOf stage_of_;
  Allocate allocate_;
  std::function<void()> beside_waits_ = {};
  ElementType precision_;
  std::size_t hidden_bytes_;
  int rank_;
  std::vector<Event>* events_ = nullptr;
  // In every pair of a pipeline's ranks these channels have no other messages.
  Line broadcasts_{.channel = Channel::gathers};
  Line sums_{.channel = Channel::sums};
  struct Given {
    Payload payload;
    Seconds since;  // when it was there, or what it is made of
  };
  std::map<Action, Given> given_;   // by exchange: what this rank has made for it
  std::map<Action, Event> ended_;   // by exchange: of those that ended before their place
  std::map<Action, Payload> made_;  // by exchange: what it has brought
};

}  // namespace plumb::exec

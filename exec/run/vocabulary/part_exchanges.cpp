#include "exec/run/vocabulary/part_exchanges.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "common/base/error.hpp"
#include "common/schedule/vocabulary_parts.hpp"
#include "exec/host/pauses.hpp"
#include "exec/run/vocabulary/exchange_order.hpp"
#include "exec/transport/collectives/payloads.hpp"

namespace plumb::exec {

PartExchanges::PartExchanges(const Plan& plan, const Schedule& lowered, Transport& transport, StageOf stage_of,
                             Allocate allocate)
    : lowered_(lowered),
      transport_(transport),
      stage_of_(std::move(stage_of)),
      allocate_(std::move(allocate)),
      precision_(plan.training.precision),
      hidden_bytes_(static_cast<std::size_t>(plan.costs.boundary_bytes.value)),
      rank_(transport.rank()) {}

int PartExchanges::root_of(const Action& exchange) const { return rank_beside_parts(lowered_, exchange.stage); }

void PartExchanges::begin_step(std::vector<Event>& events) {
  events_ = &events;
  for (Line* line : {&broadcasts_, &sums_}) {
    line->exchanges.clear();
    line->free_from = {};
  }
  given_.clear();
  made_.clear();
  ended_.clear();
  for (const Action& action : lowered_.actions[static_cast<std::size_t>(rank_)]) {
    if (!joins_parts(action.kind)) continue;
    (stream_of(action) == JoinStream::broadcasts ? broadcasts_ : sums_).exchanges.push_back({.action = action});
  }
}

void PartExchanges::end_step() const {
  for (const Line* line : {&broadcasts_, &sums_}) {
    if (!line->exchanges.empty()) {
      throw RunError("", to_string(line->exchanges.front().action) + " has not ended");
    }
  }
  if (!given_.empty()) throw RunError("", "what was made for " + to_string(given_.begin()->first) + " was never sent");
  if (!made_.empty()) throw RunError("", "what " + to_string(made_.begin()->first) + " has brought was never used");
}

void PartExchanges::perform(Event& event) {
  if (const auto node = ended_.extract(event.action); !node.empty()) {
    const Event& ended = node.mapped();
    event.start = ended.start;
    event.end = ended.end;
    event.bytes = ended.bytes;
    return;
  }
  event.end = event.start;
  for (Line* line : {&broadcasts_, &sums_}) {
    const auto found = std::ranges::find(line->exchanges, event.action, &Exchange::action);
    if (found != line->exchanges.end()) found->event = events_->size();
  }
}

bool PartExchanges::is_under_way(const Action& exchange) const {
  const auto has = [&](const Line& line) {
    return std::ranges::find(line.exchanges, exchange, &Exchange::action) != line.exchanges.end();
  };
  return has(broadcasts_) || has(sums_);
}

// What computes waits for what it needs, and what comes behind the step's computing for all.
void PartExchanges::await(const Action& action, Clock::time_point deadline) {
  progress();
  const bool meets_others = joins_parts(action.kind) || is_send(action.kind) || is_receive(action.kind);
  if (!is_compute(action.kind) && !meets_others) return finish(deadline);
  const std::optional<Action> exchange = exchange_before(lowered_, action);
  if (exchange && is_under_way(*exchange)) wait_for([&] { return !is_under_way(*exchange); }, deadline);
}

Payload PartExchanges::take(const Action& action) {
  const Action exchange = *exchange_before(lowered_, action);
  auto node = made_.extract(exchange);
  if (node.empty()) {
    throw RunError("", fmt::format("{} has not brought what {} needs", to_string(exchange), to_string(action)));
  }
  return std::move(node.mapped());
}

void PartExchanges::put(const Action& action, Payload result) {
  const Action exchange = exchanges_behind(lowered_, action).front();
  if (!given_.emplace(exchange, Given{std::move(result), seconds_of(Clock::now())}).second) {
    throw RunError("", "what " + to_string(exchange) + " sends was made twice");
  }
}

void PartExchanges::progress() {
  advance(broadcasts_);
  advance(sums_);
}

void PartExchanges::progress_until_message(int peer, Channel channel, Clock::time_point deadline) {
  const Clock::time_point begin = Clock::now();
  while (!transport_.has_message(peer, channel) && !has_passed(deadline)) {
    progress();
    go_on(begin);
  }
}

void PartExchanges::finish(Clock::time_point deadline) {
  wait_for([&] { return broadcasts_.exchanges.empty() && sums_.exchanges.empty(); }, deadline);
}

void PartExchanges::wait_for(const std::function<bool()>& done, Clock::time_point deadline) {
  const Clock::time_point begin = Clock::now();
  for (progress(); !done(); progress()) {
    if (has_passed(deadline)) fail_waiting(deadline);
    go_on(begin);
  }
}

void PartExchanges::go_on(Clock::time_point waits_since) const {
  if (beside_waits_) beside_waits_();
  std::this_thread::sleep_for(until_next_look(waits_since));
}

// The transport knows of whom nothing has come.
void PartExchanges::fail_waiting(Clock::time_point deadline) {
  for (const Line* line : {&broadcasts_, &sums_}) {
    if (line->exchanges.empty()) continue;
    const Exchange& first = line->exchanges.front();
    const std::optional<int> peer = awaited(first);
    if (!peer) continue;
    try {
      (void)transport_.receive(*peer, line->channel, deadline);
    } catch (const PastDeadline& error) {
      throw PastDeadline(RunError(error.where(), to_string(first.action) + ": " + error.problem(), error.hint()));
    }
  }
  throw PastDeadline(RunError("", "the parts of the vocabulary have not been joined before the deadline"));
}

void PartExchanges::advance(Line& line) {
  while (!line.exchanges.empty()) {
    Exchange& first = line.exchanges.front();
    if (!first.begun && !may_begin(first)) return;
    if (!first.begun) begin(first, line);
    for (std::optional<int> peer = awaited(first); peer; peer = awaited(first)) {
      if (!transport_.has_message(*peer, line.channel)) return;
      Received received = transport_.receive(*peer, line.channel, Clock::time_point::max());
      first.arrived = std::max(first.arrived, received.arrived);
      first.of[static_cast<std::size_t>(*peer)] = std::move(received.payload);
    }
    end(first);
    line.free_from = first.end;
    write(first.event ? (*events_)[*first.event] : ended_[first.action], first);
    line.exchanges.pop_front();
  }
}

bool PartExchanges::gives(const Action& exchange) const {
  return exchange.kind != ActionKind::broadcast || rank_ == root_of(exchange);
}

bool PartExchanges::may_begin(const Exchange& exchange) const {
  return !gives(exchange.action) || given_.contains(exchange.action);
}

void PartExchanges::write(Event& event, const Exchange& exchange) {
  event.start = exchange.start;
  event.end = exchange.end;
  event.bytes = {static_cast<std::int64_t>(exchange.bytes)};
}

// A rank that has not given anything yet is waited for.
std::optional<int> PartExchanges::awaited(const Exchange& exchange) const {
  for (std::size_t rank = 0; rank < exchange.of.size(); ++rank) {
    if (!exchange.of[rank]) return static_cast<int>(rank);
  }
  return std::nullopt;
}

void PartExchanges::begin(Exchange& exchange, const Line& line) {
  const Action& action = exchange.action;
  // What the rank did meanwhile, and what it made of what the one before has brought, is of this one's time.
  exchange.start = line.free_from;
  if (auto node = given_.extract(action); !node.empty()) {
    exchange.own = std::move(node.mapped().payload);
    exchange.start = std::max(exchange.start, node.mapped().since);
  }
  exchange.bytes = gives(action) ? exchange.own.size : hidden_bytes_;
  exchange.of.assign(static_cast<std::size_t>(transport_.size()), Payload{});
  for (int peer = 0; peer < transport_.size(); ++peer) {
    if (peer == rank_) continue;
    if (gets_from(lowered_, action, peer, rank_)) transport_.send(peer, line.channel, exchange.own);
    if (!gets_from(lowered_, action, rank_, peer)) continue;
    transport_.expect(peer, line.channel, exchange.bytes, 1);
    exchange.of[static_cast<std::size_t>(peer)].reset();
  }
  exchange.begun = true;
}

void PartExchanges::end(Exchange& exchange) {
  const bool waited = exchange.arrived != Clock::time_point{};
  const Seconds arrived = waited ? seconds_of(exchange.arrived) : exchange.start;
  exchange.start = gives(exchange.action) ? exchange.start : arrived;
  exchange.end = std::max(exchange.start, arrived);
  switch (exchange.action.kind) {
    case ActionKind::broadcast:
      return finish_broadcast(exchange);
    case ActionKind::all_reduce:
      return finish_statistics(exchange);
    default:
      finish_sum(exchange);
      if (waited) exchange.end = seconds_of(Clock::now());
  }
}

// Into memory of this rank's own: what has come may be the sender's.
void PartExchanges::finish_broadcast(Exchange& exchange) {
  const int root = root_of(exchange.action);
  if (rank_ == root) {
    made_.emplace(exchange.action, std::move(exchange.own));
    return;
  }
  const Payload& received = *exchange.of[static_cast<std::size_t>(root)];
  Payload copied = allocate_(received.size);
  copy(bytes_in(received), bytes_in(copied));
  made_.emplace(exchange.action, std::move(copied));
}

void PartExchanges::finish_statistics(Exchange& exchange) {
  exchange.of[static_cast<std::size_t>(rank_)] = exchange.own;
  std::vector<Payload> of_parts;
  for (std::optional<Payload>& part : exchange.of) of_parts.push_back(std::move(*part));
  const Action& action = exchange.action;
  Payload summand = stage_of_(action).join_statistics(action.microbatch, of_parts);
  if (summand.data != nullptr) {
    given_.emplace(Action{ActionKind::reduce, action.stage, action.microbatch},
                   Given{std::move(summand), exchange.end});
  }
  made_.emplace(action, Payload{});
}

void PartExchanges::finish_sum(Exchange& exchange) {
  if (rank_ != root_of(exchange.action)) return;
  std::vector<Payload> received;
  for (std::optional<Payload>& summand : exchange.of) received.push_back(std::move(*summand));
  const std::span<std::byte> own = bytes_in(exchange.own);
  add_received(own, static_cast<std::size_t>(rank_), received, own, precision_);
  made_.emplace(exchange.action, std::move(exchange.own));
}

}  // namespace plumb::exec

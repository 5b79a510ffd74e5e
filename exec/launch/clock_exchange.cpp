#include "exec/launch/clock_exchange.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/base/text.hpp"

namespace plumb::exec {
namespace {

// Content of a message either way: rank 0's word, or a time of the rank that answers.
using Word = double;
constexpr Word you_answer = 1;
constexpr Word another_answers = 0;

Payload payload_of(Word word) {
  const auto memory = std::make_shared<Word>(word);
  return {.owner = memory, .data = reinterpret_cast<std::byte*>(memory.get()), .size = sizeof(Word)};
}

Word word_of(const Received& received) {
  Word word = 0;
  std::memcpy(&word, received.payload.data, sizeof word);
  return word;
}

std::string place(int rank, const std::string& host) { return "rank " + std::to_string(rank) + " (on " + host + ")"; }

}  // namespace

ClockExchange::ClockExchange(Transport& transport, RankClock mine, Clock::time_point deadline)
    : transport_(transport), mine_(std::move(mine)) {
  const std::string told = nlohmann::json{{"host", mine_.host}, {"clock", mine_.id}}.dump();
  const std::vector<std::string> all = transport_.gather(told, deadline);
  if (transport_.rank() != 0) {
    transport_.expect(0, Channel::control, sizeof(Word), 1);
    answers_ = word_of(transport_.receive(0, Channel::control, deadline)) == you_answer;
    return;
  }
  std::map<std::string, int> known{{mine_.id, -1}};
  for (int rank = 0; rank < static_cast<int>(all.size()); ++rank) {
    const auto theirs = nlohmann::json::parse(all[static_cast<std::size_t>(rank)]);
    const auto [entry, first] = known.try_emplace(theirs.at("clock"), static_cast<int>(answering_.size()));
    if (first) answering_.push_back({.rank = rank, .host = theirs.at("host")});
    clock_of_rank_.push_back(entry->second);
    if (rank > 0) transport_.send(rank, Channel::control, payload_of(first ? you_answer : another_answers));
  }
}

void ClockExchange::measure(Clock::time_point deadline) {
  if (answers_) answer(deadline);
  for (Answering& other : answering_) ask(other, deadline);
}

void ClockExchange::answer(Clock::time_point deadline) {
  transport_.expect(0, Channel::control, sizeof(Word), round_trips);
  for (int trip = 0; trip < round_trips; ++trip) {
    (void)transport_.receive(0, Channel::control, deadline);
    transport_.send(0, Channel::control, payload_of(mine_.now().value));
  }
}

void ClockExchange::ask(Answering& other, Clock::time_point deadline) {
  std::array<RoundTrip, round_trips> trips;
  transport_.expect(other.rank, Channel::control, sizeof(Word), round_trips);
  for (RoundTrip& trip : trips) {
    trip.sent = mine_.now();
    transport_.send(other.rank, Channel::control, payload_of(trip.sent.value));
    trip.answered = {word_of(transport_.receive(other.rank, Channel::control, deadline))};
    trip.returned = mine_.now();
  }
  try {
    add_measurement(other.clock, clock_offset(trips));
  } catch (const RunError& error) {
    throw RunError(place(other.rank, other.host), error.problem(), error.hint());
  }
}

std::vector<HostClock> ClockExchange::by_rank() const {
  std::vector<HostClock> clocks;
  for (const int place : clock_of_rank_) {
    clocks.push_back(place < 0 ? HostClock{} : answering_[static_cast<std::size_t>(place)].clock);
  }
  return clocks;
}

std::vector<int> ClockExchange::clock_of_rank() const {
  std::vector<int> numbers;
  numbers.reserve(clock_of_rank_.size());
  for (const int place : clock_of_rank_) numbers.push_back(place + 1);
  return numbers;
}

Seconds ClockExchange::uncertainty() const {
  Seconds largest{0};
  Seconds second{0};
  for (const Answering& other : answering_) {
    const Seconds of_clock = exec::uncertainty(other.clock);
    second = std::max(second, std::min(largest, of_clock));
    largest = std::max(largest, of_clock);
  }
  return largest + second;
}

std::vector<std::string> ClockExchange::warnings() const {
  std::vector<std::string> lines;
  for (const Answering& other : answering_) {
    const Seconds jumped = jump(other.clock);
    if (jumped == Seconds{0}) continue;
    lines.push_back("the clock of " + place(other.rank, other.host) + " moved by " + plumb::to_text(jumped) +
                    " against rank 0's during the run: the times of that host may be off by as much");
  }
  return lines;
}

}  // namespace plumb::exec

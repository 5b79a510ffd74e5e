// How long a collective is on its way, and for how much of that the rank goes on, worked out by hand.
#include "exec/transport/times_within.hpp"

#include "tests/catch.hpp"

using namespace plumb;
using namespace plumb::exec;

namespace {

Clock::time_point at(int milliseconds) { return Clock::time_point(std::chrono::milliseconds(milliseconds)); }

CommunicationTime in_ms(double on_its_way, double hidden) {
  return {.on_its_way = {on_its_way * 1e-3}, .hidden = {hidden * 1e-3}};
}

bool alike(const CommunicationTime& a, const CommunicationTime& b) {
  return a.on_its_way.value == Approx(b.on_its_way.value) && a.hidden.value == Approx(b.hidden.value).margin(1e-12);
}

}  // namespace

// Given from 100 to 103, wanted at 110, taken by 114.
TEST_CASE("a message that arrives early counts as in flight until it is received") {
  const auto arrived = [](int milliseconds) {
    return time_of(
        {.begun = at(100), .started = at(103), .wanted = at(110), .ended = at(114), .arrived = at(milliseconds)});
  };
  CHECK(alike(arrived(108), in_ms(3 + 5 + 4, 5)));
  CHECK(alike(arrived(112), in_ms(3 + 7 + 4, 7)));  // all that the rank could hide
  CHECK(alike(arrived(90), in_ms(3 + 0 + 4, 0)));   // the others were earlier
  CHECK(alike(time_of({.begun = at(1), .started = at(2), .wanted = at(2), .ended = at(5), .arrived = at(4)}),
              in_ms(4, 0)));
  CHECK(alike(not_hidden(at(4), at(9)), in_ms(5, 0)));
}

TEST_CASE("the difference of two counts is the traffic between them") {
  const TimesWithin before{.tensor = {{1}, {0.5}}, .data = {{2}, {1}}};
  CHECK(since({.tensor = {{4}, {0.5}}, .data = {{2}, {1}}}, before) == TimesWithin{.tensor = {{3}, {0}}, .data = {}});
}

// A small generator of numbers that look random, the same everywhere: <random>'s distributions differ by library.
#pragma once

#include <cstddef>
#include <cstdint>

namespace plumb::zb_auto {

// xorshift64 (Marsaglia, Journal of Statistical Software 8(14), 2003).
class Random {
 public:
  explicit Random(std::uint64_t seed = 1) : state_(88172645463325252ULL * (2 * seed - 1)) {}  // odd factors: never 0
  [[nodiscard]] std::size_t below(std::size_t count) { return next() % count; }
  [[nodiscard]] double unit() { return static_cast<double>(next() >> 11) / 9007199254740992.0; }  // 2⁵³

 private:
  std::uint64_t next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_;
  }
  std::uint64_t state_;
};

}  // namespace plumb::zb_auto

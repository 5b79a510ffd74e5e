// How many cases a test tries, random or listed, and how many of the random ones must be of use.
#pragma once

#include <cstddef>

namespace plumb::testing {

// A sanitizer looks for errors that hardly any case is without, not for the counterexample, and takes ten times as
// long.
template <class Count>
constexpr Count cases(Count all) {
#ifdef PLUMB_ADDRESS_SANITIZER
  return all / 5;
#else
  return all;
#endif
}

// Whether the n-th of such cases is tried, where they are of a list.
constexpr bool tries([[maybe_unused]] std::size_t n) {
#ifdef PLUMB_ADDRESS_SANITIZER
  return n % 5 == 0;
#else
  return true;
#endif
}

// How far a test goes that takes one size after the other.
constexpr int up_to(int largest) {
#ifdef PLUMB_ADDRESS_SANITIZER
  return largest / 2;
#else
  return largest;
#endif
}

// How many of its random cases, at least, a test must have found to be what it is about; of a sanitizer's few
// half of that share, and one.
constexpr int found_in(unsigned of_all) {
#ifdef PLUMB_ADDRESS_SANITIZER
  return of_all < 20 ? 1 : static_cast<int>(of_all / 10);
#else
  return static_cast<int>(of_all);
#endif
}

}  // namespace plumb::testing

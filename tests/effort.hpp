// How many random cases a test tries.
#pragma once

namespace plumb::testing {

// A sanitizer looks for errors that hardly any case is without, not for the counterexample, and takes ten times as
// long.
constexpr unsigned cases(unsigned all) {
#ifdef __SANITIZE_ADDRESS__
  return all / 5;
#else
  return all;
#endif
}

}  // namespace plumb::testing

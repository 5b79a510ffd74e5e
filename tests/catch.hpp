// Catch2 2 (Debian 12) and 3 (Debian 13) under one name.
#pragma once

#ifdef PLUMB_CATCH2_V3
#include <catch2/catch_all.hpp>
using Catch::Approx;
using Catch::Matchers::ContainsSubstring;
#else
#include <catch2/catch.hpp>
inline auto ContainsSubstring(const std::string& text) {
  using namespace Catch::Matchers;
  return Contains(text);
}
#endif

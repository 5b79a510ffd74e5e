// Quantiles by their definition, and FNV-1a against its authors' published values.
#include "common/base/quantile.hpp"

#include "common/base/digest.hpp"
#include "tests/catch.hpp"

using namespace plumb;

TEST_CASE("a quantile lies between the two sorted values next to its place") {
  CHECK(quantile({3, 1, 2}, 0.5) == 2);
  CHECK(quantile({4, 1, 2, 3}, 0.5) == 2.5);
  CHECK(quantile({4, 1, 2, 3}, 0.25) == 1.75);
  CHECK(quantile({1, 2}, 1.0) == 2);
  CHECK(quantile({7}, 0.3) == 7);
  CHECK(median({{5}, {1}, {2}}).value == 2);
}

TEST_CASE("a digest is FNV-1a, 64 bits") {
  CHECK(digest("") == "cbf29ce484222325");
  CHECK(digest("a") == "af63dc4c8601ec8c");
  CHECK(digest("foobar") == "85944171f73967e8");
  CHECK(fnv1a("bar", fnv1a("foo")) == fnv1a("foobar"));
}

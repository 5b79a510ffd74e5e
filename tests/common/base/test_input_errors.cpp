// Input errors that are said at once.
#include "common/base/input_errors.hpp"

#include <string>

#include "tests/catch.hpp"

using namespace plumb;

TEST_CASE("one error is thrown as it is, several as one text with every place and hint, none is not thrown") {
  InputErrors errors;
  CHECK_NOTHROW(errors.throw_if_any());
  CHECK(errors.attempt([] {}));
  CHECK(errors.none());
  CHECK_FALSE(errors.attempt([] { throw InputError(Place{"a.yaml", 1, 2}, "is odd", "make it even"); }));
  try {
    errors.throw_if_any();
    FAIL("thrown");
  } catch (const InputError& error) {
    CHECK(std::string(error.what()) == "a.yaml:1:2: is odd\n  hint: make it even");
    CHECK(error.problem() == "is odd");
  }
  errors.add(InputError(Place{"a.yaml", 3, 1}, "is missing"));
  errors.add(InputError(Place{"a.yaml", 4, 1}, "is red", "green"));
  errors.add(InputError(Place{"a.yaml", 3, 1}, "is missing"));  // known already
  errors.add(InputError(Place{"a.yaml", 1, 2}, "is odd", "make it even"));
  try {
    errors.throw_if_any();
    FAIL("thrown");
  } catch (const InputError& error) {
    CHECK(std::string(error.what()) ==
          "a.yaml:1:2: is odd\n  hint: make it even\na.yaml:3:1: is missing\na.yaml:4:1: is red\n  hint: green");
  }
}

TEST_CASE("only input errors are collected") {
  InputErrors errors;
  CHECK_THROWS_AS(errors.attempt([] { throw RunError("rank 1", "died"); }), RunError);
  CHECK(errors.none());
}

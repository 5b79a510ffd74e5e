// The recurrence in cases whose answer is known in closed form.
#include "kernels/gated_delta/gated_delta.hpp"

#include <cmath>
#include <vector>

#include "tests/catch.hpp"

using namespace plumb::kernels;

namespace {

// One sequence with key size 2 and value size 1; keys and queries are rows of two numbers.
struct Case {
  std::vector<double> query;
  std::vector<double> key;
  std::vector<double> value;
  std::vector<double> beta;
  std::vector<double> log_decay;
};

std::vector<double> run(const Case& given) {
  const auto time = static_cast<std::int64_t>(given.value.size());
  std::vector<double> output(given.value.size());
  gated_delta_reference({.sequences = 1, .time = time, .key_dim = 2, .value_dim = 1},
                        {.query = given.query.data(),
                         .key = given.key.data(),
                         .value = given.value.data(),
                         .beta = given.beta.data(),
                         .log_decay = given.log_decay.data()},
                        output.data());
  return output;
}

}  // namespace

TEST_CASE("A key that is written twice holds the second value, the other key its own") {
  const std::vector<double> output = run({.query = {1, 0, 0, 1, 1, 0, 1, 1},
                                          .key = {1, 0, 0, 1, 1, 0, 0, 0},
                                          .value = {3, 5, 7, 9},
                                          .beta = {1, 1, 1, 1},
                                          .log_decay = {0, 0, 0, 0}});
  CHECK(output == std::vector<double>{3, 5, 7, 12});  // the last step asks for both, 7 + 5, and writes nothing
}

TEST_CASE("beta weighs the new value against the old one") {
  const std::vector<double> output =
      run({.query = {1, 0, 1, 0}, .key = {1, 0, 1, 0}, .value = {8, 4}, .beta = {0.5, 0.25}, .log_decay = {0, 0}});
  CHECK(output[0] == Approx(4));
  CHECK(output[1] == Approx(4));  // 4 + 0.25 (4 − 4)
}

TEST_CASE("The state decays before it is read and written") {
  const std::vector<double> output = run({.query = {1, 0, 1, 0, 1, 0},
                                          .key = {1, 0, 0, 0, 1, 0},
                                          .value = {1, 0, 2},
                                          .beta = {1, 1, 0.5},
                                          .log_decay = {0, std::log(0.5), std::log(0.5)}});
  CHECK(output[1] == Approx(0.5));
  CHECK(output[2] == Approx(0.25 + 0.5 * (2 - 0.25)));
}

TEST_CASE("Sequences do not see each other") {
  const std::vector<double> ones(4, 1.0);
  const std::vector<double> key = {1, 1, 0, 1};  // two sequences of two steps, sizes 1
  const std::vector<double> zero(4, 0.0);
  std::vector<double> output(4);
  gated_delta_reference(
      {.sequences = 2, .time = 2, .key_dim = 1, .value_dim = 1},
      {.query = ones.data(), .key = key.data(), .value = ones.data(), .beta = ones.data(), .log_decay = zero.data()},
      output.data());
  CHECK(output == std::vector<double>{1, 1, 0, 1});
}

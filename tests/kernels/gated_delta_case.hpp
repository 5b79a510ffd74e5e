// Made-up inputs of the gated delta rule, rounded to a type.
#pragma once

#include <cmath>

#include "kernels/gated_delta.hpp"
#include "tests/kernels/arrays.hpp"

namespace plumb::test {

using kernels::GatedDeltaShape;

struct DeltaCase {
  GatedDeltaShape shape;
  Numbers query, key, value, beta, log_decay;
};

// Keys and queries of length one, as Gated DeltaNet has them; beta in 0 … 1; decays from none to fast.
inline DeltaCase make_case(Type type, const GatedDeltaShape& shape) {
  const auto steps = static_cast<std::size_t>(shape.sequences * shape.time);
  const auto keys = static_cast<std::size_t>(shape.key_dim);
  const auto unit = [&](unsigned seed) {
    Numbers x = made_up(steps * keys, seed);
    for (std::size_t step = 0; step < steps; ++step) {
      double squares = 0;
      for (std::size_t i = 0; i < keys; ++i) squares += x[step * keys + i] * x[step * keys + i];
      for (std::size_t i = 0; i < keys; ++i) x[step * keys + i] /= std::sqrt(squares);
    }
    return rounded(type, x);
  };
  DeltaCase c = {shape,
                 unit(1),
                 unit(2),
                 rounded(type, made_up(steps * static_cast<std::size_t>(shape.value_dim), 3)),
                 made_up(steps, 4),
                 made_up(steps, 5)};
  for (double& x : c.beta) x = rounded(Type::fp32, (x + 1) / 2);
  for (double& x : c.log_decay) x = rounded(Type::fp32, x < 0 ? -1e-3 : -x);
  return c;
}

// As the reference takes it, from a zero state.
inline kernels::GatedDeltaInput input_of(const DeltaCase& c) {
  return {.query = c.query.data(),
          .key = c.key.data(),
          .value = c.value.data(),
          .beta = c.beta.data(),
          .log_decay = c.log_decay.data()};
}

}  // namespace plumb::test

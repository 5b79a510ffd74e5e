// Made-up inputs of the gated delta rule, rounded to a type.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/gated_delta/gated_delta.hpp"
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

// What must not count as a number, one for each of four sequences: the NaN that CUDA makes, the one that fresh memory
// is filled with, and both infinities.
constexpr std::uint32_t poisons[] = {0x7fffffff, 0xffffffff, 0x7f800000, 0xff800000};
inline void poison(Numbers& of_four_sequences) {
  const std::size_t part = of_four_sequences.size() / 4;
  for (std::size_t i = 0; i < 4; ++i) of_four_sequences[i * part + part / 2] = std::bit_cast<float>(poisons[i]);
}

// How many numbers are finite though the exact ones are not.
inline int hidden_poison(const Numbers& found, const Numbers& exact) {
  int hidden = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) hidden += !std::isfinite(exact[i]) && std::isfinite(found[i]) ? 1 : 0;
  return hidden;
}
inline bool poisoned(const Numbers& numbers) {
  for (const double x : numbers) {
    if (!std::isfinite(x)) return true;
  }
  return false;
}

}  // namespace plumb::test

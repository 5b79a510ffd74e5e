// AdamW's kernel has the bits of its reference, and that those of a formula written out here in fp64, nearly.
#include "kernels/adamw.hpp"

#include <memory>

#include "tests/catch.hpp"
#include "tests/kernels/arrays.hpp"

using namespace plumb::kernels;
using namespace plumb::test;

namespace {

struct State {
  std::vector<float> gradient, weight, first, second;
  std::vector<std::uint16_t> copy;
};

std::vector<float> floats(const Numbers& numbers) { return {numbers.begin(), numbers.end()}; }

State state_of(std::size_t size, unsigned seed) {
  State state = {floats(made_up(size, seed)), floats(made_up(size, seed + 1)), floats(made_up(size, seed + 2, 0.1)),
                 floats(made_up(size, seed + 3, 0.1)), std::vector<std::uint16_t>(size)};
  for (float& x : state.second) x = std::fabs(x);
  return state;
}

AdamWTensor tensor_of(State& s) {
  return {.size = static_cast<std::int64_t>(s.weight.size()),
          .gradient = s.gradient.data(),
          .weight = s.weight.data(),
          .first_moment = s.first.data(),
          .second_moment = s.second.data(),
          .copy = s.copy.data()};
}

constexpr AdamWSettings settings = {.rate = 3e-3, .beta2 = 0.95, .decay = 0.1, .gradient_scale = 0.25, .step = 3};

}  // namespace

TEST_CASE("AdamW over many tensors has the bits of its reference") {
  need_device();
  // 61 tensors are two launches; sizes around a pack and a block's chunk, and none.
  std::vector<std::size_t> sizes = {0, 1, 3, 4, 5, 4095, 4096, 4097, 10000};
  while (sizes.size() < 61) sizes.push_back(sizes.size());
  std::vector<State> expected;
  std::vector<AdamWTensor> by_reference;
  for (const std::size_t size : sizes) expected.push_back(state_of(size, static_cast<unsigned>(size)));
  const std::vector<State> before = expected;
  for (State& s : expected) by_reference.push_back(tensor_of(s));
  for (const Type type : {Type::bf16, Type::fp16}) {
    for (std::size_t i = 0; i < before.size(); ++i) {
      expected[i].weight = before[i].weight;  // keeps its address
      expected[i].first = before[i].first;
      expected[i].second = before[i].second;
    }
    adamw_reference(settings, type, by_reference);
    each_way([&] {
      std::vector<std::unique_ptr<Array>> arrays;
      const auto put = [&](Type of, const std::vector<float>& values) -> Array& {
        arrays.push_back(std::make_unique<Array>(of, Numbers(values.begin(), values.end())));
        return *arrays.back();
      };
      std::vector<AdamWTensor> tensors;
      for (const State& s : before) {
        tensors.push_back({.size = static_cast<std::int64_t>(s.weight.size()),
                           .gradient = put(Type::fp32, s.gradient).floats(),
                           .weight = put(Type::fp32, s.weight).floats(),
                           .first_moment = put(Type::fp32, s.first).floats(),
                           .second_moment = put(Type::fp32, s.second).floats(),
                           .copy = put(type, s.weight).data()});
      }
      adamw(settings, type, tensors, {});
      const auto same = [](const Array& found, const auto& values) {
        const Bytes raw = found.raw();
        const auto* const begin = reinterpret_cast<const unsigned char*>(values.data());
        return raw == Bytes(begin, begin + values.size() * sizeof(values[0]));
      };
      for (std::size_t i = 0; i < before.size(); ++i) {
        INFO("tensor of " << sizes[i]);
        CHECK(same(*arrays[5 * i + 1], expected[i].weight));
        CHECK(same(*arrays[5 * i + 2], expected[i].first));
        CHECK(same(*arrays[5 * i + 3], expected[i].second));
        CHECK(same(*arrays[5 * i + 4], expected[i].copy));
      }
    });
  }
}

TEST_CASE("AdamW's reference is algorithm 2 of decoupled weight decay") {
  State s = state_of(50, 7);
  const State before = s;
  const AdamWTensor tensor = tensor_of(s);
  adamw_reference(settings, Type::bf16, {&tensor, 1});
  for (std::size_t i = 0; i < 50; ++i) {
    const double g = 0.25 * before.gradient[i];
    const double m = 0.9 * before.first[i] + 0.1 * g;
    const double v = 0.95 * before.second[i] + 0.05 * g * g;
    const double hat_m = m / (1 - std::pow(0.9, 3));
    const double hat_v = v / (1 - std::pow(0.95, 3));
    const double w = before.weight[i] * (1 - 3e-3 * 0.1) - 3e-3 * hat_m / (std::sqrt(hat_v) + 1e-8);
    CHECK(s.weight[i] == Approx(w).epsilon(1e-5));
    CHECK(from_bf16_bits(s.copy[i]) == Approx(w).epsilon(4e-3));
  }
}

TEST_CASE("AdamW refuses a step before the first") {
  need_device();
  AdamWSettings none = settings;
  none.step = 0;
  CHECK_THROWS_AS(adamw(none, Type::fp32, {}, {}), std::invalid_argument);
}

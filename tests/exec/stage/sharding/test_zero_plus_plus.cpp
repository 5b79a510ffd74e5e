// What runs of ZeRO++ (arXiv 2306.10209): a second copy of the weights, which changes no bit, and weights that travel
// as int8, against one device that has what they become.
#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "common/plan/plan_costs.hpp"
#include "common/planner/planner.hpp"
#include "tests/exec/stage/sharding/sharded_runs.hpp"
#include "tests/exec/tiny_plan.hpp"

using namespace plumb;
using namespace plumb::exec;
using namespace plumb::exec::test;

namespace {

Plan with(Plan plan, int second, bool quantized = false, int gradients = 0) {
  plan.layout.data.secondary_shard = second;
  plan.layout.data.quantized_weights = quantized;
  plan.layout.data.quantized_gradients = gradients;
  require_consistent(plan.layout);
  return plan;
}

Plan resharding(const Wanted& wanted, bool beside = true) {
  return sharded(training_plan(wanted), {Sharding::zero3, true, true, beside});
}

// Elements that others have, and bytes of these as int8: of each weight's parts a byte each, and 4 for 128 of them.
std::int64_t quantised_of_others(std::int64_t elements, int ranks, int position) {
  std::int64_t bytes = 0;
  for (int other = 0; other < ranks; ++other) {
    if (other == position) continue;
    const std::int64_t part = own_elements(elements, ranks, other);
    bytes += part + (part + 127) / 128 * 4;
  }
  return bytes;
}

template <class OfWeight>
std::int64_t sum_over_weights(const Plan& plan, const OfWeight& of_weight) {
  std::int64_t sum = 0;
  for (int block = 0; block <= head_block(plan.model); ++block) {
    for (const Parameter& parameter : block_parameters(plan.model, block)) sum += of_weight(elements_of(parameter));
  }
  return sum;
}

}  // namespace

TEST_CASE("a second copy of the weights changes no bit, in any precision, with a tied table and uneven parts") {
  const ElementType precision = GENERATE(ElementType::fp32, ElementType::bf16);
  const bool beside = GENERATE(false, true);
  const Plan plan = resharding({.model = gpt2(1, true), .microbatches = 2, .precision = precision, .data = 4}, beside);
  const Outcome alike = train(plan, 4);
  const Outcome second = train(with(plan, 2), 4);
  require_same_bits(second, alike);
  require_passed(with(plan, 2), second);
}

TEST_CASE("so does none in pipelines, with tensor groups, and where forwards are made again, on every transport") {
  std::vector<Wanted> all{{.model = gpt2(2, true), .schedule = "1f1b", .ranks = 2, .data = 4},
                          {.model = llama(2), .schedule = "zb-h1", .ranks = 2, .data = 4},
                          {.model = hybrid(), .microbatches = 2, .recompute = true, .data = 4}};
  all.push_back({.model = llama(1), .microbatches = 2, .data = 4, .tensor = 2});
  all.push_back({.model = llama(2), .schedule = "seq-1f1b", .ranks = 2, .microbatches = 2, .slices = 2, .data = 4});
  for (const Wanted& wanted : all) {
    const Plan plan = resharding(wanted);
    INFO(text(plan));
    const Outcome alike = train(plan, 2);
    require_same_bits(train(with(plan, 2), 2), alike);
  }
  const Plan plan = resharding({.model = llama(1), .microbatches = 2, .data = 4});
  require_same_bits(train(with(plan, 2), 2, transport_kinds().back()), train(plan, 2));
}

// The check's own sums are those of the ranks, so that the weights of the last step have the run's bits; its gradients
// are compared with fp64's, of the same rounded weights.
TEST_CASE("weights that travel as int8 train as on one device that computes with what they become") {
  const int second = GENERATE(0, 2);
  const ElementType precision = GENERATE(ElementType::fp32, ElementType::bf16);
  const bool pipeline = GENERATE(false, true);
  Wanted wanted{.model = gpt2(2, true), .microbatches = 2, .precision = precision, .data = 4};
  if (pipeline) wanted = {.model = llama(2), .schedule = "zb-h1", .ranks = 2, .precision = precision, .data = 4};
  const Plan plan = with(resharding(wanted), second, true);
  INFO(text(plan));
  const Outcome run = train(plan, 3);
  require_passed(plan, run);
  // Against weights that were not rounded it fails: the check sees the difference.
  Trained trained = run.logs.checked;
  trained.losses = run.losses;
  CHECK_FALSE(check_against_shared_reference(with(plan, second), trained).passed);
  if (second > 0) require_same_bits(run, train(with(plan, 0, true), 3));
}

// One device makes the same way of the same gradients, so that all steps have the run's bits.
TEST_CASE("gradients that travel as int4 are summed as one device rounds and sums them") {
  const int inside = GENERATE(1, 2, 4);
  const bool beside = GENERATE(false, true);
  const Plan plain = resharding({.model = gpt2(1, true), .microbatches = 2, .data = 4}, beside);
  const Plan plan = with(plain, 0, false, inside);
  INFO(text(plan));
  const Outcome run = train(plan, 3);
  require_passed(plan, run);
  Trained trained = run.logs.checked;
  trained.losses = run.losses;
  const CheckResult same = check_against_shared_reference(plan, trained);
  CHECK(same.worst_error_ratio <= 1);
  CHECK_FALSE(check_against_shared_reference(plain, trained).passed);
  // Of a step of int4 at most half is lost on each way: of the largest of a block a fourteenth.
  const Outcome exact = train(plain, 1);
  const Outcome once = train(plan, 1);
  for (const auto& [name, values] : once.logs.checked.gradients) {
    CAPTURE(name);
    const std::vector<float>& expected = exact.logs.checked.gradients.at(name);
    double error = 0;
    double norm = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      error += std::pow(values[i] - expected[i], 2);
      norm += std::pow(expected[i], 2);
    }
    CHECK(error > 0);
    CHECK(std::sqrt(error) < 0.5 * std::sqrt(norm));
  }
}

TEST_CASE("all of ZeRO++ trains in pipelines and on every transport as one device does that rounds alike") {
  const Plan plan = with(resharding({.model = llama(2), .schedule = "zb-h1", .ranks = 2, .data = 4}), 2, true, 2);
  const Outcome run = train(plan, 2);
  require_passed(plan, run);
  const Plan alone = with(resharding({.model = llama(1), .microbatches = 2, .data = 4}), 2, true, 2);
  require_same_bits(train(alone, 2, transport_kinds().back()), train(alone, 2));
}

TEST_CASE("the loss of a text goes down with all of ZeRO++, nearly as far as without") {
  const Plan plain = resharding({.model = llama(1), .microbatches = 2, .data = 4});
  const auto fall = [](const Plan& plan) {
    const std::vector<double> losses = train(plan, 20).losses;
    return losses.front() - losses.back();
  };
  const double without = fall(plain);
  REQUIRE(without > 0);
  CHECK(fall(with(plain, 2, true, 2)) > 0.8 * without);
}

TEST_CASE("ranks receive what the closed forms of the second copy and of int8 say, in bytes") {
  constexpr int ranks = 4;
  constexpr int microbatches = 3;
  const int second = GENERATE(0, 2);
  const bool quantized = GENERATE(false, true);
  const int gradients = GENERATE(0, 2);
  const bool recompute = GENERATE(false, true);
  const Plan plan =
      with(resharding({.model = llama(1), .microbatches = microbatches, .recompute = recompute, .data = ranks}), second,
           quantized, gradients);
  INFO(text(plan));
  const Outcome run = train(plan, 1);
  for (int rank = 0; rank < ranks; ++rank) {
    const std::int64_t expected = sum_over_weights(plan, [&](std::int64_t all) {
      const std::int64_t own = own_elements(all, ranks, rank);
      const std::int64_t in_forward = quantized ? quantised_of_others(all, ranks, rank) : 4 * (all - own);
      const std::int64_t again = second > 0 ? 4 * (all - own_elements(all, second, rank % second)) : in_forward;
      std::int64_t sums = (ranks - 1) * own * 4;
      if (gradients > 0) {  // of its neighbour both parts that it adds up, of the one across its own
        const auto int4 = [&](int part) {
          const std::int64_t elements = own_elements(all, ranks, part);
          return (elements + 1) / 2 + (elements + 127) / 128 * 4;
        };
        sums = int4(rank % 2) + int4(2 + rank % 2) + int4(rank);
      }
      return microbatches * (in_forward + (recompute ? 2 : 1) * again + sums);
    });
    const RankStep& step = run.logs.ranks.front()[static_cast<std::size_t>(rank)].steps.front();
    CAPTURE(rank);
    CHECK(step.received_in_data == Bytes{expected});
    CHECK(step.received_bytes == step.received_in_data);
  }
}

// Of widths of 17, parts differ by an element, of which a byte holds two: predicted is what ranks receive on average.
// Of equal parts each rank receives that.
TEST_CASE("all of ZeRO++ brings ranks what is predicted, to the byte, of a tied table or two, of equal parts or not") {
  const auto [data, sharding] =
      GENERATE(table<int, const char*>({{2, "zero3, quantized_weights: true, quantized_gradients: 2"},
                                        {4, "zero3, quantized_weights: true, quantized_gradients: 4"},
                                        {4, "zero++, secondary_shard: 2"}}));
  const bool tied = GENERATE(false, true);
  const bool uneven = GENERATE(false, true);
  const std::string lora = GENERATE("", ", lora: {rank: 2}");
  CAPTURE(data, sharding, tied, uneven, lora);
  Plan plan = tiny_plan({.ranks = 1,
                         .microbatches = 2,
                         .tied = tied,
                         .more_of_training = lora,
                         .data = data,
                         .more_of_data = std::string(", sharding: ") + sharding,
                         .shallow = true,
                         .heads = 4});
  plan.model.vocabulary = uneven ? 257 : 256;
  plan.model.hidden = uneven ? 17 : 16;
  plan.boundary = plan_boundary(plan);
  plan.costs = predicted_costs(plan);
  const Outcome run = train(plan, 1);
  const Bytes predicted = predict_by_path(plan).ranks.front().by_axis.value().data;
  std::vector<Bytes> received;
  for (const RankLog& log : run.logs.ranks.front()) received.push_back(log.steps.back().received_in_data);
  REQUIRE(received.size() == static_cast<std::size_t>(data));
  if (!uneven) CHECK(received == std::vector<Bytes>(received.size(), predicted));
  const Bytes all = std::accumulate(received.begin(), received.end(), Bytes{});
  CHECK(predicted.value == std::llround(static_cast<double>(all.value) / data));
}

TEST_CASE("a rank holds its part of the second copy all the time, and nothing more of it") {
  constexpr int ranks = 4;
  const Plan plan = resharding({.model = llama(16), .microbatches = 2, .data = ranks});
  const Outcome alone = train(plan, 2);
  const Outcome second = train(with(plan, 2), 2);
  const std::int64_t copy = sum_over_weights(plan, [](std::int64_t all) { return all / 2 * 4; });  // two divides all
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const RankStep& without = alone.logs.ranks.front()[rank].steps.back();
    const RankStep& with_copy = second.logs.ranks.front()[rank].steps.back();
    CHECK(with_copy.held.back().value - without.held.back().value == copy);
    CHECK(std::abs(with_copy.peak_bytes.value - without.peak_bytes.value - copy) <= copy / 20);
  }
}

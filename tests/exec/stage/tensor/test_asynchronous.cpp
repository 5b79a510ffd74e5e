// Asynchronous 1d tensor groups, whose gathers and scatters of tokens go in pieces beside products: against one device,
// against the moves of their placed blocks, and against the model that the seed gives.
#include <cmath>

#include "tests/catch.hpp"
#include "tests/exec/stage/models.hpp"
#include "tests/exec/stage/tensor/tensor_runs.hpp"

using namespace plumb;
using namespace plumb::exec;
using test::describe_case;
using test::of_four;
using test::require_passed;
using test::require_same_bits_over_gloo;
using test::Wanted;
using test::whole;

namespace {

Wanted wanted_of(const Model& model, int tensor, const char* schedule = "1f1b", int ranks = 1) {
  return {.model = model,
          .schedule = schedule,
          .ranks = ranks,
          .microbatches = ranks == 1 ? 2 : 4,
          .tensor = tensor,
          .sequence_parallel = true,
          .asynchronous = true};
}

double norm_of(const NamedGradients& gradients) {
  double squares = 0;
  for (const auto& [name, values] : gradients) {
    for (const float value : values) squares += static_cast<double>(value) * value;
  }
  return std::sqrt(squares);
}

// Alone and in two stages, in both precisions.
void require_trains(const Model& model) {
  for (const int tensor : {2, 4}) {
    for (const auto& [schedule, ranks] :
         std::vector<std::pair<const char*, int>>{{"1f1b", 1}, {"zb-h1", 1}, {"1f1b", 2}, {"zb-h1", 2}}) {
      for (const ElementType precision : {ElementType::fp32, ElementType::bf16}) {
        Wanted wanted = wanted_of(model, tensor, schedule, ranks);
        wanted.precision = precision;
        const Plan plan = test::training_plan(wanted);
        INFO(describe_case(plan));
        require_passed(plan, test::train(plan, 2));
      }
    }
  }
}

}  // namespace

// Biases, LayerNorm, a tied table; grouped queries, which several ranks share; SwiGLU.
TEST_CASE("asynchronous groups train dense models like one device, with the bytes of their moves") {
  require_trains(test::gpt2(2, true));
  require_trains(test::llama(2));
}

// One gather for attention and MLP; gathers that experts and products of shared ones read; six products of a
// recurrence.
TEST_CASE("asynchronous groups train parallel layers, experts and recurrences like one device") {
  for (const Model& model : {test::gptj(2), of_four(test::mixtral(2)), of_four(test::hybrid())}) {
    for (const int tensor : {2, 4}) {
      Wanted wanted = wanted_of(model, tensor, "zb-h1", 2);
      wanted.precision = tensor == 2 ? ElementType::fp32 : ElementType::bf16;
      const Plan plan = test::training_plan(wanted);
      INFO(describe_case(plan));
      require_passed(plan, test::train(plan, 2));
    }
  }
}

TEST_CASE("recomputed stages, data parallelism, chunks and single sequences are an asynchronous group's, too") {
  const auto require = [](const Wanted& wanted) {
    const Plan plan = test::training_plan(wanted);
    INFO(describe_case(plan));
    require_passed(plan, test::train(plan, 2));
  };
  Wanted redone = wanted_of(of_four(test::hybrid()), 2, "1f1b", 2);
  redone.recompute = true;
  require(redone);
  Wanted replicas = wanted_of(test::gpt2(2, true), 2, "zb-h1", 2);
  replicas.data = 2;
  require(replicas);
  Wanted chunks = wanted_of(of_four(test::gpt2(4, true)), 2, "interleaved-1f1b", 2);
  chunks.chunks = 2;
  require(chunks);
  Wanted single = wanted_of(test::llama(2), 4);
  single.microbatch = 1;
  require(single);
}

TEST_CASE("the model, its first loss and its gradient's norm in an asynchronous group are those of one device") {
  for (const Model& model : {test::gpt2(2, true), of_four(test::llama(2))}) {
    Plan alone = test::training_plan(wanted_of(model, 2));
    alone.layout.tensor = {};
    const NamedGradients weights = kept_weights(make_stages(alone, 0, {}));
    const test::TrainingRun one = test::train(alone, 1);
    const double loss = one.losses.front();
    for (const int tensor : {2, 4}) {
      const Plan plan = test::training_plan(wanted_of(model, tensor));
      INFO(describe_case(plan));
      const test::TrainingRun run = test::train(plan, 1);
      CHECK(whole(plan, run.before) == weights);
      CHECK(std::abs(run.losses.front() - loss) <= 1e-6 * loss);
      CHECK(norm_of(whole(plan, run.by_rank)) == Approx(norm_of(one.gradients)).epsilon(1e-5));
    }
  }
}

TEST_CASE("an asynchronous group gives the same bits over gloo, and each time") {
  for (const Model& model : {of_four(test::gpt2(2, true)), of_four(test::hybrid())}) {
    for (const auto& [schedule, ranks, tensor] : std::vector<std::tuple<const char*, int, int>>{
             {"1f1b", 1, 2}, {"1f1b", 1, 4}, {"1f1b", 2, 2}, {"zb-h1", 2, 2}}) {
      Wanted wanted = wanted_of(model, tensor, schedule, ranks);
      wanted.precision = ElementType::bf16;
      const Plan plan = test::training_plan(wanted);
      INFO(describe_case(plan));
      const test::TrainingRun first = require_same_bits_over_gloo(plan);
      CHECK(test::train(plan, 2).by_rank == first.by_rank);
    }
  }
}

// What a sum over all tokens lacks where one piece of four is left out of it is about a quarter.
TEST_CASE("the check of an asynchronous group's run notices a gradient that is a quarter short") {
  const Plan plan = test::training_plan(wanted_of(of_four(test::gpt2(2, true)), 4));
  const test::TrainingRun run = test::train(plan, 1);
  REQUIRE(test::checked(plan, run).passed);
  for (const std::string name : {"layers.0.attention.q.weight", "layers.1.mlp.up.weight", "layers.1.mlp.up.bias"}) {
    test::TrainingRun changed = run;
    for (NamedGradients& of_rank : changed.by_rank) {
      for (float& value : of_rank.at(name)) value *= 0.75F;
    }
    const CheckResult result = test::checked(plan, changed);
    INFO(name << ": " << result.worst_tensor << " " << result.worst_error_ratio);
    CHECK_FALSE(result.passed);
    CHECK_THAT(result.problem, ContainsSubstring(name));
  }
}

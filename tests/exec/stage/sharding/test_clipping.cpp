// Gradients that are clipped: the norm is that of the whole gradient, whoever holds which part, and the same bits for
// all.
#include <cmath>
#include <tuple>
#include <vector>

#include "tests/catch.hpp"
#include "tests/exec/check/references.hpp"
#include "tests/exec/commands/sessions.hpp"
#include "tests/exec/stage/models.hpp"
#include "tests/exec/stage/training_plan.hpp"
#include "tests/exec/transport/transports.hpp"

using namespace plumb;
using namespace plumb::exec;
using test::Wanted;

namespace {

constexpr double far_below = 0.01;  // the norm of each of these models' gradients

struct Clipped {
  SessionLogs logs;
  std::vector<double> losses;
  std::vector<double> norms;  // of each step, on rank 0
};

Plan clipped(const Wanted& wanted, double limit = far_below) {
  Plan plan = test::training_plan(wanted);
  plan.training.gradient_clipping = limit;
  return plan;
}

Clipped train_clipped(const Plan& plan, int steps, const TransportKind& kind = transport_kinds().front()) {
  const PreparedPlan prepared{plan, lowered_schedule(plan)};
  SessionOptions options = test::checked_steps(kind, steps);
  options.gathers_weights = true;
  Clipped made{.logs = test::train_session(kind, {prepared}, options), .losses = {}, .norms = {}};
  made.losses = losses_of(prepared, made.logs.ranks.front());
  for (const RankLog& log : made.logs.ranks.front()) {
    for (std::size_t step = 0; step < log.steps.size(); ++step) {
      if (log.rank == 0) made.norms.push_back(log.steps[step].gradient_norm);
      CHECK(log.steps[step].gradient_norm == made.norms[step]);
    }
  }
  return made;
}

double norm_of(const NamedGradients& gradients) {
  double squares = 0;
  for (const auto& [name, values] : gradients) {
    for (const float value : values) squares += static_cast<double>(value) * value;
  }
  return std::sqrt(squares);
}

CheckResult checked(const Plan& plan, const Clipped& run) {
  Trained trained = run.logs.checked;
  trained.losses = run.losses;
  return test::check_against_shared_reference(plan, trained);
}

}  // namespace

TEST_CASE("a longer gradient is scaled down to the limit, a shorter one stays as it is") {
  const Wanted wanted{.model = test::gpt2(2, true), .schedule = "zb-h1", .ranks = 2, .microbatches = 2};
  const Clipped never = train_clipped(clipped(wanted, 0), 1);
  const double norm = norm_of(never.logs.checked.gradients);
  REQUIRE(norm > far_below);
  const Clipped longer = train_clipped(clipped(wanted), 1);
  CHECK(longer.norms.front() == Approx(norm).epsilon(1e-12));
  const float scale = static_cast<float>(far_below / (norm + 1e-6));
  for (const auto& [name, values] : never.logs.checked.gradients) {
    const std::vector<float>& scaled = longer.logs.checked.gradients.at(name);
    REQUIRE(scaled.size() == values.size());
    for (std::size_t i = 0; i < values.size(); ++i) REQUIRE(scaled[i] == values[i] * scale);
  }
  const Clipped shorter = train_clipped(clipped(wanted, 2 * norm), 1);
  CHECK(shorter.norms == longer.norms);
  CHECK(shorter.logs.checked.gradients == never.logs.checked.gradients);
  CHECK(norm_of(longer.logs.checked.gradients) == Approx(far_below).epsilon(1e-4));
}

TEST_CASE("clipped pipelines train with the bits of one device") {
  const std::string schedule = GENERATE("1f1b", "zb-h1", "interleaved-1f1b", "dualpipe");
  const Plan plan = clipped({.model = test::gpt2(4, true),
                             .schedule = schedule,
                             .ranks = 2,
                             .chunks = schedule == "interleaved-1f1b" ? 2 : 1});
  CAPTURE(schedule);
  const Clipped run = train_clipped(plan, 3);
  const CheckResult result = checked(plan, run);
  INFO(result.problem);
  CHECK(result.bitwise_equal);
  CHECK(
      run.losses[2] !=
      train_clipped(
          clipped({.model = test::gpt2(4, true), .schedule = schedule, .ranks = 2, .chunks = plan.schedule.chunks}, 0),
          3)
          .losses[2]);
}

TEST_CASE("clipping has the same bits however data-parallel ranks share out states, gradients and weights") {
  const Plan plain = clipped({.model = test::gpt2(2, true), .ranks = 2, .microbatches = 2, .data = 4});
  const Clipped alike = train_clipped(plain, 3);
  CHECK(checked(plain, alike).passed);
  for (const Sharding sharding : {Sharding::zero1, Sharding::fsdp, Sharding::hsdp}) {
    Plan plan = plain;
    plan.layout.data.sharding = sharding;
    if (sharding == Sharding::hsdp) plan.layout.data.shard = plan.layout.data.replicate = 2;
    plan.layout.data.reshard_after_forward = sharding == Sharding::hsdp;
    INFO(describe(plan.layout));
    const Clipped run = train_clipped(plan, 3);
    CHECK(run.norms == alike.norms);
    CHECK(run.losses == alike.losses);
    CHECK(run.logs.weights == alike.logs.weights);
    // What ranks tell each other of the norm is no payload.
    plan.training.gradient_clipping = 0;
    CHECK(run.logs.ranks.front()[0].steps[0].received_bytes ==
          train_clipped(plan, 1).logs.ranks.front()[0].steps[0].received_bytes);
  }
}

// Norms and biases that both ranks hold, key-value heads that they share, a table on both ends of the pipeline: each
// counts once.
TEST_CASE("gradients replicated over a tensor group count once") {
  for (const Model& model : {test::gpt2(2, true), test::llama(2)}) {
    Wanted wanted{.model = model, .microbatches = 2};
    const double norm = train_clipped(clipped(wanted), 1).norms.front();
    wanted.ranks = 2;
    wanted.tensor = 2;
    for (const bool sequence_parallel : {false, true}) {
      wanted.sequence_parallel = sequence_parallel;
      const Plan plan = clipped(wanted);
      INFO(plan.name << (sequence_parallel ? ", sequence-parallel" : ""));
      const Clipped run = train_clipped(plan, 2);
      CHECK(run.norms.front() == Approx(norm).epsilon(1e-5));
      CHECK(checked(plan, run).passed);
    }
  }
  Model one_head = test::llama(1);
  std::get<SoftmaxAttention>(one_head.layers.front().mixer).kv_heads = 1;
  const double norm = train_clipped(clipped({.model = one_head, .microbatches = 2}), 1).norms.front();
  const Clipped run = train_clipped(clipped({.model = one_head, .microbatches = 2, .tensor = 2}), 1);
  CHECK(run.norms.front() == Approx(norm).epsilon(1e-5));
}

// Each has rows of the tables that no other has; of a tied one the embedding's part has the gradient of both ends.
TEST_CASE("the norm of ranks that share out a vocabulary is that of one device") {
  for (const Model& model : {test::gpt2(4, true), test::llama(4)}) {
    Wanted wanted{.model = model, .microbatches = 4};
    const double norm = train_clipped(clipped(wanted), 1).norms.front();
    for (const int barriers : {1, 2}) {
      for (const auto& [schedule, ranks, tensor, data] : std::vector<std::tuple<const char*, int, int, int>>{
               {"1f1b", 2, 1, 1}, {"zb-h1", 4, 1, 1}, {"1f1b", 2, 1, 2}, {"1f1b", 2, 2, 1}, {"zb-h1", 2, 2, 2}}) {
        wanted.schedule = schedule;
        wanted.ranks = ranks;
        wanted.tensor = tensor;
        wanted.sequence_parallel = tensor > 1 && barriers == 1;
        wanted.data = data;
        wanted.microbatches = 4 / data;
        wanted.vocabulary_barriers = barriers;
        Plan plan = clipped(wanted);
        INFO(plan.name << ", " << describe(plan.layout));
        const Clipped run = train_clipped(plan, 2);
        CHECK(run.norms.front() == Approx(norm).epsilon(1e-5));
        CHECK(checked(plan, run).passed);
        if (data == 1) continue;
        plan.layout.data.sharding = Sharding::zero1;
        const Clipped sharded = train_clipped(plan, 2);
        CHECK(sharded.norms == run.norms);
        CHECK(sharded.losses == run.losses);
        CHECK(sharded.logs.weights == run.logs.weights);
      }
    }
  }
}

TEST_CASE("gradients replicated over a grid count once") {
  for (const Model& model : {test::gpt2(2, false), test::of_four(test::llama(2))}) {
    Wanted wanted{.model = model, .microbatches = 2, .microbatch = 4};
    const double norm = train_clipped(clipped(wanted), 1).norms.front();
    wanted.ranks = 2;
    for (const TensorLayout& tensor : {TensorLayout{.degree = 4, .kind = TensorKind::two_d},
                                       TensorLayout{.degree = 8, .kind = TensorKind::two_and_half_d, .depth = 2},
                                       TensorLayout{.degree = 8, .kind = TensorKind::three_d}}) {
      wanted.tensor = tensor.degree;
      wanted.kind = tensor.kind;
      wanted.depth = tensor.depth;
      const Plan plan = clipped(wanted);
      INFO(plan.name << ", " << describe(plan.layout));
      const Clipped run = train_clipped(plan, 2);
      CHECK(run.norms.front() == Approx(norm).epsilon(1e-5));
      CHECK(checked(plan, run).passed);
    }
  }
}

TEST_CASE("processes' messages carry the same norm") {
  const Plan plan = clipped({.model = test::llama(2), .ranks = 2, .microbatches = 2, .data = 2});
  CHECK(train_clipped(plan, 2, transport_kinds().back()).norms == train_clipped(plan, 2).norms);
}

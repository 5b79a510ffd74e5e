// Pipelines side by side, each on its share of the batch: against one device, and each copy against the others.
#include <cstring>

#include "exec/check/check.hpp"
#include "tests/catch.hpp"
#include "tests/common/schedule/shapes.hpp"
#include "tests/exec/check/references.hpp"
#include "tests/exec/stage/models.hpp"
#include "tests/exec/stage/pipelines.hpp"
#include "tests/exec/transport/transports.hpp"

using namespace plumb;
using namespace plumb::exec;
using test::Wanted;

namespace {

// Of what several ranks hold, all have the same bits.
void require_equal_copies(const std::vector<NamedGradients>& by_rank) {
  NamedGradients first;
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    for (const auto& [name, values] : by_rank[rank]) {
      const auto [held, added] = first.try_emplace(name, values);
      INFO("rank " << rank << ": " << name);
      REQUIRE(held->second.size() == values.size());
      REQUIRE(std::memcmp(held->second.data(), values.data(), values.size() * sizeof(float)) == 0);
    }
  }
}

void require_passed(const Plan& plan, const test::TrainingRun& run) {
  const CheckResult result = test::check_against_shared_reference(plan, run.losses, run.gradients);
  INFO(result.problem << " (" << result.worst_tensor << ": " << result.worst_error_ratio << ")");
  CHECK(result.passed);
  require_equal_copies(run.by_rank);
  require_equal_copies(run.weights);
}

struct MeshDegrees {
  const char* schedule;
  int ranks;
  int data;
  int microbatches = 4;
};
// One rank works off one microbatch after the other: two say what more would. Of two ranks the shapes of two
// microbatches are held against the same device as one rank's; longer ones are those of the cases below.
constexpr std::array shapes{MeshDegrees{"1f1b", 1, 2, 2},  MeshDegrees{"zb-h1", 1, 2, 2},
                            MeshDegrees{"1f1b", 1, 4, 2},  MeshDegrees{"1f1b", 2, 2, 2},
                            MeshDegrees{"zb-h1", 2, 2, 2}, MeshDegrees{"interleaved-1f1b", 2, 2}};

Plan plan_of(const Model& model, const MeshDegrees& shape, ElementType precision) {
  return test::training_plan({.model = model,
                              .schedule = shape.schedule,
                              .ranks = shape.ranks,
                              .chunks = fewest_chunks(shape.schedule),
                              .microbatches = shape.microbatches,
                              .precision = precision,
                              .data = shape.data});
}

}  // namespace

TEST_CASE("data-parallel pipelines train like one device, in both precisions, over both transports") {
  const std::size_t number = GENERATE(range(std::size_t{0}, test::families.size()));
  const test::Family family = test::families.at(number);
  // By turns, with another first for the next family: each shape trains in both precisions, and so does each family.
  std::size_t turn = number;
  for (const MeshDegrees& shape : shapes) {
    const ElementType precision = turn++ % 2 == 0 ? ElementType::fp32 : ElementType::bf16;
    const Plan plan = plan_of(family(test::fewest_layers(shape.schedule)), shape, precision);
    INFO(plan.name << ", " << describe(plan.layout));
    const test::TrainingRun first = test::train(plan, 2);
    require_passed(plan, first);
    // A sum's bits do not depend on the transport: test_collectives. Here once for all that is sent around it: in all
    // shapes beside tables that two stages share and by layers of every kind, of the other models in one.
    const bool in_all = plan.model.tied_embeddings || plan.model.name == "hybrid";
    if (!in_all && &shape != &shapes.back()) continue;
    const test::TrainingRun over_gloo = test::train(plan, 2, transport_kinds().back().make);
    CHECK(over_gloo.losses == first.losses);
    CHECK(over_gloo.by_rank == first.by_rank);
    CHECK(over_gloo.weights == first.weights);
  }
}

TEST_CASE("sums beside the last backward, in buckets of any size, have the bits of one sum behind it") {
  std::vector<Wanted> all;
  for (const char* const schedule : {"1f1b", "zb-h1", "interleaved-1f1b"}) {
    const int chunks = fewest_chunks(schedule);
    for (const Model& model : {test::gpt2(test::fewest_layers(schedule), true), test::hybrid()}) {
      all.push_back({.model = model, .schedule = schedule, .ranks = 2, .chunks = chunks, .microbatches = 4, .data = 2});
    }
  }
  // Gradients that ranks of a tensor group have summands of, and tables that two stages share, follow behind.
  all.push_back({.model = test::gpt2(2, true), .schedule = "1f1b", .ranks = 1, .microbatches = 4, .data = 4});
  Wanted divided{.model = test::llama(2), .schedule = "zb-h1", .ranks = 2, .microbatches = 4, .data = 2};
  divided.tensor = 2;
  divided.sequence_parallel = true;
  all.push_back(divided);
  for (const Wanted& wanted : all) {
    Plan plan = test::training_plan(wanted);
    INFO(plan.name << ", " << describe(plan.layout));
    const test::TrainingRun behind = test::train(plan, 2);
    plan.software.data_overlap = true;
    for (const auto& [bytes, first_only] :
         std::vector<std::pair<std::int64_t, bool>>{{1, false}, {5000, true}, {25 << 20, false}}) {
      plan.software.data_bucket = {.bytes = {bytes}, .first_stage_only = first_only};
      CAPTURE(bytes);
      const bool by_gloo = bytes == 5000;
      const test::TrainingRun beside =
          by_gloo ? test::train(plan, 2, transport_kinds().back().make) : test::train(plan, 2);
      CHECK(beside.losses == behind.losses);
      CHECK(beside.by_rank == behind.by_rank);
      CHECK(beside.weights == behind.weights);
    }
  }
}

TEST_CASE("copies keep the same bits over ten steps, and the last still passes") {
  for (const Model& model : {test::gpt2(2, true), test::hybrid()}) {
    const Plan plan = plan_of(model, {"1f1b", 2, 2}, ElementType::bf16);
    INFO(plan.name);
    require_passed(plan, test::train(plan, 10));
  }
}

// fp32 losses of some microbatches add up without rounding in fp64, whatever the order; 2 and 4 divide them exactly.
TEST_CASE("the first step's loss has the same bits at every degree") {
  const auto first_loss = [](int ranks, int data) {
    return test::train(test::training_plan({.model = test::mixtral(4),
                                            .schedule = "1f1b",
                                            .ranks = ranks,
                                            .microbatches = 8 / data,
                                            .data = data}),
                       1)
        .losses.front();
  };
  const double alone = first_loss(1, 1);
  for (const auto& [ranks, data] : std::vector<std::pair<int, int>>{{1, 2}, {1, 4}, {1, 8}, {2, 2}, {2, 4}, {4, 2}}) {
    CAPTURE(ranks, data);
    CHECK(first_loss(ranks, data) == alone);
  }
}

TEST_CASE("it does not matter how the mesh is nested") {
  Plan plan = plan_of(test::gpt2(4, true), {"interleaved-1f1b", 2, 4}, ElementType::fp32);
  const test::TrainingRun inside = test::train(plan, 2);
  plan.layout.order = {MeshAxis::pipeline, MeshAxis::tensor, MeshAxis::context, MeshAxis::expert, MeshAxis::data};
  const test::TrainingRun outside = test::train(plan, 2);
  CHECK(inside.losses == outside.losses);
  CHECK(inside.gradients == outside.gradients);
  require_passed(plan, outside);
}

TEST_CASE("schedules of every other kind have lanes, too") {
  for (const auto& [schedule, chunks] : std::vector<std::pair<const char*, int>>{
           {"gpipe", 1}, {"bpipe", 1}, {"zb-v", 2}, {"hanayo", 2}, {"interleaved-zb", 2}, {"breadth-first", 2}}) {
    const Plan plan = test::training_plan({.model = test::gpt2(4, true),
                                           .schedule = schedule,
                                           .ranks = 2,
                                           .chunks = chunks,
                                           .microbatches = 4,
                                           .data = 2});
    INFO(schedule);
    require_passed(plan, test::train(plan, 2));
  }
  Wanted sliced{.model = test::llama(4), .schedule = "seq-1f1b", .ranks = 2, .microbatches = 4, .slices = 2, .data = 2};
  const Plan plan = test::training_plan(sliced);
  require_passed(plan, test::train(plan, 2));
}

TEST_CASE("the check of data-parallel ranks fails for a lost share, a wrong scale and a wrong loss") {
  const Plan plan = plan_of(test::llama(2), {"1f1b", 1, 2}, ElementType::fp32);
  const test::TrainingRun run = test::train(plan, 2);
  const auto passes = [&](const std::vector<double>& losses, const NamedGradients& gradients) {
    return check_against_reference(plan, {}, losses, gradients).passed;
  };
  CHECK(passes(run.losses, run.gradients));
  // Of half the batch alone, as if nothing had been summed.
  Plan half = plan;
  half.layout.data.degree = 1;
  half.training.global_batch /= 2;
  const test::TrainingRun lost = test::train(half, 1);
  CHECK_FALSE(check_against_reference(plan, {}, {run.losses.front()}, lost.gradients).passed);
  NamedGradients scaled = run.gradients;
  for (float& value : scaled.begin()->second) value *= 1.001F;
  CHECK_FALSE(passes(run.losses, scaled));
  std::vector<double> losses = run.losses;
  losses.front() *= 1 + 1e-5;
  CHECK_FALSE(passes(losses, run.gradients));
}

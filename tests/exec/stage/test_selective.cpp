// Selective recompute: attention's core is made again in the backward, from what is kept anyway.
#include <limits>

#include "common/block_cost/block_costs.hpp"
#include "tests/catch.hpp"
#include "tests/exec/stage/counted_plan.hpp"
#include "tests/exec/stage/models.hpp"
#include "tests/exec/stage/pipelines.hpp"

using namespace plumb;
using namespace plumb::exec;

namespace {

Plan selective(Plan plan) {
  plan.training.recompute.mode = RecomputeMode::selective;
  return plan;
}

}  // namespace

TEST_CASE("a run whose attention is redone has the bits of one that keeps all") {
  for (const Model& model : {test::hybrid(), test::gpt2(2, true)}) {
    for (const ElementType precision : {ElementType::fp32, ElementType::bf16}) {
      for (const auto& [schedule, slices] : std::vector<std::pair<const char*, int>>{{"zb-h1", 1}, {"seq-1f1b", 2}}) {
        const Plan plan = test::training_plan(
            {.model = model, .schedule = schedule, .ranks = 2, .precision = precision, .slices = slices});
        INFO(plan.name);
        const test::TrainingRun kept = test::train(plan, 2);
        const test::TrainingRun redone = test::train(selective(plan), 2);
        CHECK(redone.losses == kept.losses);
        CHECK(redone.gradients == kept.gradients);
      }
    }
  }
}

TEST_CASE("a run whose attention is redone needs the memory that is predicted, within 5%") {
  Plan plan = test::training_plan({.model = test::llama(8), .schedule = "1f1b", .ranks = 2});
  plan.training.sequence = 128;
  plan.costs.boundary_bytes = boundary_of_rank(test::counted_scenario(plan));
  plan.costs.inside = {.latency = {}, .bandwidth = {std::numeric_limits<double>::infinity()}};
  Plan redone = selective(plan);
  const std::vector<RankMemory> predicted = test::predicted_memory(redone, test::counted_blocks(redone));
  const std::vector<Bytes> measured = test::train(redone, 1).peak;
  const std::vector<Bytes> kept = test::train(plan, 1).peak;
  for (std::size_t rank = 0; rank < 2; ++rank) {
    INFO("rank " << rank << ": predicted " << predicted[rank].peak_bytes.value << ", measured " << measured[rank].value
                 << ", with all kept " << kept[rank].value);
    CHECK(measured[rank] / predicted[rank].peak_bytes == Approx(1.0).margin(0.05));
    CHECK(measured[rank] / kept[rank] < 1.02);
  }
}

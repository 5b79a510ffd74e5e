// A vocabulary that is divided over the ranks of a pipeline (arXiv 2411.05288), trained: against one device, against
// the model that the seed gives, and over every transport.
#include <cmath>

#include "exec/stage/vocabulary/part_rows.hpp"
#include "tests/catch.hpp"
#include "tests/exec/stage/models.hpp"
#include "tests/exec/stage/tensor/tensor_runs.hpp"
#include "tests/exec/transport/transports.hpp"

using namespace plumb;
using namespace plumb::exec;
using test::checked;
using test::describe_case;
using test::Wanted;
using test::whole;

namespace {

constexpr int layers = 4;

// A head with a bias, without LayerNorm in front of each mixer and MLP apart; untied.
Model biased_head() { return test::gptj(layers); }

Wanted wanted(const Model& model, const char* schedule, int ranks, int barriers,
              ElementType precision = ElementType::fp32) {
  return {.model = model,
          .schedule = schedule,
          .ranks = ranks,
          .microbatches = 6,
          .precision = precision,
          .vocabulary_barriers = barriers};
}

void require_trained(const Plan& plan, const test::TrainingRun& run) {
  const CheckResult result = checked(plan, run);
  INFO(result.problem << " (" << result.worst_tensor << ": " << result.worst_error_ratio << ", mean "
                      << result.mean_error_ratio << ")");
  CHECK(result.passed);
}

// In a step, without the statistics, of which each rank gets those of all others, and what moves within tensor groups.
double hidden_states_received(const Plan& plan, const test::TrainingRun& run) {
  const double pipeline = plan.layout.pipeline;
  const double statistics =
      (pipeline - 1) * 12.0 * static_cast<double>(plan.training.microbatch * plan.training.sequence);
  const auto steps = static_cast<double>(run.losses.size());
  double sum = 0;
  for (const Bytes received : run.received) sum += static_cast<double>(received.value);
  for (const Bytes received : run.in_group) sum -= static_cast<double>(received.value) / steps;
  return sum - ranks(plan.layout) * statistics * plan.schedule.microbatches;
}

// Of each microbatch the head's and the embedding's broadcast and sum, whole at p−1 ranks, or of as many at one; and of
// neighbours an activation and a gradient. Of a tensor group on each of its ranks.
void require_hidden_states_received(const Plan& plan, const test::TrainingRun& run) {
  const double boundary = static_cast<double>(plan.costs.boundary_bytes.value);
  CHECK(hidden_states_received(plan, run) ==
        plan.layout.tensor.degree * plan.schedule.microbatches * (plan.layout.pipeline - 1) * (4 + 2) * boundary);
}

}  // namespace

TEST_CASE("ranks that share out a vocabulary train like one device, in both schedules, with both numbers of barriers") {
  for (const Model& model : {test::llama(layers), test::gpt2(layers, true), biased_head(), test::hybrid()}) {
    for (const int ranks : {2, 4}) {
      for (const char* const schedule : {"1f1b", "zb-h1"}) {
        for (const int barriers : {1, 2}) {
          for (const ElementType precision : {ElementType::fp32, ElementType::bf16}) {
            const Plan plan = test::training_plan(wanted(model, schedule, ranks, barriers, precision));
            INFO(describe_case(plan));
            require_trained(plan, test::train(plan, 2));
          }
        }
      }
    }
  }
}

TEST_CASE("the model of ranks that share out a vocabulary is the one that the seed gives, bit for bit, and its loss") {
  for (const Model& model : {test::llama(layers), test::gpt2(layers, true), biased_head()}) {
    const Plan alone = test::training_plan(wanted(model, "1f1b", 1, 0));
    const NamedGradients weights = kept_weights(make_stages(alone, 0, {}));
    const double loss = test::train(alone, 1).losses.front();
    for (const int ranks : {2, 4}) {
      for (const int barriers : {1, 2}) {
        const Plan plan = test::training_plan(wanted(model, "1f1b", ranks, barriers));
        INFO(describe_case(plan));
        const test::TrainingRun run = test::train(plan, 1);
        CHECK(whole(plan, run.before) == weights);
        CHECK(std::abs(run.losses.front() - loss) <= 1e-6 * loss);
      }
    }
  }
}

TEST_CASE("ranks that share out a vocabulary receive what is broadcast, added up and handed on, to the byte") {
  for (const int ranks : {2, 4}) {
    for (const int barriers : {1, 2}) {
      const Plan plan = test::training_plan(wanted(test::llama(layers), "1f1b", ranks, barriers));
      INFO(describe_case(plan));
      require_hidden_states_received(plan, test::train(plan, 1));
    }
  }
}

TEST_CASE("parts of a vocabulary that tensor groups share out train like one device, with the moves of their blocks") {
  for (const Model& model : {test::llama(layers), test::gpt2(layers, true), biased_head()}) {
    for (const bool sp : {false, true}) {
      for (const char* const schedule : {"1f1b", "zb-h1"}) {
        for (const int barriers : {1, 2}) {
          for (const ElementType precision : {ElementType::fp32, ElementType::bf16}) {
            Wanted made = wanted(model, schedule, 2, barriers, precision);
            made.tensor = 2;
            made.sequence_parallel = sp;
            const Plan plan = test::training_plan(made);
            INFO(describe_case(plan) << (sp ? ", sp" : ""));
            const test::TrainingRun run = test::train(plan, 2);
            test::require_passed(plan, run);
            require_hidden_states_received(plan, run);
            if (made.schedule == "zb-h1") continue;
            const Plan alone = test::training_plan(wanted(model, "1f1b", 1, 0, precision));
            CHECK(whole(plan, test::train(plan, 1).before) == kept_weights(make_stages(alone, 0, {})));
          }
        }
      }
    }
  }
}

TEST_CASE("a divided vocabulary trains with recompute, and beside ranks that train on other data") {
  for (const int barriers : {1, 2}) {
    Wanted made = wanted(test::gpt2(layers, true), "1f1b", 2, barriers);
    made.recompute = true;
    const Plan redone = test::training_plan(made);
    const test::TrainingRun again = test::train(redone, 2);
    require_trained(redone, again);
    made.recompute = false;
    CHECK(again.by_rank == test::train(test::training_plan(made), 2).by_rank);
    made.data = 2;
    const Plan shared = test::training_plan(made);
    require_trained(shared, test::train(shared, 2));
  }
}

TEST_CASE("tensor groups of more ranks share out parts, beside recompute, experts and ranks that train on other data") {
  for (const int barriers : {1, 2}) {
    Wanted made = wanted(test::gpt2(layers, true), "zb-h1", 4, barriers);
    made.tensor = 2;
    made.sequence_parallel = true;
    made.recompute = true;
    const Plan deep = test::training_plan(made);
    test::require_passed(deep, test::train(deep, 2));
    made = wanted(test::of_four(test::llama(2)), "1f1b", 2, barriers);
    made.tensor = 4;
    const Plan wide = test::training_plan(made);
    test::require_passed(wide, test::train(wide, 2));
    made = wanted(test::hybrid(), "1f1b", 2, barriers);
    made.tensor = 2;
    made.sequence_parallel = true;
    made.data = 2;
    const Plan shared = test::training_plan(made);
    require_trained(shared, test::train(shared, 2));
  }
}

TEST_CASE("a divided vocabulary gives the same bits over gloo") {
  for (const int barriers : {1, 2}) {
    for (const int tensor : {1, 2}) {
      Wanted made = wanted(test::llama(layers), "zb-h1", 4 / tensor, barriers, ElementType::bf16);
      made.tensor = tensor;
      made.sequence_parallel = tensor > 1;
      const Plan plan = test::training_plan(made);
      INFO(describe_case(plan));
      const test::TrainingRun first = test::train(plan, 2);
      const test::TrainingRun over_gloo = test::train(plan, 2, transport_kinds().back().make);
      CHECK(over_gloo.losses == first.losses);
      CHECK(over_gloo.by_rank == first.by_rank);
    }
  }
}

// As if the sum over the parts lacked one, or the softmax were that of a part.
TEST_CASE("the check of a divided vocabulary notices gradients that lack a rank's part") {
  const Plan plan = test::training_plan(wanted(test::llama(layers), "1f1b", 2, 1));
  test::TrainingRun run = test::train(plan, 2);
  for (float& value : run.by_rank[1].at("head.weight")) value *= 0.75F;
  CHECK(!checked(plan, run).passed);
}

TEST_CASE("the parts of a vocabulary have all rows between them, each once") {
  const Parameter table{.name = "embedding.weight", .shape = {12, 5}};
  const Parameter bias{.name = "head.bias", .shape = {12}};
  const Parameter norm{.name = "final_norm.weight", .shape = {5}};
  IndexRanges all;
  for (int part = 0; part < 3; ++part) {
    CHECK(shape_of_part(table, {part, 3}) == std::vector<std::int64_t>{4, 5});
    CHECK(elements_of_part(table, {part, 3}) == IndexRanges{{part * 20, part * 20 + 20}});
    CHECK(elements_of_part(bias, {part, 3}) == IndexRanges{{part * 4, part * 4 + 4}});
    CHECK(elements_of_part(norm, {part, 3}) == IndexRanges{{0, 5}});
  }
  CHECK_THROWS_AS(shape_of_part(table, {0, 5}), RunError);
  // Of the second of two ranks of a tensor group that have two rows each of part 2.
  CHECK(elements_within_part({{10, 20}}, table.name, 20, {2, 3}) == IndexRanges{{50, 60}});
  CHECK(elements_within_part({{0, 5}}, norm.name, 5, {2, 3}) == IndexRanges{{0, 5}});
}

// A whole table, of which a rank has a quarter, is there while it is drawn. Behind that the rank has the embedding's
// part with its gradient: were the head's drawn again, a whole one beside them would be the most that is ever there.
TEST_CASE("a tied table is drawn once for both parts of a rank") {
  Model model = test::gpt2(layers, true);
  model.vocabulary = 16384;
  const Plan plan = test::training_plan(wanted(model, "1f1b", 4, 1));
  const Bytes whole_table{model.vocabulary * model.hidden * 4};
  const int rank = 1;
  count_memory_as(rank);
  reset_peak(rank);
  const auto stages = make_stages(plan, rank, {});
  const Bytes beside = peak_bytes(rank) - held_bytes(rank);
  CAPTURE(whole_table.value, peak_bytes(rank).value, held_bytes(rank).value);
  CHECK(held_bytes(rank) > whole_table / 2);
  CHECK(beside < whole_table * 3 / 4);
}

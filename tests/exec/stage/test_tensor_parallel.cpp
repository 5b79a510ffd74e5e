// Blocks that several ranks share out, in pipelines and beside data parallelism: against one device.
#include <cmath>

#include "tests/catch.hpp"
#include "tests/common/schedule/shapes.hpp"
#include "tests/exec/stage/models.hpp"
#include "tests/exec/stage/tensor/tensor_runs.hpp"
#include "tests/exec/transport/transports.hpp"

using namespace plumb;
using namespace plumb::exec;
using test::checked;
using test::of_four;
using test::require_passed;
using test::require_predicted_bytes;
using test::Wanted;
using test::whole;

namespace {

struct TensorCase {
  const char* schedule;
  int ranks;
  int tensor;
  bool sequence_parallel = false;
  int data = 1;
  int microbatches = 4;
};

Plan plan_of(const Model& model, const TensorCase& shape, ElementType precision = ElementType::fp32) {
  return test::training_plan({.model = model,
                              .schedule = shape.schedule,
                              .ranks = shape.ranks,
                              .chunks = fewest_chunks(shape.schedule),
                              .microbatches = shape.microbatches,
                              .precision = precision,
                              .data = shape.data,
                              .tensor = shape.tensor,
                              .sequence_parallel = shape.sequence_parallel});
}

Model model_of(test::Family family, const TensorCase& shape) {
  return of_four(family(test::fewest_layers(shape.schedule)));
}

}  // namespace

TEST_CASE("tensor-parallel pipelines train like one device, in both precisions") {
  const std::size_t number = GENERATE(range(std::size_t{0}, test::families.size()));
  const test::Family family = test::families.at(number);
  std::vector<TensorCase> cases;
  for (const int tensor : {2, 4}) {
    for (const bool by_tokens : {false, true}) {
      // One rank works off one microbatch after the other: two say what more would. So do two of chunks, and four in
      // pipelines beside each other, below.
      for (const char* const schedule : {"1f1b", "zb-h1"}) cases.push_back({schedule, 1, tensor, by_tokens, 1, 2});
      cases.push_back({"interleaved-1f1b", 2, tensor, by_tokens, 1, 2});
    }
  }
  // By turns, with another first for the next family: each shape trains in both, and so do each family's schedules,
  // degrees and kinds of group.
  std::size_t turn = number;
  for (const TensorCase& shape : cases) {
    const ElementType precision = turn++ % 2 == 0 ? ElementType::fp32 : ElementType::bf16;
    const Plan plan = plan_of(model_of(family, shape), shape, precision);
    INFO(plan.name << ", " << describe(plan.layout) << (shape.sequence_parallel ? ", sp" : ""));
    require_passed(plan, test::train(plan, 2));
  }
}

TEST_CASE("pipeline, tensor and data parallelism together train like one device") {
  const std::size_t number = GENERATE(range(std::size_t{0}, test::families.size()));
  const test::Family family = test::families.at(number);
  // By whole activations in fp32 and by tokens in bf16, in turn.
  const bool turn = number % 2 == 0;
  for (const TensorCase& shape : std::vector<TensorCase>{
           {"1f1b", 2, 2, !turn, 2}, {"zb-h1", 2, 2, turn, 2}, {"interleaved-1f1b", 2, 2, turn, 2}}) {
    const ElementType precision = shape.sequence_parallel ? ElementType::bf16 : ElementType::fp32;
    const Plan plan = plan_of(model_of(family, shape), shape, precision);
    INFO(plan.name << ", " << describe(plan.layout) << (shape.sequence_parallel ? ", sp" : ""));
    require_passed(plan, test::train(plan, 2));
  }
}

TEST_CASE("the check of a divided run notices one gradient that is a hundredth off, and half of one that is missing") {
  const Plan plan = plan_of(of_four(test::gpt2(2, true)), {"1f1b", 1, 2});
  test::TrainingRun run = test::train(plan, 1);
  REQUIRE(checked(plan, run).passed);
  const auto change = [&](const std::string& name, float factor) {
    test::TrainingRun changed = run;
    for (NamedGradients& of_rank : changed.by_rank) {
      const auto found = of_rank.find(name);
      if (found == of_rank.end()) continue;
      for (float& value : found->second) value *= factor;
    }
    return checked(plan, changed);
  };
  for (const auto& [name, factor] : std::vector<std::pair<std::string, float>>{{"layers.1.mlp.up.weight", 1.01F},
                                                                               {"layers.0.norm_1.weight", 0.5F}}) {
    const CheckResult result = change(name, factor);
    INFO(name << ": " << result.worst_tensor << " " << result.worst_error_ratio);
    CHECK_FALSE(result.passed);
    CHECK_THAT(result.problem, ContainsSubstring(name));
  }
}

// Of a few numbers, small beside all others, and what its summands leave when they have cancelled.
TEST_CASE("the check of a divided run notices a decay's gradient that lacks one data-parallel rank's part") {
  const auto precision = GENERATE(ElementType::fp32, ElementType::bf16);
  const Plan plan = plan_of(of_four(test::hybrid()), {"1f1b", 1, 2, true, 2, 2}, precision);
  const test::TrainingRun run = test::train(plan, 1);
  REQUIRE(checked(plan, run).passed);
  // Half of the batch alone, whose gradients are means over half as many tokens.
  const test::TrainingRun part =
      test::train(plan_of(of_four(test::hybrid()), {"1f1b", 1, 2, true, 1, 2}, precision), 1);
  for (const std::string name : {"layers.0.linear.a_log", "layers.2.linear.a_log"}) {
    test::TrainingRun changed = run;
    for (std::size_t rank = 0; rank < changed.by_rank.size(); ++rank) {
      std::vector<float>& values = changed.by_rank[rank].at(name);
      values = part.by_rank[rank % 2].at(name);
      for (float& value : values) value /= 2;
    }
    const CheckResult result = checked(plan, changed);
    INFO(name << ": " << result.worst_tensor << " " << result.worst_error_ratio);
    CHECK_FALSE(result.passed);
    CHECK_THAT(result.problem, ContainsSubstring(name));
  }
}

TEST_CASE("tensor groups give the same bits over gloo, and whatever the nesting of the mesh") {
  for (const Model& model : {of_four(test::gpt2(2, true)), of_four(test::hybrid())}) {
    for (const bool by_tokens : {false, true}) {
      Plan plan = plan_of(model, {"1f1b", 2, 2, by_tokens}, ElementType::bf16);
      INFO(plan.name << (by_tokens ? ", sp" : ""));
      const test::TrainingRun first = test::train(plan, 2);
      const test::TrainingRun over_gloo = test::train(plan, 2, transport_kinds().back().make);
      CHECK(over_gloo.losses == first.losses);
      CHECK(over_gloo.by_rank == first.by_rank);
      plan.layout.order = {MeshAxis::pipeline, MeshAxis::tensor, MeshAxis::context, MeshAxis::expert, MeshAxis::data};
      const test::TrainingRun outside = test::train(plan, 2);
      CHECK(outside.losses == first.losses);
      CHECK(whole(plan, outside.by_rank) == whole(plan_of(model, {"1f1b", 2, 2, by_tokens}), first.by_rank));
    }
  }
}

TEST_CASE("stages of a tensor group are recomputed, and schedules of every other kind have such groups, too") {
  for (const bool by_tokens : {false, true}) {
    Wanted wanted{.model = of_four(test::hybrid()), .ranks = 2, .recompute = true};
    wanted.tensor = 2;
    wanted.sequence_parallel = by_tokens;
    const Plan plan = test::training_plan(wanted);
    require_passed(plan, test::train(plan, 2));
  }
  for (const auto& [schedule, chunks] : std::vector<std::pair<const char*, int>>{
           {"gpipe", 1}, {"zb-v", 2}, {"hanayo", 2}, {"interleaved-zb", 2}, {"breadth-first", 2}}) {
    INFO(schedule);
    Wanted wanted{.model = of_four(test::gpt2(4, true)), .schedule = schedule, .ranks = 2, .chunks = chunks};
    wanted.tensor = 2;
    wanted.sequence_parallel = true;
    const Plan plan = test::training_plan(wanted);
    require_passed(plan, test::train(plan, 2));
  }
}

namespace {

// With weights of every kind behind a head of keys: matrices, biases, norms.
Model of_few_heads(std::int64_t kv_heads) {
  Model model = test::llama(2);
  for (Layer& layer : model.layers) {
    auto& attention = std::get<SoftmaxAttention>(layer.mixer);
    attention.kv_heads = kv_heads;
    attention.qk_norm = attention.qkv_bias = true;
  }
  return model;
}

}  // namespace

TEST_CASE("a head of keys and values that several ranks have trains like one, and all of them keep the same bits") {
  for (const auto& [kv_heads, tensor] : std::vector<std::pair<int, int>>{{1, 2}, {2, 4}, {1, 4}}) {
    for (const bool by_tokens : {false, true}) {
      const Plan plan = plan_of(of_few_heads(kv_heads), {by_tokens ? "zb-h1" : "1f1b", 1, tensor, by_tokens},
                                by_tokens ? ElementType::bf16 : ElementType::fp32);
      INFO(kv_heads << " heads, " << describe(plan.layout) << (by_tokens ? ", sp" : ""));
      const test::TrainingRun run = test::train(plan, 2);
      require_passed(plan, run);
      // Each rank has one of the heads.
      for (const NamedGradients& held : run.by_rank) {
        CHECK(held.at("layers.0.attention.k.weight").size() == 8 * 32);
        CHECK(held.at("layers.0.attention.v.bias").size() == 8);
      }
      CHECK(run.by_rank[0].at("layers.1.attention.k.weight") == run.by_rank[1].at("layers.1.attention.k.weight"));
    }
  }
}

TEST_CASE("the model and its first loss are the same at every tensor degree") {
  for (const test::Family family : test::families) {
    const Model model = model_of(family, {"1f1b", 1, 1});
    const Plan alone = plan_of(model, {"1f1b", 1, 1});
    const NamedGradients weights = kept_weights(make_stages(alone, 0, {}));
    const double loss = test::train(alone, 1).losses.front();
    for (const TensorCase& shape :
         std::vector<TensorCase>{{"1f1b", 1, 2}, {"1f1b", 1, 4, true}, {"zb-h1", 2, 2, true}}) {
      const Plan plan = plan_of(model, shape);
      INFO(plan.name << ", " << describe(plan.layout));
      const test::TrainingRun run = test::train(plan, 1);
      CHECK(whole(plan, run.before) == weights);
      CHECK(std::abs(run.losses.front() - loss) <= 1e-6 * loss);
    }
  }
}

// And of every run that is checked above.
TEST_CASE("a rank receives of its tensor group what the moves of its blocks say, to the byte") {
  for (TensorCase shape : std::vector<TensorCase>{{"zb-h1", 2, 2, false, 1, 2}, {"1f1b", 2, 2, false, 2, 2}}) {
    for (const bool by_tokens : {false, true}) {
      shape.sequence_parallel = by_tokens;
      std::vector<Model> models{of_few_heads(1)};
      for (const test::Family family : test::families) models.push_back(model_of(family, shape));
      for (const Model& model : models) {
        const Plan plan = plan_of(model, shape, ElementType::bf16);
        INFO(plan.name << ", " << describe(plan.layout) << (by_tokens ? ", sp" : ""));
        require_predicted_bytes(plan, test::train(plan, 1));
      }
    }
  }
}

TEST_CASE("the check of a tensor group fails for lost sums, other copies, another model and bent routing") {
  const Plan plan = plan_of(of_four(test::mixtral(2)), {"1f1b", 1, 2, true});
  const test::TrainingRun run = test::train(plan, 1);
  CHECK(checked(plan, run).passed);
  const auto with = [&](const auto& change) {
    test::TrainingRun changed = run;
    for (std::size_t rank = 0; rank < 2; ++rank) change(changed, rank);
    return checked(plan, changed);
  };
  // As if each rank's part of the tokens were all: the half of a norm's gradient.
  CHECK_FALSE(with([](test::TrainingRun& of, std::size_t rank) {
                for (float& value : of.by_rank[rank]["layers.0.norm_1.weight"]) value /= 2;
              }).passed);
  CHECK_THAT(with([](test::TrainingRun& of, std::size_t rank) {
               of.before[rank]["layers.1.attention.q.weight"][3] *= 1.0001F;
             }).problem,
             ContainsSubstring("began with other values of layers.1.attention.q.weight"));
  CHECK_THAT(with([](test::TrainingRun& of, std::size_t rank) {
               for (float& expert : of.routing[rank][routing_name(0, 1)]) expert = 3 - expert;
             }).problem,
             ContainsSubstring("experts that are less likely"));
  Shards shards(plan);
  NamedGradients other = run.by_rank[1];
  other["layers.1.norm_2.weight"][5] += 1e-6F;
  CHECK(shards.add(0, run.by_rank[0]).empty());
  CHECK(shards.add(1, other) == "layers.1.norm_2.weight");
  Shards half(plan);
  CHECK(half.add(0, run.by_rank[0]).empty());
  CHECK_THROWS_WITH(std::move(half).whole(), ContainsSubstring("no rank has some elements of"));
}

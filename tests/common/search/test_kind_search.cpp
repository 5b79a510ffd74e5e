// Tensor kinds that are left open: the search against every grid and every other choice, predicted one by one.
#include <algorithm>
#include <array>

#include "common/layout/tensor_grid.hpp"
#include "tests/catch.hpp"
#include "tests/common/search/best_of_all.hpp"
#include "tests/effort.hpp"

using namespace plumb;
using namespace plumb::testing;

namespace {

// Some leave the order of the mesh open.
bool has_any_order(unsigned seed) { return seed % 5 == 2; }
// Every second seed has one replica alone, on a slow network: then grids are worth it. Else all degrees are open.
bool has_one_replica(unsigned seed) { return seed % 2 == 1; }

// Four, eight or sixteen ranks, dense layers. Some shapes are such that no cube, or no grid of 4 × 4, divides them.
std::string random_kinds(unsigned seed, const std::string& memory = "") {
  RandomText random(seed);
  std::string layers;
  for (int i = random.number(2, 5); i > 0; --i) {
    layers += random.one_of({"full/dense", "sliding/dense"}) + (i > 1 ? ", " : "");
  }
  const bool one = has_one_replica(seed);
  // One after the other, so that the draws are the same with every compiler.
  const std::string vocabulary = random.one_of({"512", "8192"});
  const std::string kv_heads = one ? random.one_of({"8", "32"}) : random.one_of({"2", "4"});
  const std::string ffn = one ? "8192" : random.one_of({"128", "126"});
  const std::string machine = one ? "pcie-rtx4090" : random.one_of({"dgx-a100", "pcie-rtx4090"});
  const std::string ranks = one ? random.one_of({"8", "16"}) : random.one_of({"4", "8", "16"});
  const std::string microbatch =
      one ? random.one_of({"auto", "[4, 16]", "[4, 8]"}) : random.one_of({"auto", "[1, 4]", "[2, 4]"});
  const std::string recompute = random.one_of({"none", "[none, full]"});
  const std::string schedule = random.one_of({"[1f1b, zb-h1]", "[gpipe, 1f1b]"});
  const std::string software = random.one_of({"megatron-2022", "plumb"});
  const std::string split = random.one_of({"dynamic", "[dynamic, uniform]"});
  return "model: {vocabulary: " + vocabulary + (one ? ", hidden: 2048, heads: 32" : ", hidden: 64, heads: 4") +
         ", kv_heads: " + kv_heads + ", ffn: " + ffn + ", window: 16, layers: \"" + layers +
         "\"}\ncluster: {machine: " + machine + ", nodes: 4, ranks: " + ranks + memory +
         "}\ntraining: {sequence: " + (one ? "2048" : "256") + ", global_batch: 16, microbatch: " + microbatch +
         ", recompute: " + recompute + "}\nlayout: {" + (has_any_order(seed) ? "order: auto, " : "") +
         (one ? "pipeline: 1, data: {degree: 1}" : "pipeline: auto, data: auto") +
         ", tensor: {degree: auto, kind: auto, sequence_parallel: auto, asynchronous: auto, reshard_after_forward: "
         "auto}}\nschedule: " +
         schedule + "\nsoftware: " + software + "\nsplit: " + split + "\n";
}

// 1d, and every side and depth that makes so many ranks.
std::vector<TensorLayout> all_tensors(int degree) {
  std::vector<TensorLayout> tensors = {{.degree = degree}};
  if (degree > 1) tensors.push_back({.degree = degree, .sequence_parallel = true});
  if (degree > 1) tensors.push_back({.degree = degree, .sequence_parallel = true, .asynchronous = true});
  for (int q = 2; q * q <= degree; ++q) {
    for (const bool panels : {true, false}) {
      if (q * q != degree) continue;
      tensors.push_back({.degree = degree, .kind = TensorKind::two_d, .asynchronous = panels});
    }
    for (const bool reshard : {true, false}) {
      if (q * q * q != degree) continue;
      tensors.push_back({.degree = degree, .kind = TensorKind::three_d, .reshard_after_forward = reshard});
    }
    for (int depth = 2; depth * q * q <= degree; ++depth) {
      if (depth * q * q != degree) continue;
      for (const bool panels : {true, false}) {
        tensors.push_back(
            {.degree = degree, .kind = TensorKind::two_and_half_d, .depth = depth, .asynchronous = panels});
      }
    }
  }
  return tensors;
}

// The usual one, or every nesting of the axes that have more than one rank.
std::vector<std::array<MeshAxis, 5>> orders_of(unsigned seed) {
  if (!has_any_order(seed)) return {Layout{}.order};
  std::vector<std::array<MeshAxis, 5>> orders;
  std::array nest = {MeshAxis::tensor, MeshAxis::data, MeshAxis::pipeline};
  do orders.push_back({nest[0], nest[1], nest[2], MeshAxis::context, MeshAxis::expert});
  while (std::next_permutation(nest.begin(), nest.end()));
  return orders;
}

// Of so many ranks: written down without the search's own lists.
std::vector<Layout> all_layouts(int ranks, unsigned seed) {
  const bool one_replica = has_one_replica(seed);
  std::vector<Layout> all;
  for (int degree = 1; degree <= ranks; ++degree) {
    for (int pipeline = 1; degree * pipeline <= ranks; ++pipeline) {
      const int data = ranks / (degree * pipeline);
      if (degree * pipeline * data != ranks || (one_replica && (data > 1 || pipeline > 1))) continue;
      for (const TensorLayout& tensor : all_tensors(degree)) {
        Layout layout;
        layout.pipeline = pipeline;
        layout.tensor = tensor;
        layout.data.degree = data;
        for (const std::array<MeshAxis, 5>& order : orders_of(seed)) {
          layout.order = order;
          all.push_back(layout);
        }
      }
    }
  }
  return all;
}

struct Weighed : BestOfAll {
  std::vector<TensorKind> kinds = {};  // of what was built
  bool asynchronous = false;           // as some was
};

Weighed weigh_all(const Scenario& scenario, unsigned seed) {
  Weighed all;
  for (const Layout& layout : all_layouts(scenario.cluster.ranks, seed)) {
    for (const std::int64_t microbatch : scenario.microbatches) {
      for (const Recompute& recompute : scenario.recomputes) {
        for (const ScheduleChoice& schedule : scenario.schedules) {
          for (const SplitChoice& split : scenario.splits) {
            const PlanChoice choice{.microbatch = microbatch,
                                    .schedule = schedule,
                                    .split = split,
                                    .layout = layout,
                                    .recompute = recompute};
            const Candidate candidate = weigh_candidate(scenario, choice, predict_by_path);
            if (!candidate.built) continue;
            all.take(candidate);
            all.kinds.push_back(layout.tensor.kind);
            all.asynchronous = all.asynchronous || layout.tensor.asynchronous;
          }
        }
      }
    }
  }
  return all;
}

}  // namespace

TEST_CASE("with all kinds open the best of a search is the best of every candidate, predicted one by one") {
  std::vector<TensorKind> met;
  std::vector<TensorKind> won;
  int met_asynchronous = 0;
  int won_asynchronously = 0;
  int excluded = 0;
  for (unsigned seed = 0; seed < cases(20U); ++seed) {
    CAPTURE(seed);
    const Weighed roomy = weigh_all(read_text(random_kinds(seed)), seed);
    REQUIRE(roomy.peaks.size() > 3);
    met.insert(met.end(), roomy.kinds.begin(), roomy.kinds.end());
    met_asynchronous += roomy.asynchronous ? 1 : 0;
    const Scenario scenario = read_text(random_kinds(seed, ", " + memory_line(scarce_memory(roomy, seed))));
    const TensorLayout best = require_best(scenario, weigh_all(scenario, seed), excluded).plan.layout.tensor;
    won.push_back(best.kind);
    won_asynchronously += best.asynchronous ? 1 : 0;
  }
  for (const TensorKind kind : all_tensor_kinds) CHECK(std::ranges::find(met, kind) != met.end());
  CHECK(std::ranges::count_if(won, [](TensorKind kind) { return kind != TensorKind::one_d; }) >= found_in(4));
  CHECK(met_asynchronous >= found_in(15));
  CHECK((won_asynchronously > 0 || cases(20U) < 20U));
  CHECK(excluded > 0);
}

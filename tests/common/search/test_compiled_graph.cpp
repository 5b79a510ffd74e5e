// Skeletons time what the graphs say they are made of, and loops stand for the schedules that are longer.
#include "common/search/compiled_times.hpp"

#include <cmath>
#include <random>

#include "common/base/error.hpp"
#include "common/graph/evaluate.hpp"
#include "common/schedule/generators/registry.hpp"
#include "common/search/peak_memory.hpp"
#include "common/search/structure_cache.hpp"
#include "tests/catch.hpp"
#include "tests/common/schedule/shapes.hpp"
#include "tests/effort.hpp"

using namespace plumb;

namespace {

struct Case {
  std::string schedule;
  int ranks;
  int microbatches;
  int chunks;
  PipelineExchange exchange;
  bool recompute;
  bool reduced = false;  // gradients, over data-parallel ranks
  int barriers = 0;      // of a vocabulary that the ranks divide
};

Plan plan_of(const Case& of) {
  Plan plan;
  plan.model.layers.resize(1);
  plan.software.exchange = of.exchange;
  plan.layout.data.degree = of.reduced ? 2 : 1;
  plan.layout.pipeline = of.ranks;
  plan.layout.vocabulary_barriers = of.barriers;
  plan.training.recompute.mode = of.recompute ? RecomputeMode::full : RecomputeMode::none;
  return plan;
}

StructureKey key_of(const Case& of) {
  return {.schedule = of.schedule,
          .ranks = of.ranks,
          .microbatches = of.microbatches,
          .chunks = of.chunks,
          .vocabulary_barriers = of.barriers,
          .recompute = of.recompute,
          .data_parallel = of.reduced,
          .exchange = of.exchange,
          .ranks_per_machine = 2};
}

// Parts of a head and an embedding, equal on all ranks, and what joins them: as long as a message, or much longer. The
// embedding's messages are as large as a boundary, the head's larger, as with modules that predict more tokens.
void add_parts(PipelineCosts& costs, int ranks, double message, std::mt19937_64& random) {
  std::uniform_real_distribution<double> part(0, 1);
  const auto joined = [&](std::int64_t bytes) -> JoinCost {
    return {.bytes = {bytes}, .alone = {message * std::pow(10, 2 * part(random))}};
  };
  costs.vocabulary = {.parts = ranks,
                      .head_broadcast = joined(3000),
                      .statistics = joined(30),
                      .head_sum = joined(3000),
                      .embedding_sum = joined(1000),
                      .embedding_broadcast = joined(1000)};
  for (const double factor : {2 * part(random), 0.1 * part(random)}) {
    ComputeCost cost{.forward = {factor}, .input_gradient = {factor * 1.1}, .weight_gradient = {factor * 0.9}};
    cost.optimizer = {part(random)};
    cost.kept_bytes = {static_cast<std::int64_t>(9000 * factor)};
    cost.kept_for_weight_bytes = {static_cast<std::int64_t>(4000 * factor)};
    cost.forward_workspace_bytes = {900};
    cost.parameter_bytes = {4000};
    costs.stages.insert(costs.stages.end(), static_cast<std::size_t>(ranks), cost);
  }
}

// Stages as uneven as splits make them: some equal, one or a few heavier; messages from free to as long as a stage.
PipelineCosts uneven_costs(const Case& of, std::mt19937_64& random) {
  std::uniform_real_distribution<double> part(0, 1);
  PipelineCosts costs;
  const double message = std::pow(10, -4 * part(random));
  costs.inside = {.latency = {message * part(random)}, .bandwidth = {1e9}};
  costs.outside = {.latency = {message}, .bandwidth = {1e8}};
  costs.ranks_per_machine = 2;
  costs.exchange = of.exchange;
  costs.boundary_bytes = {1000};
  const bool any = part(random) < 0.3;
  for (int stage = 0; stage < of.ranks * of.chunks; ++stage) {
    const double factor = any ? 0.5 + part(random) : 2 + std::floor(3 * part(random)) * 0.5;
    ComputeCost cost;
    cost.forward = {factor};
    cost.input_gradient = {factor * 1.1};
    cost.weight_gradient = {factor * 0.9};
    cost.optimizer = {part(random)};
    cost.kept_bytes = {static_cast<std::int64_t>(5000 * factor)};
    cost.kept_for_weight_bytes = {static_cast<std::int64_t>(2000 * factor)};
    cost.forward_workspace_bytes = {700};
    cost.input_gradient_workspace_bytes = {1500};
    cost.weight_gradient_workspace_bytes = {400};
    cost.parameter_bytes = {static_cast<std::int64_t>(10000 * factor)};
    costs.stages.push_back(cost);
  }
  if (of.barriers > 0) add_parts(costs, of.ranks, message, random);
  return costs;
}

Schedule lowered_of(const Case& of) {
  Schedule schedule = generate_schedule(
      of.schedule,
      {.ranks = of.ranks, .microbatches = of.microbatches, .chunks = of.chunks, .vocabulary_barriers = of.barriers});
  if (of.recompute) schedule = with_recompute(std::move(schedule));
  return lower(schedule, {.data_parallel = of.reduced});
}

struct Seen {
  int looped = 0;
  int twice = 0;  // loops behind each other
  int left_out = 0;
  int with_parts = 0;  // of those that looped
};

void check_loop(const Case& of, std::mt19937_64& random, Seen& seen) {
  CAPTURE(of.schedule, of.ranks, of.microbatches, of.chunks, static_cast<int>(of.exchange), of.recompute, of.reduced);
  StructureCache cache(nullptr);
  const Plan plan = plan_of(of);
  PipelineCosts costs = uneven_costs(of, random);
  // Some orders wait for themselves where messages are exchanged synchronously.
  StructureCache::Shorter shorter;
  try {
    shorter = cache.shorter(key_of(of), plan);
    (void)cache.structure(shorter.key, plan);
  } catch (const InputError&) {
    REQUIRE_THROWS_AS(build_graph(lowered_of(of), costs), InputError);
    return;
  }
  const Structure& structure = cache.structure(shorter.key, plan);
  if (structure.splits_backward) costs.exchange = PipelineExchange::asynchronous;
  const Schedule lowered = lowered_of(of);
  const ScheduleGraph graph = build_graph(lowered, costs);
  const Evaluation expected = evaluate(graph);
  std::vector<double> durations;
  set_durations(structure.compiled, costs, std::vector<bool>(costs.stages.size(), true), durations);
  CompiledTimes times;
  // To the last bit where nothing is left out.
  times.time(structure.compiled, durations, shorter.more, 0);
  REQUIRE(times.makespan() == expected.makespan.value);
  PeakMemory memory;
  Bytes peak;
  for (const RankMemory& rank : memory_over_time(graph, expected, costs, lowered)) {
    peak = std::max(peak, rank.peak_bytes);
  }
  REQUIRE(memory.find(structure.compiled, times, costs, 0).peak_bytes.value == peak.value);
  if (shorter.more == 0) return;
  ++seen.looped;
  seen.with_parts += of.barriers > 0 ? 1 : 0;
  seen.twice += structure.compiled.loops.size() == 2 ? 1 : 0;
  std::size_t nodes = structure.compiled.graph_nodes;
  for (const CompiledLoop& loop : structure.compiled.loops) {
    nodes += static_cast<std::size_t>(shorter.more) * loop.graph_nodes;
  }
  REQUIRE(nodes == graph.nodes.size());
  times.time(structure.compiled, durations, shorter.more, 1e-10);
  REQUIRE(times.makespan() == Approx(expected.makespan.value).epsilon(2e-10).margin(0));
  if (!times.leaves_out()) return;
  ++seen.left_out;
  const double slack = 2e-10 * times.makespan();
  const Bytes above = memory.find(structure.compiled, times, costs, slack).peak_bytes;
  const Bytes below = memory.find(structure.compiled, times, costs, -slack).peak_bytes;
  REQUIRE(above >= peak);
  REQUIRE(below <= peak);
}

}  // namespace

TEST_CASE("loops time longer schedules of uneven stages to the last bit, and periods leave out what only shifts") {
  std::mt19937_64 random(11);
  const auto number = [&](int least, int most) { return std::uniform_int_distribution<int>(least, most)(random); };
  Seen seen;
  for (int n = 0; n < static_cast<int>(testing::cases(3000)); ++n) {
    const std::vector<std::string> names = {"1f1b", "zb-h1", "eager-1f1b", "interleaved-1f1b", "gpipe"};
    Case of{.schedule = names[static_cast<std::size_t>(number(0, 4))],
            .ranks = number(1, 9),
            .microbatches = number(1, 90),
            .chunks = 1,
            .exchange = number(0, 1) == 1 ? PipelineExchange::synchronous : PipelineExchange::asynchronous,
            .recompute = number(0, 2) == 0,
            .reduced = number(0, 1) == 0};
    if (of.schedule == "interleaved-1f1b") {
      of.chunks = number(1, 3);
      if (number(0, 3) > 0) of.microbatches = of.ranks * number(1, 12);
    }
    check_loop(of, random, seen);
  }
  CHECK(seen.looped > testing::found_in(1000));
  CHECK(seen.twice > testing::found_in(300));
  CHECK(seen.left_out > testing::found_in(500));
}

TEST_CASE("schedules that divide the vocabulary are timed in loops, too, and need what whole graphs say") {
  std::mt19937_64 random(17);
  const auto number = [&](int least, int most) { return std::uniform_int_distribution<int>(least, most)(random); };
  Seen seen;
  for (int n = 0; n < static_cast<int>(testing::cases(1000)); ++n) {
    const Case of{.schedule = number(0, 1) == 1 ? "1f1b" : "zb-h1",
                  .ranks = number(2, 9),
                  .microbatches = number(1, 90),
                  .chunks = 1,
                  .exchange = number(0, 1) == 1 ? PipelineExchange::synchronous : PipelineExchange::asynchronous,
                  .recompute = number(0, 2) == 0,
                  .reduced = number(0, 1) == 0,
                  .barriers = number(1, 2)};
    check_loop(of, random, seen);
  }
  CHECK(seen.with_parts > testing::found_in(500));
  CHECK(seen.left_out > testing::found_in(200));
}

TEST_CASE("a schedule's moments are those of fewer microbatches, with what a loop adds of gpipe's") {
  for (const std::string name : {"1f1b", "zb-h1", "eager-1f1b", "interleaved-1f1b", "gpipe", "gpipe with recompute"}) {
    for (const int ranks : {2, 3, 5, 8}) {
      const bool recompute = name.ends_with("recompute");
      const Case of{name.substr(0, name.find(' ')), ranks, 12 * ranks, fewest_chunks(name), {}, recompute};
      StructureCache cache(nullptr);
      const Plan plan = plan_of(of);
      const StructureCache::Shorter shorter = cache.shorter(key_of(of), plan);
      CAPTURE(name, ranks);
      REQUIRE(shorter.more > 0);
      const HeldMoments fewer = held_with(cache.structure(shorter.key, plan), shorter.more);
      const HeldMoments& all = cache.structure(key_of(of), plan).held;
      CHECK(fewer.moments == all.moments);
      CHECK(fewer.inputs == all.inputs);
    }
  }
}

namespace {

// Blocks of nodes that wait for nodes of earlier blocks, by hand: node n of a block takes `takes[n]` after the same
// block's or an earlier one's node `from[n]`, `blocks_before[n]` blocks before. The first blocks wait for nothing and
// end at `starts`. Behind the last stands a node that waits for the last two and takes nothing.
struct Blocks {
  std::vector<double> takes;
  std::vector<std::size_t> from;
  std::size_t blocks_before = 1;
  std::vector<double> starts;  // of blocks_before blocks
  std::size_t count = 40;      // blocks in the compiled graph

  [[nodiscard]] std::size_t size() const { return takes.size(); }

  [[nodiscard]] CompiledGraph compiled() const {
    CompiledGraph result;
    for (std::size_t at = 0; at < count * size(); ++at) {
      const bool waits = at >= starts.size();
      const std::size_t node = at % size();
      const auto back = static_cast<std::uint32_t>(waits ? node + blocks_before * size() - from[node] : at + 1);
      const std::size_t kind = waits ? node : size() + at;
      result.nodes.push_back({.back_a = back, .back_b = back, .duration = static_cast<std::uint32_t>(kind)});
    }
    const auto end = static_cast<std::uint32_t>(count * size());
    result.nodes.push_back({.back_a = 1, .back_b = 2, .duration = static_cast<std::uint32_t>(size() + starts.size())});
    result.sinks = {end};
    result.loops = {{.begin = end - static_cast<std::uint32_t>(size()),
                     .size = static_cast<std::uint32_t>(size()),
                     .blocks = static_cast<std::uint32_t>(count - blocks_before),
                     .reach = static_cast<std::uint32_t>(blocks_before)}};
    return result;
  }

  [[nodiscard]] std::vector<double> durations() const {
    std::vector<double> result = takes;
    result.insert(result.end(), starts.begin(), starts.end());
    result.push_back(0);
    return result;
  }

  // One block after the other.
  [[nodiscard]] double makespan(int more) const {
    std::vector<double> ends = starts;
    while (ends.size() < (count + static_cast<std::size_t>(more)) * size()) {
      const std::size_t node = ends.size() % size();
      ends.push_back(ends[ends.size() - node - blocks_before * size() + from[node]] + takes[node]);
    }
    return std::max(ends[ends.size() - 1], ends[ends.size() - 2]);
  }
};

}  // namespace

// Two chains that change places in every block: only two blocks later does all end the same time after.
TEST_CASE("periods of several blocks are left out, and what is no whole number of them is run") {
  const Blocks crossed{.takes = {1, 3}, .from = {1, 0}, .starts = {0, 0}};
  for (const auto& [more, run] : {std::pair{1000, 0}, {1001, 1}, {2, 0}, {1, 1}}) {
    CAPTURE(more);
    CompiledTimes times;
    times.time(crossed.compiled(), crossed.durations(), more, 1e-10);
    CHECK(times.makespan() == Approx(crossed.makespan(more)).epsilon(1e-9));
    CHECK(times.more() == run);
    CHECK(times.leaves_out() == (more > 1));
    times.time(crossed.compiled(), crossed.durations(), more, 0);
    CHECK(times.makespan() == crossed.makespan(more));
    CHECK(times.more() == more);
  }
}

// The slower chains begin late, and overtake the others long after the loop; the nodes that are looked at first, the
// last and the middle one, are of the faster chains.
TEST_CASE("nothing is left out while some nodes of a block fall behind others") {
  const Blocks apart{.takes = {2, 1, 2, 1}, .from = {0, 1, 2, 3}, .starts = {0, 500, 0, 500}};
  CompiledTimes times;
  times.time(apart.compiled(), apart.durations(), 2000, 1e-10);
  CHECK_FALSE(times.leaves_out());
  CHECK(times.more() == 2000);
  CHECK(times.makespan() == apart.makespan(2000));
  CHECK(times.makespan() == 2 * 2039);
}

// Every sixth block is late, so that for up to four blocks all seems to end 1 s after the block before.
TEST_CASE("a period is held against as many blocks as what follows looks back to") {
  for (std::size_t count = 40; count < 46; ++count) {
    const Blocks rhythm{.takes = {6}, .from = {0}, .blocks_before = 6, .starts = {1, 2, 3, 4, 5, 7.5}, .count = count};
    for (const int more : {999, 1000, 1001, 1002, 1003, 1004}) {
      CAPTURE(count, more);
      CompiledTimes times;
      times.time(rhythm.compiled(), rhythm.durations(), more, 1e-10);
      CHECK(times.makespan() == Approx(rhythm.makespan(more)).epsilon(1e-9));
      CHECK(times.more() == more % 6);
    }
  }
}

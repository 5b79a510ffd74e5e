// How many candidates a second the search weighs, and how many it disposes of: MT-NLG 530B (arXiv 2201.11990) on 2,520
// GPUs, batch 1,920. Two threads, as the goal is stated. And whether one takes longer where tensor kinds are open, or
// where the pipeline's ranks divide the vocabulary.
#include <benchmark/benchmark.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <vector>

#include "common/base/error.hpp"
#include "common/model/files/model_block.hpp"
#include "common/scenario_file/blocks.hpp"
#include "common/scenario_file/read_scenario.hpp"
#include "common/search/fast_evaluator.hpp"
#include "common/search/search.hpp"

namespace plumb::bench {
namespace {

constexpr int threads = 2;
constexpr int gpus = 2520;
constexpr std::int64_t batch = 1920;
constexpr int layers = 105;
constexpr int heads = 128;

const char* const text = R"(
model: {name: mt-nlg-530b, vocabulary: 51200, hidden: 20480, heads: 128, ffn: 81920, layers: "full/dense*105",
        activation: gelu, norm: layernorm, bias: true, positions: learned, max_positions: 2048, tied_embeddings: true}
cluster: {machine: dgx-a100, nodes: 315}
training: {sequence: 2048, global_batch: 1920, precision: bf16, microbatch: 1}
layout: {pipeline: 105, tensor: {degree: 8}, data: {degree: 3}}
software: SOFTWARE
)";

Scenario scenario(const std::string& software) {
  std::string yaml = text;
  yaml.replace(yaml.find("SOFTWARE"), 8, software);
  Scenario read = read_scenario(YamlValue::parse(yaml, "mt-nlg-530b.yaml"), "mt-nlg-530b");
  return read;
}

std::vector<int> divisors(std::int64_t number) {
  std::vector<int> found;
  for (int n = 1; n <= number; ++n) {
    if (number % n == 0) found.push_back(n);
  }
  return found;
}

struct Candidate {
  Family family;
  SplitMethod split;
};

// All degrees, microbatches, chunks, schedules, recompute modes and both splits; the mesh in its usual order.
std::vector<Candidate> candidates() {
  std::vector<Candidate> all;
  const auto add = [&](Family family, const std::string& name, int chunks) {
    family.schedule = {.name = name, .chunks = chunks};
    for (const RecomputeMode mode : {RecomputeMode::none, RecomputeMode::selective, RecomputeMode::full}) {
      family.recompute.mode = mode;
      for (const bool sequence_parallel : {false, true}) {
        if (sequence_parallel && family.layout.tensor.degree == 1) continue;
        family.layout.tensor.sequence_parallel = sequence_parallel;
        for (const SplitMethod split : {SplitMethod::uniform, SplitMethod::dynamic}) all.push_back({family, split});
      }
    }
  };
  for (const int tensor : divisors(gpus)) {
    if (heads % tensor != 0) continue;
    for (const int pipeline : divisors(gpus / tensor)) {
      const int data = gpus / tensor / pipeline;
      if (pipeline > layers || batch % data != 0) continue;
      for (const int microbatch : divisors(batch / data)) {
        Family family;
        family.layout.pipeline = pipeline;
        family.layout.tensor.degree = tensor;
        family.layout.data.degree = data;
        family.microbatch = microbatch;
        for (const char* name : {"1f1b", "gpipe", "zb-h1"}) add(family, name, 1);
        for (int chunks = 2; chunks * pipeline <= layers; ++chunks) add(family, "interleaved-1f1b", chunks);
      }
    }
  }
  // Those that share a schedule stand together: see first_of_schedules.
  std::ranges::stable_sort(all, {}, [](const Candidate& candidate) {
    const Family& family = candidate.family;
    return std::tuple(-family.layout.pipeline, family.schedule.name, family.schedule.chunks,
                      family.microbatch * family.layout.data.degree);
  });
  return all;
}

// Where another schedule or pipeline begins: a thread takes what shares one, so that only it makes that.
std::vector<std::size_t> first_of_schedules(const std::vector<Candidate>& all) {
  const auto shape = [&](std::size_t n) {
    const Family& family = all[n].family;
    return std::tuple(family.layout.pipeline, family.schedule.name, family.schedule.chunks);
  };
  std::vector<std::size_t> first;
  for (std::size_t n = 0; n < all.size(); ++n) {
    if (n == 0 || shape(n) != shape(n - 1)) first.push_back(n);
  }
  first.push_back(all.size());
  return first;
}

struct Counts {
  std::atomic<std::size_t> weighed{0};
  std::atomic<std::size_t> refused{0};
  std::atomic<std::size_t> disposed{0};  // by a bound
};

template <class Visit>
void on_threads(const Visit& visit) {
  std::vector<std::thread> running;
  for (int n = 0; n < threads; ++n) running.emplace_back([&visit, n] { visit(n); });
  for (std::thread& thread : running) thread.join();
}

// Every candidate is weighed, from empty caches, which is part of the time.
void weigh_all(benchmark::State& state, const std::string& software) {
  const Scenario read = scenario(software);
  const std::vector<Candidate> all = candidates();
  const std::vector<std::size_t> first = first_of_schedules(all);
  Counts counts;
  for (auto _ : state) {
    std::atomic<std::size_t> next{0};
    on_threads([&](int) {
      FastEvaluator fast(read);
      for (std::size_t group; (group = next++) + 1 < first.size();) {
        for (std::size_t n = first[group]; n < first[group + 1]; ++n) {
          try {
            benchmark::DoNotOptimize(fast.weigh(all[n].family, {.method = all[n].split}));
            ++counts.weighed;
          } catch (const InputError&) {
            ++counts.refused;
          }
        }
      }
    });
  }
  state.counters["candidates"] = static_cast<double>(all.size());
  state.counters["weighed/s"] = benchmark::Counter(static_cast<double>(counts.weighed), benchmark::Counter::kIsRate);
  state.counters["refused"] = static_cast<double>(counts.refused) / static_cast<double>(state.iterations());
}

// A whole search of a scenario that plumb ships, as the planner does it: all layouts, microbatches, recompute modes and
// mesh orders, its table predicted by the longest path. How each candidate was disposed of is given apart: most are
// refused by their numbers alone.
void search_all(benchmark::State& state, const char* file) {
  const Scenario read = read_scenario(std::filesystem::path(PLUMB_SOURCE_DIR) / "scenarios" / file);
  const SearchSpace space(read);
  SearchResult found;
  for (auto _ : state) found = search(space, fast_weigher, predict_by_path, {.jobs = threads});
  std::int64_t by_numbers = 0;
  for (std::int64_t family = 0; family < space.families(); ++family) {
    by_numbers += space.refusal(family) ? space.splits() : 0;
  }
  std::map<LeftOutWhy, std::int64_t> left_out;
  for (const LeftOut& group : found.explanation) left_out[group.why] += group.candidates;
  const auto count = [&](const char* name, std::int64_t number) { state.counters[name] = static_cast<double>(number); };
  count("candidates", found.candidates);
  count("by_numbers", by_numbers);
  count("cannot_be_built", left_out[LeftOutWhy::cannot_be_built] - by_numbers);
  count("memory_bound", left_out[LeftOutWhy::memory_bound]);
  count("time_bound", left_out[LeftOutWhy::slower_by_bound]);
  count("weighed", found.planning.evaluated);
  state.counters["disposed/s"] =
      benchmark::Counter(static_cast<double>(found.candidates), benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK_CAPTURE(search_all, mt_nlg_530b_2520_gpus, "mt-nlg-530b-dgx-a100.yaml")
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();
BENCHMARK_CAPTURE(search_all, gpt_3_175b_64_gpus, "gpt-3-175b-64-a100.yaml")
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

BENCHMARK_CAPTURE(weigh_all, megatron_2022, "megatron-2022")
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime()
    ->Iterations(1);
BENCHMARK_CAPTURE(weigh_all, plumb, "plumb")->Unit(benchmark::kMillisecond)->UseRealTime()->Iterations(1);

// A GPT whose shapes every grid of up to 64 ranks divides (scenarios/tensor-grids.yaml).
const char* const open_kinds = R"(
model: {name: gpt-39b, vocabulary: 51200, hidden: 8192, heads: 64, ffn: 32768, layers: "full/dense*48",
        activation: gelu, norm: layernorm, bias: true, positions: learned, max_positions: 2048, tied_embeddings: false}
cluster: {machine: dgx-a100, nodes: 8}
training: {sequence: 2048, global_batch: 256, precision: bf16, microbatch: auto, recompute: [none, full]}
layout: {pipeline: auto, data: auto, tensor: {degree: DEGREE, sequence_parallel: auto, kind: KIND}, vocabulary: {over: OVER}}
schedule: [1f1b, zb-h1]
split: [uniform, dynamic]
)";

double user_seconds() {
  rusage used = {};
  ::getrusage(RUSAGE_THREAD, &used);
  return static_cast<double>(used.ru_utime.tv_sec) + 1e-6 * static_cast<double>(used.ru_utime.tv_usec);
}

struct WeighedSpace {
  double seconds_each = 0;  // of user time
  std::int64_t weighed = 0;
};

// All that a space has and nothing refuses, from empty caches.
WeighedSpace weigh_space(std::string_view degree, std::string_view kind, std::string_view over) {
  std::string yaml = open_kinds;
  for (const auto& [word, value] : {std::pair{"DEGREE", degree}, {"KIND", kind}, {"OVER", over}}) {
    yaml.replace(yaml.find(word), std::string_view(word).size(), value);
  }
  const Scenario scenario = read_scenario(YamlValue::parse(yaml, "kinds.yaml"), "kinds");
  const SearchSpace space(scenario);
  FastEvaluator fast(scenario);
  WeighedSpace result;
  const double before = user_seconds();
  for (std::int64_t family = 0; family < space.families(); ++family) {
    if (space.refusal(family)) continue;
    for (const SplitChoice& split : scenario.splits) {
      try {
        benchmark::DoNotOptimize(fast.weigh(space.family(family), split));
        ++result.weighed;
      } catch (const InputError&) {  // not counted, though it takes time
      }
    }
  }
  result.seconds_each = (user_seconds() - before) / static_cast<double>(result.weighed);
  return result;
}

double median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + std::ssize(values) / 2);
  return values[values.size() / 2];
}

// Two spaces in turns, so that the machine's mood is shared; user time of one thread, for each candidate that is
// weighed. Printed, not asserted. Counters are named after `one` and `other`.
template <class Weigh>
void compare_spaces(benchmark::State& state, const std::string& one, const std::string& other, const Weigh& weigh) {
  std::map<std::string, std::vector<double>> each;
  std::map<std::string, std::int64_t> weighed;
  std::vector<double> ratios;
  for (auto _ : state) {
    const bool first = ratios.size() % 2 == 0;
    for (const std::string& name : {first ? one : other, first ? other : one}) {
      const WeighedSpace space = weigh(name == other);
      each[name].push_back(space.seconds_each * 1e6);
      weighed[name] = space.weighed;
    }
    ratios.push_back(each[other].back() / each[one].back());
  }
  for (const std::string& name : {one, other}) {
    state.counters[name + "_weighed"] = static_cast<double>(weighed[name]);
    state.counters[name + "_us_each"] = median(each[name]);
  }
  state.counters[other + "_to_" + one] = median(ratios);
}

// The goal is a ratio of 1.2 at most.
void weigh_open_kinds(benchmark::State& state) {
  compare_spaces(state, "1d", "all", [](bool all) { return weigh_space("auto", all ? "auto" : "1d", "none"); });
}
BENCHMARK(weigh_open_kinds)->Unit(benchmark::kMillisecond)->UseRealTime()->Iterations(9);

// Of pipelines without tensor parallelism, whole vocabularies alone, or divided ones besides.
void weigh_open_vocabularies(benchmark::State& state) {
  compare_spaces(state, "whole", "open",
                 [](bool open) { return weigh_space("1", "1d", open ? "[none, pipeline]" : "none"); });
}
BENCHMARK(weigh_open_vocabularies)->Unit(benchmark::kMillisecond)->UseRealTime()->Iterations(9);

}  // namespace
}  // namespace plumb::bench

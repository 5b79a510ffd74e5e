// Trainings that are saved in one layout and go on in any other: the same weights and states, bit by bit, and the same
// losses where sums have the same order.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "exec/check/shards.hpp"
#include "exec/checkpoint/restore.hpp"
#include "exec/checkpoint/save.hpp"
#include "tests/catch.hpp"
#include "tests/common/schedule/shapes.hpp"
#include "tests/exec/stage/models.hpp"
#include "tests/exec/stage/pipelines.hpp"
#include "tests/exec/temporary_folder.hpp"

using namespace plumb;
using namespace plumb::exec;
namespace fs = std::filesystem;

namespace {

// Layouts of one `order` add up gradients in the same order: a pipeline's split changes none, data-parallel replicas
// and tensor groups do.
struct Arrangement {
  const char* schedule;
  int ranks;
  int data;
  Sharding sharding;
  int tensor;
  bool sequence_parallel;
  int order;
  Offload offload = {};
  int vocabulary_barriers = 0;
};
constexpr std::array arrangements{
    Arrangement{"zb-h1", 2, 1, Sharding::none, 1, false, 1},
    Arrangement{"interleaved-1f1b", 2, 1, Sharding::none, 1, false, 1},
    Arrangement{"1f1b", 2, 2, Sharding::zero1, 1, false, 2, {.optimizer = true}},
    Arrangement{"1f1b", 1, 2, Sharding::fsdp, 1, false, 2, {.parameters = true}},  // for each action
    Arrangement{"1f1b", 1, 4, Sharding::hsdp, 1, false, 4, {.optimizer = true}},   // once a step
    Arrangement{"1f1b", 2, 1, Sharding::none, 2, true, 3},
    Arrangement{"zb-h1", 2, 1, Sharding::none, 2, true, 5, {}, 2}};
constexpr int sequences = 4;  // of a step, in every layout
constexpr int before = 2;     // steps
constexpr int behind = 3;

Plan plan_of(const Model& model, ElementType precision, const Arrangement& of) {
  Plan plan = test::training_plan({.model = model,
                                   .schedule = of.schedule,
                                   .ranks = of.ranks,
                                   .chunks = fewest_chunks(of.schedule),
                                   .microbatches = std::max(1, sequences / 2 / of.data),
                                   .precision = precision,
                                   .data = of.data,
                                   .tensor = of.tensor,
                                   .sequence_parallel = of.sequence_parallel,
                                   .vocabulary_barriers = of.vocabulary_barriers});
  plan.training.microbatch = std::min(2, sequences / of.data);
  plan.training.global_batch = sequences;
  plan.training.offload = of.offload;
  DataLayout& data = plan.layout.data;
  data.sharding = of.sharding;
  data.reshard_after_forward = data.reduces_each_microbatch = of.sharding == Sharding::fsdp;
  if (of.sharding == Sharding::hsdp) data.shard = data.replicate = 2;
  return plan;
}

// Whole tensors, by weight, state, and whether it is what is saved or a narrower copy.
using Gathered = std::map<std::tuple<std::string, StateKind, bool>, std::vector<float>>;

struct Run {
  std::vector<double> losses = {};  // of the steps that were made
  Gathered states = {};             // when it had been restored, or else when it was saved
  NamedGradients weights = {};      // then, put together by the layout's placement
};

class Gathering {
 public:
  explicit Gathering(const Plan& plan)
      : index_(index_of(plan, "")),
        shards_(plan),
        holds_(shards_weights(plan.layout) ? Shards::Holds::part : Shards::Holds::all) {}

  void add(int rank, const std::vector<std::unique_ptr<Stage>>& stages) {
    different_ += shards_.add(rank, kept_weights(stages), holds_);
    for (const auto& stage : stages) {
      if (!stage) continue;
      for (const StatePart& part : stage->state_parts()) {
        std::vector<float> mine(static_cast<std::size_t>(elements(part.ranges)));
        part.read(0, mine);
        std::vector<float>& whole = states_[{part.weight, part.kind, part.saved}];
        if (whole.empty()) whole.assign(size_of(part.weight), std::nanf(""));
        auto next = mine.begin();
        for (const IndexRange& range : part.ranges) {
          for (std::int64_t i = range.begin; i < range.end; ++i, ++next) whole[static_cast<std::size_t>(i)] = *next;
        }
      }
    }
  }
  void put_into(Run& run) && {
    REQUIRE(different_.empty());
    for (const auto& [state, values] : states_)
      REQUIRE(std::ranges::none_of(values, [](float x) { return std::isnan(x); }));
    run.states = std::move(states_);
    run.weights = std::move(shards_).whole();
  }

 private:
  [[nodiscard]] std::size_t size_of(const std::string& weight) const {
    std::size_t size = 1;
    for (const std::int64_t extent : index_.tensors.at(weight).shape) size *= static_cast<std::size_t>(extent);
    return size;
  }

  CheckpointIndex index_;
  Shards shards_;
  Shards::Holds holds_;
  Gathered states_;
  std::string different_;
};

// Steps from `first` to `last`, from a checkpoint or from the beginning; saved into `save` behind step `save_after`.
struct Wish {
  int first = 0;
  int last = 0;
  const Checkpoint* from = nullptr;
  fs::path save = {};
  int save_after = 0;
};
Run run_of(const Plan& plan, const Wish& wish) {
  const Schedule lowered = lowered_schedule(plan);
  const int ranks = plumb::ranks(plan.layout);
  std::vector<RankLog> logs(static_cast<std::size_t>(ranks));
  Gathering gathering(plan);
  std::mutex mutex;
  run_on_threads(make_local_transports(ranks), [&](Transport& transport) {
    const int rank = transport.rank();
    begin_rank_thread(rank);
    StageOptions of_stages;
    of_stages.transport = &transport;
    const auto stages = make_stages(plan, rank, of_stages);
    const auto gather = [&] {
      const std::scoped_lock lock(mutex);
      gathering.add(rank, stages);
    };
    std::optional<CheckpointSaver> saver;
    if (!wish.save.empty()) saver.emplace(transport, stages, index_of(plan, ""), wish.save);
    if (wish.from != nullptr) {
      restore(*wish.from, stages);
      gather();
    }
    RankLog& log = logs[static_cast<std::size_t>(rank)];
    log.rank = rank;
    for (int step = wish.first; step < wish.last; ++step) {
      RunOptions options;
      options.first_step = step;
      const RankLog made = run_rank(plan, lowered, transport, stages, options);
      log.steps.push_back(made.steps.front());
      if (!saver || step + 1 != wish.save_after) continue;
      (void)saver->save(step + 1);
      gather();
    }
  });
  Run run;
  if (wish.last > wish.first) run.losses = test::losses_of(plan, logs);
  std::move(gathering).put_into(run);
  return run;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

void require_same_states(const Run& there, const Run& expected) {
  REQUIRE(there.weights.size() == expected.weights.size());
  for (const auto& [name, values] : expected.weights) {
    INFO(name);
    REQUIRE(same_bits(there.weights.at(name), values));
  }
  REQUIRE(there.states.size() == expected.states.size());
  for (const auto& [state, values] : expected.states) {
    INFO(std::get<0>(state) << ' ' << name_of(std::get<1>(state)));
    REQUIRE(same_bits(there.states.at(state), values));
  }
}

std::vector<double> last_of(const std::vector<double>& losses, int count) {
  return {losses.end() - count, losses.end()};
}

}  // namespace

TEST_CASE("a training that is saved in one of seven layouts goes on in each other one") {
  struct Case {
    Model model;
    ElementType precision;
    double tolerance;  // of a loss, where sums have another order
    bool in_each;      // else in the next one of the list
  };
  const Case of = GENERATE(Case{test::gpt2(4, true), ElementType::fp32, 1e-4, true},
                           Case{test::hybrid(), ElementType::bf16, 2e-2, false});
  const TemporaryFolder folder;
  std::vector<Run> uninterrupted;
  for (std::size_t source = 0; source < arrangements.size(); ++source) {
    uninterrupted.push_back(
        run_of(plan_of(of.model, of.precision, arrangements[source]),
               {.last = before + behind, .save = folder / std::to_string(source), .save_after = before}));
  }
  for (std::size_t source = 0; source < arrangements.size(); ++source) {
    const std::optional<Checkpoint> saved = find_checkpoint(folder / std::to_string(source));
    REQUIRE(saved);
    CHECK(saved->index.step == before);
    const std::vector<double> expected = last_of(uninterrupted[source].losses, behind);
    for (std::size_t number = 0; number < arrangements.size(); ++number) {
      if (!of.in_each && number != (source + 1) % arrangements.size()) continue;
      const Arrangement& target = arrangements[number];
      const bool same_order = target.order == arrangements[source].order;
      const int steps = same_order ? behind : 1;
      const Plan plan = plan_of(of.model, of.precision, target);
      INFO(of.model.name << ": from " << saved->index.layout << ' ' << saved->index.schedule << " to "
                         << describe(plan.layout) << ' ' << target.schedule);
      CHECK(require_fits(*saved, plan, "").empty());
      const Run resumed = run_of(plan, {.first = before, .last = before + steps, .from = &*saved});
      require_same_states(resumed, uninterrupted[source]);
      if (same_order) {
        CHECK(resumed.losses == expected);
      } else {
        CHECK(resumed.losses.front() == Approx(expected.front()).epsilon(of.tolerance));
      }
    }
  }
}

// Of a matrix each rank of a grid has a part of both dimensions, of 2.5d others the same.
TEST_CASE("a training on a grid goes on on other grids and on one device, and theirs there") {
  const std::vector<TensorLayout> layouts{{},
                                          {.degree = 4, .kind = TensorKind::two_d},
                                          {.degree = 8, .kind = TensorKind::two_and_half_d, .depth = 2},
                                          {.degree = 8, .kind = TensorKind::three_d}};
  const auto plan_on = [](const TensorLayout& tensor) {
    return test::training_plan({.model = test::gpt2(2, false),
                                .ranks = 2,
                                .microbatches = 1,
                                .precision = ElementType::bf16,
                                .tensor = tensor.degree,
                                .kind = tensor.kind,
                                .depth = tensor.depth,
                                .microbatch = 4});
  };
  for (std::size_t source = 0; source < layouts.size(); ++source) {
    const TemporaryFolder folder;
    const Plan plan = plan_on(layouts[source]);
    const Run whole = run_of(plan, {.last = before + 1, .save = folder / "saved", .save_after = before});
    const std::optional<Checkpoint> saved = find_checkpoint(folder / "saved");
    REQUIRE(saved);
    const Plan other = plan_on(layouts[(source + 1) % layouts.size()]);
    INFO("from " << saved->index.layout << " to " << describe(other.layout));
    CHECK(require_fits(*saved, other, "").empty());
    const Run resumed = run_of(other, {.first = before, .last = before + 1, .from = &*saved});
    require_same_states(resumed, whole);
    CHECK(resumed.losses.front() == Approx(whole.losses.back()).epsilon(2e-2));
    const Run again = run_of(plan, {.first = before, .last = before + 1, .from = &*saved});
    CHECK(again.losses == last_of(whole.losses, 1));
  }
}

// Frozen weights and adapters; copies of stages in both directions; several updates a step, which leave other tensors
// in the weights' places; SGD, which has no moments.
TEST_CASE("LoRA, two replicas in one pipeline, updates within a step and SGD go on where they were") {
  std::vector<Plan> plans;
  const auto add = [&](const Model& model, const char* schedule, int ranks, ElementType precision) -> Plan& {
    return plans.emplace_back(plan_of(model, precision, {schedule, ranks, 1, Sharding::none, 1, false, 1}));
  };
  add(test::mixtral(2), "1f1b", 2, ElementType::bf16).training.lora =
      Lora{.rank = 2, .alpha = 4, .targets = {LoraTarget::query, LoraTarget::experts}};
  add(test::gpt2(4, true), "chimera", 2, ElementType::fp32);
  add(test::mixtral(2), "pipedream", 2, ElementType::bf16);
  add(test::llama(2), "pipedream-2bw", 2, ElementType::fp32);
  add(test::llama(2), "1f1b", 2, ElementType::bf16).training.optimizer = Optimizer::sgd;
  for (const Plan& plan : plans) {
    INFO(plan.name);
    const TemporaryFolder folder;
    const Run whole = run_of(plan, {.last = before + behind, .save = folder / "saved", .save_after = before});
    const std::optional<Checkpoint> saved = find_checkpoint(folder / "saved");
    REQUIRE(saved);
    const int every = plan.schedule.update_every == 0 ? plan.schedule.microbatches : plan.schedule.update_every;
    CHECK(saved->index.updates == before * (plan.schedule.microbatches / every));
    const Run resumed = run_of(plan, {.first = before, .last = before + behind, .from = &*saved});
    require_same_states(resumed, whole);
    CHECK(resumed.losses == last_of(whole.losses, behind));
    // Whole on one rank.
    Plan alone = plan_of(plan.model, plan.training.precision, {"1f1b", 1, 1, Sharding::none, 1, false, 1});
    alone.training = plan.training;
    require_same_states(run_of(alone, {.from = &*saved}), whole);
    if (!plan.training.lora) continue;
    // Frozen weights and adapters of ranks that share them out, there and back.
    Plan parts = plan_of(plan.model, plan.training.precision, arrangements[3]);
    parts.training = plan.training;
    require_same_states(run_of(parts, {.from = &*saved}), whole);
    const Run shared = run_of(parts, {.last = before, .save = folder / "shared", .save_after = before});
    const std::optional<Checkpoint> of_parts = find_checkpoint(folder / "shared");
    REQUIRE(of_parts);
    require_same_states(run_of(alone, {.from = &*of_parts}), shared);
  }
}

// A model's first weights come of its seed and their names alone: the same bits however ranks hold them.
#include "exec/check/shards.hpp"
#include "exec/launch/launch.hpp"
#include "exec/transport/local/local.hpp"
#include "tests/catch.hpp"
#include "tests/exec/stage/models.hpp"
#include "tests/exec/stage/sharding/sharded_runs.hpp"

using namespace plumb;
using namespace plumb::exec;
using test::Rule;

namespace {

struct Held {
  std::vector<NamedGradients> by_rank;
  NamedGradients whole;
};

// As each rank of the layout makes its stages.
Held first_weights(const Plan& plan) {
  Held made;
  const int count = ranks(plan.layout);
  made.by_rank.resize(static_cast<std::size_t>(count));
  run_on_threads(make_local_transports(count), [&](Transport& transport) {
    const int rank = transport.rank();
    begin_rank_thread(rank);
    StageOptions options;
    options.transport = &transport;
    made.by_rank[static_cast<std::size_t>(rank)] = kept_weights(make_stages(plan, rank, options));
  });
  Shards shards(plan);
  const auto holds = shards_weights(plan.layout) ? Shards::Holds::part : Shards::Holds::all;
  for (int rank = 0; rank < count; ++rank) {
    INFO("rank " << rank);
    CHECK(shards.add(rank, made.by_rank[static_cast<std::size_t>(rank)], holds) == "");  // copies are equal
  }
  made.whole = std::move(shards).whole();
  return made;
}

std::size_t elements(const NamedGradients& held) {
  std::size_t count = 0;
  for (const auto& [name, values] : held) count += values.size();
  return count;
}

struct Degrees {
  const char* schedule = "1f1b";
  int ranks = 1;
  int chunks = 1;
  int tensor = 1;
  bool sequence_parallel = false;
  int data = 1;
};

}  // namespace

TEST_CASE("the first weights are the same bits at every layout") {
  const test::Family family = test::families.at(GENERATE(range(std::size_t{0}, test::families.size())));
  const auto precision = GENERATE(ElementType::fp32, ElementType::bf16);
  const auto plan_of = [&](const Degrees& mesh) {
    return test::training_plan({.model = test::of_four(family(4)),
                                .schedule = mesh.schedule,
                                .ranks = mesh.ranks,
                                .chunks = mesh.chunks,
                                .precision = precision,
                                .data = mesh.data,
                                .tensor = mesh.tensor,
                                .sequence_parallel = mesh.sequence_parallel});
  };
  const NamedGradients alone = first_weights(plan_of({})).whole;
  REQUIRE(elements(alone) > 0);
  const Rule none{Sharding::none};
  for (const auto& [mesh, rule] : std::vector<std::pair<Degrees, Rule>>{
           {{.ranks = 4}, none},
           {{.schedule = "interleaved-1f1b", .ranks = 2, .chunks = 2}, none},
           {{.schedule = "zb-v", .ranks = 2, .chunks = 2}, none},
           {{.tensor = 4, .sequence_parallel = true}, none},
           {{.data = 2}, none},
           {{.data = 4}, none},
           {{.data = 4}, {Sharding::zero1}},
           {{.data = 4}, {Sharding::zero2, false, true}},
           {{.data = 3}, {Sharding::zero3, true, true}},  // which divide few of them
           {{.data = 4}, {Sharding::fsdp}},
           {{.data = 4}, {Sharding::hsdp, true, true, true, 2}},
           {{.ranks = 2, .data = 2}, {Sharding::fsdp, true}},
           {{.schedule = "zb-h1", .ranks = 2, .tensor = 2, .data = 2}, none},
           {{.schedule = "zb-h1", .ranks = 2, .tensor = 2, .sequence_parallel = true, .data = 2}, {Sharding::zero1}},
           {{.ranks = 2, .tensor = 2, .sequence_parallel = true, .data = 2}, {Sharding::fsdp, true, true}}}) {
    const Plan plan = test::sharded(plan_of(mesh), rule);
    INFO(test::text(plan) << (mesh.sequence_parallel ? ", sp" : ""));
    const Held held = first_weights(plan);
    CHECK(held.whole == alone);
    // Not that each has all: of what is divided a rank has less.
    const bool divided = mesh.ranks * mesh.tensor > 1 || shards_weights(plan.layout);
    for (const NamedGradients& of_rank : held.by_rank) CHECK((elements(of_rank) < elements(alone)) == divided);
  }
}

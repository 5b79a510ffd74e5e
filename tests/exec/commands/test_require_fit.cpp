// What is refused for want of memory before anything is allocated: copies that are saved beside the steps count.
#include "exec/commands/require_fit.hpp"

#include "common/base/host/available_memory.hpp"
#include "exec/checkpoint/checkpoint_folder.hpp"
#include "exec/host/enough_memory.hpp"
#include "tests/catch.hpp"
#include "tests/exec/program_here.hpp"

using namespace plumb;
using namespace plumb::exec;

TEST_CASE("an asynchronous save copies the bytes of the files, or the ranks' share of them") {
  const TemporaryFolder folder;
  for (const char* const more : {"", ", lora: {rank: 2}"}) {
    const Plan plan = tiny_plan({.more_of_training = more});
    const std::string file = folder.write("plan.json", to_json(plan));
    const std::string saved = folder / (std::string("saved") + (*more == '\0' ? "" : "-lora"));
    REQUIRE(run_here({"run", file, "--steps", "1", "--save", saved}).status == 0);
    const auto found = find_checkpoint(saved);
    REQUIRE(found);
    std::int64_t bytes = 0;
    for (const CheckpointFile& of_rank : found->index.files) {
      for (const CheckpointPiece& piece : of_rank.pieces) bytes += elements(piece) * element_bytes(piece.type);
    }
    CHECK(bytes_of_states(found->index) == Bytes{bytes});
  }
  const Plan copies = tiny_plan({.data = 2});
  const Bytes all = bytes_of_states(index_of(copies, ""));
  CHECK(copied_to_save(copies, {0, 1, 2, 3}) == all);
  // Rank 0 has the first of two stages, as a copy has.
  CHECK(copied_to_save(copies, {0}) == states_of_ranks(copies, {0}));
  CHECK(copied_to_save(copies, {0}) < all);
}

TEST_CASE(
    "a host that has room for the ranks, and not for copies of their states, is refused with asynchronous saves") {
  const auto there = available_memory();
  if (!there) return;
  Plan plan = tiny_plan({});
  plan.model.vocabulary = std::int64_t{1} << 40;  // a checkpoint of more than any host has
  for (ComputeCost& cost : plan.costs.stages) cost.parameter_bytes = {there->value / 10 * 3};
  const std::vector<PreparedPlan> plans{{.plan = plan, .lowered = lowered_schedule(plan)}};
  SessionOptions options;
  CHECK_NOTHROW(require_fit(plans, options, {0, 1}, this_host()));
  options.checkpoint.beside = true;
  CHECK_THROWS_AS(require_fit(plans, options, {0, 1}, this_host()), InputError);
  CHECK_THROWS_WITH(require_fit(plans, options, {0, 1}, this_host()),
                    ContainsSubstring("its 2 ranks here take") && ContainsSubstring("without --asynchronous-save"));
}

// Folders of checkpoints: only whole ones count, leftovers are known, old ones go.
#include "exec/checkpoint/checkpoint_folder.hpp"

#include <sys/resource.h>

#include <atomic>
#include <csignal>
#include <limits>

#include "common/base/files.hpp"
#include "exec/checkpoint/folder_lock.hpp"
#include "tests/catch.hpp"
#include "tests/exec/checkpoint/made_up_run.hpp"
#include "tests/exec/temporary_folder.hpp"

using namespace plumb;
using namespace plumb::exec;
using namespace plumb::exec::test;
namespace fs = std::filesystem;

namespace {

void save_here(const fs::path& folder, const std::vector<std::int64_t>& steps, std::int64_t keep = 0) {
  const CheckpointIndex index = index_of(small_plan(), "");
  save_run(1, index, all_of, drawn_states(index), folder, steps, keep);
}

}  // namespace

TEST_CASE("names of checkpoints sort by step, and only such names are theirs") {
  CHECK(checkpoint_name(10) == "step-000010");
  CHECK(checkpoint_name(12'345'678) == "step-12345678");
  for (const std::int64_t step : {0, 7, 999'999, 1'000'000, 123'456'789}) {
    CHECK(step_of_checkpoint(checkpoint_name(step)) == step);
  }
  for (const char* const other : {"step-", "step-10", "step-0000010", "step-00001x", "step--00001",
                                  "step-000010.partial", "step-99999999999999999999", "checkpoint", ""}) {
    CHECK_FALSE(step_of_checkpoint(other));
  }
}

TEST_CASE("half-written checkpoints are never taken, and their leftovers are known and removed") {
  const TemporaryFolder folder;
  const fs::path in = folder / "saved";
  CHECK_FALSE(find_checkpoint(in));
  CHECK(look_into(in).steps.empty());
  save_here(in, {3, 7});
  // As runs leave it that are killed while they write, before or behind the index, and while they remove one.
  fs::create_directory(in / "step-000009.partial");
  write_file(in / "step-000009.partial/rank-00000.safetensors", "half");
  fs::copy(in / "step-000007", in / "step-000011.partial");
  fs::create_directory(in / "step-000001.removed");
  fs::create_directory(in / "step-000013");  // no index
  fs::create_directory(in / "mine.partial");
  const CheckpointFolder found = look_into(in);
  CHECK(found.steps == std::vector<std::int64_t>{3, 7});
  CHECK(found.leftovers ==
        std::vector<std::string>{"step-000001.removed", "step-000009.partial", "step-000011.partial"});
  CHECK(found.without_index == std::vector<std::int64_t>{13});
  REQUIRE(find_checkpoint(in));
  CHECK(find_checkpoint(in)->index.step == 7);
  CHECK(find_checkpoint(in / "step-000003")->index.step == 3);
  CHECK(remove_leftovers(in, found).size() == 3);
  CHECK(look_into(in).leftovers.empty());
  CHECK(fs::exists(in / "mine.partial"));
  CHECK_THROWS_AS(find_checkpoint(folder.write("file", "text")), InputError);
}

TEST_CASE("remains of an old checkpoint may stay where they cannot be removed, half-written files may not") {
  const TemporaryFolder folder;
  const std::string longer_than_any(300, 'x');
  const std::vector<std::string> said = remove_leftovers(folder / "", {.leftovers = {longer_than_any + ".removed"}});
  REQUIRE(said.size() == 1);
  CHECK_THAT(said.front(), ContainsSubstring(".removed: could not be removed: "));
  CHECK_THROWS_AS(remove_leftovers(folder / "", {.leftovers = {longer_than_any + ".partial"}}), RunError);
}

TEST_CASE("a checkpoint whose index cannot be looked at is not passed over") {
  const TemporaryFolder folder;
  const fs::path in = folder / "saved";
  save_here(in, {1});
  fs::create_directory(in / "step-000002");
  fs::create_symlink(index_name, in / "step-000002" / index_name);  // to itself, which no user may follow
  const auto said = ContainsSubstring("step-000002/index.json: cannot be looked at: ");
  CHECK_THROWS_WITH(look_into(in), said);
  CHECK_THROWS_WITH(find_checkpoint(in), said);
  CHECK_THROWS_WITH(find_checkpoint(in / "step-000002"), said);
}

TEST_CASE("the newest are kept, and what cannot be written leaves the ones before it as they are") {
  const TemporaryFolder folder;
  const fs::path in = folder / "saved";
  save_here(in, {1, 2, 3, 4}, 2);
  CHECK(look_into(in).steps == std::vector<std::int64_t>{3, 4});
  // Something stands where the checkpoint is to be.
  fs::create_directory(in / "step-000005");
  write_file(in / "step-000005/notes", "mine");
  CHECK_THROWS_WITH(save_here(in, {5}), ContainsSubstring("step-000005") && ContainsSubstring("could not be renamed"));
  CHECK(look_into(in).steps == std::vector<std::int64_t>{3, 4});
  CHECK(look_into(in).leftovers.empty());
  CHECK(fs::exists(in / "step-000005/notes"));
  write_file(folder / "blocked", "a file");
  CHECK_THROWS_AS(save_here(folder / "blocked", {1}), RunError);
}

TEST_CASE("the checkpoints of another training in the same folder, and damaged ones, neither count nor go") {
  const TemporaryFolder folder;
  const fs::path in = folder / "saved";
  CheckpointIndex other = index_of(small_plan(), "another text");
  save_run(1, other, all_of, drawn_states(other), in, {1, 3});
  save_here(in, {2, 4});
  save_here(in, {5});
  write_file(in / "step-000004" / index_name, "damaged");
  const std::string own = index_of(small_plan(), "").training_id;
  CHECK(by_training(in, own).own == std::vector<std::int64_t>{2, 5});
  CHECK(by_training(in, own).others == std::vector<std::int64_t>{1, 3, 4});
  save_here(in, {6, 7}, 2);
  CHECK(look_into(in).steps == std::vector<std::int64_t>{1, 3, 4, 6, 7});
  // One that somebody removes meanwhile is no trouble.
  std::vector<std::int64_t> steps{2, 6, 7};
  keep_newest(in, steps, 1);
  CHECK(steps == std::vector<std::int64_t>{7});
  CHECK(look_into(in).steps == std::vector<std::int64_t>{1, 3, 4, 7});
}

TEST_CASE("one that cannot be removed ends the run with its name, and says that the new one is saved") {
  const TemporaryFolder folder;
  const fs::path in = folder / "saved";
  save_here(in, {1, 2});
  // Into a folder that is not empty none can be renamed, by whatever user.
  fs::create_directories(in / "step-000001.removed/full");
  CHECK_THROWS_WITH(save_here(in, {3}, 2), ContainsSubstring("step-000001: could not be removed") &&
                                               ContainsSubstring("; step-000003 is saved"));
  CHECK(look_into(in).steps == std::vector<std::int64_t>{1, 2, 3});
}

TEST_CASE("an asynchronous save leaves nothing behind if the run ends before it is complete") {
  const TemporaryFolder folder;
  const fs::path in = folder / "saved";
  const CheckpointIndex index = index_of(small_plan(), "");
  const States states = drawn_states(index);
  const Holding halves = [](int rank, const std::string&, std::int64_t elements) {
    return rank == 0 ? IndexRanges{{0, elements / 2}} : IndexRanges{{elements / 2, elements}};
  };
  run_on_threads(make_local_transports(2), [&](Transport& transport) {
    const Stages stages = stages_of_rank(transport.rank(), index, halves, states, true);
    CheckpointSaver saver(transport, stages, index, in);
    (void)saver.save(1);
    saver.begin(2);
  });
  CHECK(look_into(in).steps == std::vector<std::int64_t>{1});
  CHECK(look_into(in).leftovers.empty());
}

TEST_CASE("a file that is stopped while it is written is gone") {
  const TemporaryFolder folder;
  const std::atomic<bool> stop{true};
  StoredStage stage({StoredStage::Held{.weight = "a", .ranges = {{0, 2}}, .values = {1, 2}}});
  WrittenPart part{.part = stage.state_parts().front(), .shape = {2}, .ranges = {{0, 2}}, .stretches = {{0, 0, 2}}};
  const fs::path file = folder / "rank-00000.safetensors";
  CHECK_THROWS_WITH(write_parts(file, {part}, &stop), ContainsSubstring("the run was stopped"));
  CHECK_FALSE(fs::exists(file));
  CHECK(write_parts(file, {part}).pieces.size() == 1);
}

TEST_CASE("values that are not finite are not saved, and earlier checkpoints stay") {
  const TemporaryFolder folder;
  const fs::path in = folder / "saved";
  save_here(in, {1}, 1);
  const CheckpointIndex index = index_of(small_plan(), "");
  const float lost = GENERATE(std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity());
  States states = drawn_states(index);
  states.begin()->second.back() = lost;
  CHECK_THROWS_WITH(save_run(1, index, all_of, states, in, {2}, 1), ContainsSubstring("no finite numbers"));
  CHECK(look_into(in).steps == std::vector<std::int64_t>{1});
  CHECK(look_into(in).leftovers.empty());
}

TEST_CASE("one run at a time has a folder, and what it leaves keeps nobody out") {
  const TemporaryFolder folder;
  {
    const FolderLock first(folder / "");
    CHECK_THROWS_AS(FolderLock(folder / ""), InputError);
    CHECK_THROWS_WITH(FolderLock(folder / ""),
                      ContainsSubstring(folder / "") && ContainsSubstring("another run saves its checkpoints there"));
  }
  const FolderLock second(folder / "");
  CHECK(fs::exists(folder / lock_name));
  CHECK(look_into(folder / "").leftovers.empty());
}

TEST_CASE("folders that were made for a run go again if it leaves nothing in them, and no others") {
  const TemporaryFolder folder;
  {
    const FolderLock lock(folder / "training/runs/one");
    CHECK(fs::exists(fs::path(folder / "training/runs/one") / lock_name));
    CHECK_THROWS_AS(FolderLock(folder / "training/runs/one"), InputError);
  }
  CHECK(fs::is_empty(folder / ""));
  {
    const FolderLock lock(folder / "training/runs/two/");
    write_file(folder / "training/log.jsonl", "");
  }
  CHECK(fs::exists(folder / "training/log.jsonl"));
  CHECK(!fs::exists(folder / "training/runs"));
  {
    const FolderLock lock(folder / "training");  // was there
  }
  CHECK(fs::exists(fs::path(folder / "training") / lock_name));
  {
    const FolderLock lock(folder / "three");
    write_file(folder / "three/model.safetensors", "");
  }
  CHECK(fs::exists(fs::path(folder / "three") / lock_name));
  write_file(folder / "file", "");
  CHECK_THROWS_WITH(FolderLock(folder / "file/runs"), ContainsSubstring("cannot be made"));
}

// A stage that cannot be read stands for what is no error of plumb's: no memory for a copy, no thread to write one.
TEST_CASE("an interrupted save leaves no half folder, and the other ranks learn why first") {
  const TemporaryFolder folder;
  CheckpointIndex index = index_of(small_plan(), "");
  index.training.optimizer = Optimizer::sgd;
  index.tensors = {{"large", {.shape = {8}}}};
  for (const bool beside : {false, true}) {
    const fs::path in = folder / (beside ? "beside" : "between");
    std::string told;
    const auto save = [&] {
      run_on_threads(make_local_transports(2), [&](Transport& transport) {
        const bool first = transport.rank() == 0;
        StoredStage::Held held{.weight = "large", .ranges = {{first ? 0 : 4, first ? 4 : 8}}, .values = {1, 2, 3, 4}};
        if (first) held.values.resize(1);
        Stages stages;
        stages.push_back(std::make_unique<StoredStage>(std::vector<StoredStage::Held>{std::move(held)}));
        CheckpointSaver saver(transport, stages, index, in);
        try {
          beside ? saver.begin(1) : (void)saver.save(1);
          if (beside) (void)saver.finish();
        } catch (const RunError&) {
          if (!first) throw;
          try {
            transport.barrier(Clock::now());
          } catch (const RunError& error) {
            told = error.what();
          }
          throw;
        }
      });
    };
    CHECK_THROWS_WITH(save(), ContainsSubstring("rank 0: cannot save step-000001: large"));
    CHECK_THAT(told, ContainsSubstring("rank 0: cannot save step-000001: large"));
    // Once every rank has ended: one that still wrote when rank 0 removed the folder is the last to leave it, and
    // takes it along.
    CHECK(look_into(in).leftovers.empty());
  }
}

// A limit of the system's on the size of files stands for a disk without room: what is written fails half-way.
TEST_CASE("ranks that cannot write theirs end with the system's reason, and the checkpoint before it stays") {
  const TemporaryFolder folder;
  const fs::path in = folder / "saved";
  const CheckpointIndex index = index_of(small_plan(), "");
  const States states = drawn_states(index);
  const Holding halves = [](int rank, const std::string&, std::int64_t elements) {
    return rank == 0 ? IndexRanges{{0, elements / 2}} : IndexRanges{{elements / 2, elements}};
  };
  save_run(2, index, halves, states, in, {1});
  struct rlimit before = {};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  auto* const handler = ::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit small = {.rlim_cur = 10'000, .rlim_max = before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  std::string said;
  try {
    save_run(2, index, halves, states, in, {2});
  } catch (const RunError& error) {
    said = error.what();
  }
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, handler);
  CHECK_THAT(said, ContainsSubstring("safetensors: could not be written: File too large"));
  CHECK(look_into(in).steps == std::vector<std::int64_t>{1});
  CHECK(find_checkpoint(in)->index.step == 1);
  save_run(2, index, halves, states, in, {2});
  CHECK(look_into(in).steps == std::vector<std::int64_t>{1, 2});
}

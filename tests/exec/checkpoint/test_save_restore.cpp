// Checkpoints of ranks that hold anything of anything: each element comes back wherever it is wanted, bit by bit.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <set>
#include <utility>

#include "common/base/document/json.hpp"
#include "common/base/files.hpp"
#include "exec/checkpoint/crc32c.hpp"
#include "exec/data/safetensors.hpp"
#include "exec/data/safetensors_file.hpp"
#include "tests/catch.hpp"
#include "tests/exec/checkpoint/made_up_run.hpp"
#include "tests/exec/temporary_folder.hpp"

using namespace plumb;
using namespace plumb::exec;
using namespace plumb::exec::test;
namespace fs = std::filesystem;

namespace {

// Parts of each tensor by rank: cut at random places, some of them on two ranks.
Holding drawn_holding(int ranks, unsigned seed) {
  return [=](int rank, const std::string& weight, std::int64_t elements) {
    std::mt19937 random(seed + static_cast<unsigned>(std::hash<std::string>()(weight)));
    IndexRanges mine;
    for (std::int64_t at = 0; at < elements;) {
      const std::int64_t next = std::min(elements, at + 1 + static_cast<std::int64_t>(random() % 700));
      const int first = static_cast<int>(random() % static_cast<unsigned>(ranks));
      const int second = static_cast<int>(random() % static_cast<unsigned>(ranks));
      if (rank == first || rank == second) mine.push_back({at, next});
      at = next;
    }
    return mine;
  };
}

void require_restored(const Checkpoint& checkpoint, int ranks, const Holding& holding, const States& states) {
  for (int rank = 0; rank < ranks; ++rank) {
    const Stages wanted = stages_of_rank(rank, checkpoint.index, holding, states, true);
    const Stages stages = stages_of_rank(rank, checkpoint.index, holding, states, false);
    restore(checkpoint, stages);
    const auto& there = dynamic_cast<const StoredStage&>(*stages.back());
    const auto& expected = dynamic_cast<const StoredStage&>(*wanted.back());
    REQUIRE(there.held().size() == expected.held().size());
    for (std::size_t i = 0; i < expected.held().size(); ++i) {
      INFO("rank " << rank << ", " << expected.held()[i].weight);
      REQUIRE((there.held()[i].values == expected.held()[i].values));
    }
    CHECK(there.updates() == checkpoint.index.updates);
  }
}

// What restoring says of a checkpoint after `damage` to it.
std::string problem_after(const std::function<void(const fs::path& checkpoint)>& damage) {
  const TemporaryFolder folder;
  const Plan plan = small_plan();
  const CheckpointIndex index = index_of(plan, "text");
  const States states = drawn_states(index);
  save_run(1, index, all_of, states, folder / "saved", {3});
  damage(folder / "saved/step-000003");
  try {
    const auto found = find_checkpoint(folder / "saved");
    if (!found) return "none";
    (void)require_fits(*found, plan, "text");
    restore(*found, stages_of_rank(0, index, all_of, states, false));
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

// An element of a piece in rank 0's file, with a checksum that is right, as others may have written it.
void make_no_number(const fs::path& checkpoint, const std::string& weight, StateKind kind, std::int64_t element) {
  const std::string index_file = (checkpoint / index_name).string();
  CheckpointIndex index = parse_index(read_file(index_file), index_file);
  const auto piece = std::ranges::find_if(
      index.files[0].pieces, [&](const CheckpointPiece& each) { return each.weight == weight && each.kind == kind; });
  const fs::path path = checkpoint / index.files[0].name;
  const StoredTensor tensor = SafetensorsFile(path).at(tensor_name(*piece));
  std::vector<std::byte> bytes(static_cast<std::size_t>(tensor.elements * tensor.element_bytes));
  SafetensorsFile(path).read_bytes(tensor, 0, bytes);
  const float lost = std::nanf("");
  put_values(piece->type, std::span(&lost, 1),
             std::span(bytes).subspan(static_cast<std::size_t>(element * tensor.element_bytes),
                                      static_cast<std::size_t>(tensor.element_bytes)));
  piece->checksums = {crc32c(bytes)};
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(tensor.begin);
  file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  write_file(index_file, to_json(index));
}

// A byte, from the end of a file.
void change(const fs::path& path, std::size_t from_end) {
  std::string text = read_file(path);
  text[text.size() - from_end] ^= 1;
  write_file(path, text);
}

}  // namespace

TEST_CASE("a checkpoint of one layout is restored to any other layout") {
  const Plan plan = small_plan();
  for (const int saved_by : {1, 3}) {
    const TemporaryFolder folder;
    CheckpointIndex index = index_of(plan, "text");
    for (auto& [name, tensor] : index.tensors) tensor.frozen = name.ends_with("norm.weight");  // kept in bf16
    States states = drawn_states(index);
    for (auto& [state, values] : states) {
      // bf16 has eight bits: such values exactly.
      if (index.tensors.at(state.first).frozen) std::ranges::fill(values, 1.5F);
    }
    save_run(saved_by, index, saved_by == 1 ? Holding(all_of) : drawn_holding(saved_by, 1), states, folder / "saved",
             {12});
    const auto found = find_checkpoint(folder / "saved");
    REQUIRE(found);
    CHECK(found->index.step == 12);
    CHECK(found->index.updates == 7);
    CHECK(found->index.sequences == 12 * plan.training.global_batch);
    require_whole(found->index, "index");
    // Each element is in one file.
    std::int64_t elements_there = 0;
    for (const CheckpointFile& file : found->index.files) {
      const SafetensorsFile there(found->folder / file.name);
      CHECK(there.tensors().size() == file.pieces.size());
      for (const auto& [name, tensor] : there.tensors()) elements_there += tensor.elements;
    }
    std::size_t elements_wanted = 0;
    for (const auto& [state, values] : states) elements_wanted += values.size();
    CHECK(elements_there == static_cast<std::int64_t>(elements_wanted));
    for (const int restored_by : {1, 2, 4}) {
      CAPTURE(saved_by, restored_by);
      require_restored(*found, restored_by, drawn_holding(restored_by, 2), states);
    }
  }
}

TEST_CASE("a checkpoint that is written beside the next steps has what was there when it was begun") {
  const TemporaryFolder folder;
  const fs::path in = folder / "saved";
  CheckpointIndex index = index_of(small_plan(), "text");
  index.tensors.at("final_norm.weight").frozen = true;  // kept in bf16, which has 1.5 exactly
  States states = drawn_states(index);
  std::ranges::fill(states.at({"final_norm.weight", StateKind::weight}), 1.5F);
  const Holding holding = drawn_holding(2, 9);
  run_on_threads(make_local_transports(2), [&](Transport& transport) {
    const Stages stages = stages_of_rank(transport.rank(), index, holding, states, true);
    CheckpointSaver saver(transport, stages, index, in);
    for (const std::int64_t step : {4, 8}) {
      saver.begin(step);
      for (StatePart& part : stages.back()->state_parts()) {
        part.write(0, std::vector<float>(static_cast<std::size_t>(elements(part.ranges)), static_cast<float>(step)));
      }
      stages.back()->resume_updates(8);
      if (step == 8) {
        if (saver.finish() != in / "step-000008") throw std::logic_error("another folder");
        continue;
      }
      std::optional<fs::path> done;
      while (!done) done = saver.finish_if_written();
      if (!saver.is_pending() && *done == in / "step-000004") continue;
      throw std::logic_error("it is still pending");
    }
  });
  const Checkpoint first = *find_checkpoint(in / "step-000004");
  CHECK(first.index.updates == 7);
  require_restored(first, 3, drawn_holding(3, 1), states);
  States fours = states;
  for (auto& [state, values] : fours) std::ranges::fill(values, 4.0F);
  const Checkpoint second = *find_checkpoint(in);
  CHECK(second.index.updates == 8);
  require_restored(second, 1, all_of, fours);
}

// More elements than a checksum is of, so that a piece has several blocks.
TEST_CASE("pieces of several blocks come back, and only the blocks that are read are checked") {
  const TemporaryFolder folder;
  const std::int64_t size = 2 * block_elements + 5;
  std::vector<float> values(static_cast<std::size_t>(size));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 1000003);
  CheckpointIndex index = index_of(small_plan(), "");
  index.training.optimizer = Optimizer::sgd;
  index.tensors = {{"large", {.shape = {size}}}};
  const States states{{{"large", StateKind::weight}, values}};
  save_run(1, index, all_of, states, folder / "saved", {1});
  const auto found = find_checkpoint(folder / "saved");
  REQUIRE(found);
  CHECK(found->index.files.front().pieces.front().checksums.size() == 3);
  require_restored(*found, 1, all_of, states);
  change(found->folder / rank_file_name(0), 4);  // of the last block
  const Holding first_block = [](int, const std::string&, std::int64_t) {
    return IndexRanges{{block_elements - 1, block_elements + 1}};
  };
  require_restored(*found, 1, first_block, states);
  const Holding last_block = [&](int, const std::string&, std::int64_t all) { return IndexRanges{{all - 1, all}}; };
  CHECK_THROWS_WITH(
      require_restored(*found, 1, last_block, states),
      ContainsSubstring("rank-00000.safetensors: has been altered") && ContainsSubstring("from element 2097152 on"));
}

TEST_CASE("a checkpoint that is damaged is refused with its file, what is wrong, and what to move out of the way") {
  const std::string file = rank_file_name(0);
  const auto hint = ContainsSubstring("step-000003: the newest before it is then what --resume takes");
  CHECK(problem_after([](const fs::path&) {}).empty());
  CHECK_THAT(problem_after([&](const fs::path& in) { fs::remove(in / file); }),
             ContainsSubstring(file + ": cannot be read: No such file") && hint);
  CHECK_THAT(problem_after([&](const fs::path& in) { fs::resize_file(in / file, fs::file_size(in / file) - 8); }),
             ContainsSubstring(file) && ContainsSubstring("cut short") && hint);
  CHECK_THAT(problem_after([&](const fs::path& in) { change(in / file, 1); }),
             ContainsSubstring(file + ": has been altered") && hint);
  CHECK_THAT(problem_after([&](const fs::path& in) { change(in / index_name, 200); }),
             ContainsSubstring("index.json") && ContainsSubstring("checksum") && hint);
  CHECK_THAT(problem_after([&](const fs::path& in) { fs::resize_file(in / index_name, 500); }),
             ContainsSubstring("index.json") && ContainsSubstring("ends here") && hint);
  CHECK_THAT(problem_after([&](const fs::path& in) { write_file(in / index_name, "{}"); }),
             ContainsSubstring("is no index of a checkpoint") && hint);
  CHECK(problem_after([&](const fs::path& in) { fs::remove(in / index_name); }) == "none");
  for (const StateKind kind : {StateKind::weight, StateKind::second_moment}) {
    CHECK_THAT(
        problem_after([&](const fs::path& in) { make_no_number(in, "head.weight", kind, 5); }),
        ContainsSubstring(file + ": tensor 'head.weight") && ContainsSubstring("is no number at element 5") && hint);
  }
  // Another checkpoint's file.
  CHECK_THAT(problem_after([&](const fs::path& in) {
               write_file(in / file, to_safetensors({{"a", {2}, {1, 2}}}, ElementType::fp32, {}));
             }),
             ContainsSubstring("bytes, its checkpoint's index says"));
}

TEST_CASE("an index that was written wrongly is refused, though its checksum is right") {
  const auto problem = [](const std::function<void(CheckpointIndex&)>& wrong) {
    return problem_after([&](const fs::path& in) {
      CheckpointIndex index = parse_index(read_file(in / index_name), "index.json");
      wrong(index);
      write_file(in / index_name, to_json(index));
    });
  };
  const auto piece = [](CheckpointIndex& index) -> CheckpointPiece& { return index.files[0].pieces[3]; };
  for (const std::string name : {"../rank-00000.safetensors", "/etc/passwd", "..", ".hidden", ""}) {
    CHECK_THAT(problem([&](CheckpointIndex& index) { index.files[0].name = name; }),
               ContainsSubstring("expected the name of a file in the checkpoint's folder"));
  }
  CHECK_THAT(problem([](CheckpointIndex& index) { index.step = std::numeric_limits<std::int64_t>::max(); }),
             ContainsSubstring("step: is 9223372036854775807, expected at most 1000000000"));
  CHECK_THAT(problem([](CheckpointIndex& index) { index.updates = std::numeric_limits<std::int64_t>::max(); }),
             ContainsSubstring("updates: is 9223372036854775807, expected at most"));
  CHECK_THAT(problem([&](CheckpointIndex& index) { piece(index).runs[0].begin = 1; }),
             ContainsSubstring("does not have"));
  CHECK_THAT(problem([&](CheckpointIndex& index) { piece(index).runs[0].size = std::int64_t{1} << 62; }),
             ContainsSubstring("digits, expected"));
  CHECK_THAT(problem([&](CheckpointIndex& index) { piece(index).runs[0].begin = -1; }), ContainsSubstring("integer"));
  CHECK_THAT(problem([&](CheckpointIndex& index) { index.files[0].pieces.erase(index.files[0].pieces.begin()); }),
             ContainsSubstring("no file has"));
  CHECK_THAT(problem([&](CheckpointIndex& index) { index.files[0].pieces.push_back(piece(index)); }),
             ContainsSubstring("has two of element 0"));
  CHECK_THAT(problem([&](CheckpointIndex& index) {
               CheckpointPiece& shorter = piece(index);
               shorter.runs[0].size = shorter.runs[0].stride = 1;
             }),
             ContainsSubstring("has none of element 1"));
  CHECK_THAT(problem([&](CheckpointIndex& index) { piece(index).weight = "elsewhere"; }),
             ContainsSubstring("no file has"));
  CHECK_THAT(problem([&](CheckpointIndex& index) { piece(index).type = ElementType::bf16; }),
             ContainsSubstring("its checkpoint's index says"));
  CHECK_THAT(problem([&](CheckpointIndex& index) { index.files[0].bytes += 4; }),
             ContainsSubstring("bytes, its checkpoint's index says"));
}

TEST_CASE("checkpoints from before trainings were told apart belong to the training that their index describes") {
  const Plan plan = small_plan();
  const CheckpointIndex index = index_of(plan, "text");
  CHECK(index.training_id == training_id(plan.model, plan.training, "text"));
  CHECK(index.training_id != index_of(plan, "another text").training_id);
  Plan other = plan;
  other.training.seed += 1;
  CHECK(index.training_id != index_of(other, "text").training_id);
  other = plan;
  other.schedule.name = "another";
  other.model.name = "renamed";
  CHECK(index.training_id == index_of(other, "text").training_id);
  CheckpointIndex resumed = index;
  resumed.training_id = "that of its first run";
  CHECK(parse_index(to_json(resumed), "index.json") == resumed);
  Json without = Json::parse(to_json(resumed));
  without.erase("training_id");
  without.erase("crc32c");
  const std::string line = to_line(without);
  without["crc32c"] = fmt::format("{:08x}", crc32c(std::as_bytes(std::span(line))));
  CHECK(parse_index(to_line(without), "index.json") == index);
}

TEST_CASE("a checkpoint of another model, LoRA or optimizer is refused by name, and what else differs is said") {
  const TemporaryFolder folder;
  const Plan plan = small_plan();
  const CheckpointIndex index = index_of(plan, "text");
  save_run(2, index, drawn_holding(2, 3), drawn_states(index), folder / "saved", {5});
  const Checkpoint found = *find_checkpoint(folder / "saved");
  const auto problem = [&](const std::function<void(Plan&)>& other) {
    Plan changed = plan;
    other(changed);
    try {
      (void)require_fits(found, changed, "text");
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK_THAT(problem([](Plan& other) { other.model = llama(2); }),
             ContainsSubstring("layers.1.") && ContainsSubstring("is not in it"));
  CHECK_THAT(problem([](Plan& other) { other.model.vocabulary = 512; }),
             ContainsSubstring("embedding.weight has the shape [256, 32] in it, [512, 32] in the plan"));
  CHECK_THAT(problem([](Plan& other) { std::get<SoftmaxAttention>(other.model.layers[0].mixer).window = 4; }),
             ContainsSubstring("window"));
  CHECK_THAT(problem([](Plan& other) { other.training.lora = Lora{.targets = {LoraTarget::query}}; }),
             ContainsSubstring("embedding.weight is trained in it, frozen in the plan"));
  CHECK_THAT(problem([](Plan& other) { other.training.optimizer = Optimizer::sgd; }),
             ContainsSubstring("adamw in it, sgd in the plan"));
  // What changes no value: where the model was read from, and how long rotary positions may get.
  for (const auto& other : std::initializer_list<void (*)(Model&)>{
           [](Model& model) { model.name = "renamed"; },
           [](Model& model) { model.hugging_face = HuggingFaceConfig{.model_type = "llama", .text = "{}"}; },
           [](Model& model) { model.max_positions += 1; }}) {
    CHECK(problem([&](Plan& changed) { other(changed.model); }).empty());
  }
  CHECK_THAT(problem([](Plan& other) { other.model.arithmetic.rope_theta = 500'000; }),
             ContainsSubstring("rope_theta"));
  CHECK(require_fits(found, plan, "text").empty());
  Plan other = plan;
  other.training.seed = 5;
  other.training.global_batch = 16;
  other.training.learning_rate = 0.5;
  other.training.gradient_clipping = 2;
  other.training.precision = ElementType::bf16;
  const std::vector<std::string> said = require_fits(found, other, "another text");
  REQUIRE(said.size() == 6);
  CHECK_THAT(said[0], ContainsSubstring("training.seed was 1, and is 5"));
  CHECK_THAT(said[1], ContainsSubstring("go on at sequence 80, which was 40"));
  CHECK_THAT(said[2], ContainsSubstring("precision was fp32, and is bf16"));
  CHECK_THAT(said[3], ContainsSubstring("learning_rate was 0.001, and is 0.5"));
  CHECK_THAT(said[4], ContainsSubstring("gradient_clipping was 0, and is 2"));
  CHECK_THAT(said[5], ContainsSubstring("text"));
}

#include "common/schedule/pytorch_csv.hpp"

#include <random>

#include "common/base/error.hpp"
#include "common/schedule/interchange.hpp"
#include "common/schedule/registry.hpp"
#include "common/schedule/validate.hpp"
#include "tests/catch.hpp"
#include "tests/common/schedule/random_schedule.hpp"
#include "tests/common/schedule/shapes.hpp"

using namespace plumb;

TEST_CASE("a PyTorch CSV has a row per rank, a column per step, blanks where a rank is idle") {
  CHECK(to_pytorch_csv(generate_schedule("1f1b", {.ranks = 2, .microbatches = 2})) ==
        "0F0,0F1,,0B0,,0B1\n"
        ",1F0,1B0,1F1,1B1\n");
  CHECK(to_pytorch_csv(generate_schedule("zb-h1", {.ranks = 2, .microbatches = 2})) ==
        "0F0,0F1,,0I0,0W0,0I1,0W1\n"
        ",1F0,1I0,1F1,1I1,1W0,1W1\n");
}

TEST_CASE("schedules survive the CSV, generated and random, placement included") {
  std::vector<Schedule> all;
  for (const int p : {1, 2, 4}) {
    for (const char* name : {"gpipe", "1f1b", "zb-h1"})
      all.push_back(generate_schedule(name, {.ranks = p, .microbatches = 5}));
    all.push_back(generate_schedule("interleaved-1f1b", {.ranks = p, .microbatches = 2 * p, .chunks = 3}));
  }
  std::mt19937 random(4);
  while (all.size() < 200) {
    Schedule schedule = random_schedule(random);
    for (auto& list : schedule.actions)
      std::erase_if(list, [](const Action& a) { return a.kind == ActionKind::recompute; });
    all.push_back(schedule);
  }
  for (Schedule& schedule : all) {
    schedule.name = "pytorch-csv";
    CHECK(parse_pytorch_csv(to_pytorch_csv(schedule), "x.csv") == schedule);
  }
}

TEST_CASE("blanks, carriage returns and a byte order mark are read over") {
  const Schedule schedule = parse_pytorch_csv("\xEF\xBB\xBF 0F0 ,, 0B0,\r\n,1F0,1B0\r\n\r\n", "x.csv");
  CHECK(to_text(schedule.actions[0]) == "0F0 0B0");
  CHECK(schedule.rank_of_stage == std::vector<int>{0, 1});
  CHECK(validate(schedule).empty());
}

TEST_CASE("a V placement is inferred from where the stages stand") {
  const Schedule schedule = parse_pytorch_csv("0F0,3F0,3B0,0B0\n1F0,2F0,2B0,1B0\n", "v.csv");
  CHECK(schedule.rank_of_stage == std::vector<int>{0, 1, 1, 0});
  CHECK(schedule.chunks == 2);
  CHECK(validate(schedule).empty());
}

TEST_CASE("what cannot be read names file, line and column") {
  const auto fails = [](const char* text, const char* with) {
    CAPTURE(text);
    CHECK_THROWS_AS(parse_pytorch_csv(text, "x.csv"), InputError);
    CHECK_THROWS_WITH(parse_pytorch_csv(text, "x.csv"), ContainsSubstring(with));
  };
  fails("0F0,0B0\n1F0,1Q0", "x.csv:2:5: '1Q0': expected one of");
  fails("0F0,0SEND_F0", "x.csv:1:5: '0SEND_F0': only compute actions");
  fails("0F0,0R0,0B0", "'0R0': only compute actions");
  fails("0F0,0UNSHARD", "only compute actions");
  fails("(0F7;1B3)OVERLAP_F_B", "x.csv:1:1: '(0F7;1B3)OVERLAP_F_B': overlapped");
  fails("0F0,0BW0", "files of 2024");
  fails("0F0,0F", "x.csv:1:5: '0F': expected a microbatch");
  fails("", "x.csv: it is empty");
  fails("0F0,0B0\n,,\n1F0,1B0", "x.csv:2: this rank has nothing to do");
  fails("0F0,0B0\n1F0,0B1", "x.csv:2:5: '0B1': stage 0 stands on row 1 already");
  fails("0F0,0B0\n2F0,2B0", "stage 1 stands nowhere");
  fails("0F0,0B0,1F0,1B0\n2F0,2B0", "x.csv:2: stages on this row: 1, on the first: 2");
  fails("2000000000F0,0B0", "only 2 actions");
  fails("0F2000000000,0B0", "only 2 actions");
}

TEST_CASE("an invalid, a lowered and a recomputing schedule are not exported") {
  Schedule schedule = generate_schedule("1f1b", {.ranks = 2, .microbatches = 2});
  CHECK_THROWS_WITH(to_pytorch_csv(with_recompute(schedule, {true, false})), ContainsSubstring("0R0"));
  CHECK_THROWS_AS(to_pytorch_csv(lower(schedule, {})), InputError);
  schedule.actions[0].pop_back();
  CHECK_THROWS_WITH(to_pytorch_csv(schedule), ContainsSubstring("0B1 is missing"));
}

// Lists are written whatever they are; slices, overlaps and updates within the step have no place in a compute-only
// CSV.
TEST_CASE("schedules over PyTorch's property grid are valid, lowered and not, and read back as written") {
  for (const GridShape& shape : pytorch_grid) {
    for (const ScheduleEntry& entry : schedule_entries()) {
      if (!applies(entry, shape) || entry.updates_within || entry.uses_slices) continue;
      CAPTURE(entry.name, shape.chunks, shape.microbatches, shape.ranks);
      const Schedule schedule = entry.generate(shape_for(entry, shape));
      CHECK(validate(schedule).empty());
      CHECK(validate(lower(schedule, {.tied_embeddings = true})).empty());
      if (replicas(schedule) == 2 || entry.name == "bpipe") continue;  // PyTorch has neither replicas nor evictions
      Schedule read = parse_pytorch_csv(to_pytorch_csv(schedule), "grid.csv");
      read.name = schedule.name;
      if (schedule.overlapped.empty()) CHECK(read == schedule);
      CHECK(read.actions == schedule.actions);
    }
  }
}

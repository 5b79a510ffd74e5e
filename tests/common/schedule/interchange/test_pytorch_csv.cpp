#include "common/schedule/interchange/pytorch_csv.hpp"

#include <random>

#include "common/base/error.hpp"
#include "common/schedule/generators/registry.hpp"
#include "common/schedule/interchange/interchange.hpp"
#include "common/schedule/interchange/pytorch_messages.hpp"
#include "common/schedule/validate/validate.hpp"
#include "tests/catch.hpp"
#include "tests/common/schedule/random_schedule.hpp"
#include "tests/common/schedule/shapes.hpp"
#include "tests/effort.hpp"

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

TEST_CASE("stages may stand on ranks in different numbers") {
  const Schedule schedule = parse_pytorch_csv("0F0,1F0,,1B0,0B0\n,,2F0,2B0\n", "x.csv");
  CHECK(schedule.rank_of_stage == std::vector<int>{0, 0, 1});
  CHECK(schedule.chunks == 2);
  CHECK(validate(schedule).empty());
  CHECK(to_pytorch_csv(schedule) == "0F0,1F0,,,1B0,0B0\n,,2F0,2B0\n");
}

TEST_CASE("an overlapped pair is one cell, which takes one step") {
  const std::string text = "0F0,0F1,(0F2;0B0)OVERLAP_F_B,0B1,0B2\n";
  const Schedule schedule = parse_pytorch_csv(text, "x.csv");
  CHECK(to_text(schedule.actions[0]) == "0F0 0F1 0F2 0B0 0B1 0B2");
  REQUIRE(schedule.overlapped.size() == 1);
  CHECK(schedule.overlapped[0] == OverlappedPair{parse_action("0F2"), parse_action("0B0")});
  CHECK(validate(schedule).empty());
  CHECK(to_pytorch_csv(schedule) == text);
  CHECK(parse_pytorch_csv("0F0,0F1,\"( 0F2 ; 0B0 )OVERLAP_F_B\",0B1,0B2", "x.csv") == schedule);
}

// PyTorch's alphabet of 2024, and zero-bubble's: B is the input gradient, BW the full backward.
TEST_CASE("the alphabet is the one that the file proves, else today's, or the one asked for") {
  const auto lists = [](const char* text, std::optional<CsvAlphabet> asked = {}) {
    return to_text(read_pytorch_csv(text, "x.csv", asked).schedule.actions[0]);
  };
  CHECK(lists("0F0,0BW0") == "0F0 0B0");
  CHECK(lists("0F0,0F1,0B0,0W0,0BW1") == "0F0 0F1 0I0 0W0 0B1");
  CHECK(lists("0F0,0B0,0W0") == "0F0 0I0 0W0");  // as today's, B and W would both make the weight gradient
  CHECK(lists("0F0,0I0,0W0") == "0F0 0I0 0W0");
  CHECK(lists("0F0,0F1,0I0,0W0,0B1") == "0F0 0F1 0I0 0W0 0B1");
  CHECK(lists("0F0,0B0") == "0F0 0B0");
  CHECK(lists("0F0,0B0", CsvAlphabet::of_2024) == "0F0 0I0");
  CHECK(lists("0F0,0B0,0W0", CsvAlphabet::today) == "0F0 0B0 0W0");
  CHECK(read_pytorch_csv("0F0,0B0", "x.csv").notes.empty());
  CHECK_THAT(read_pytorch_csv("0F0,0BW0", "x.csv").notes.at(0), ContainsSubstring("line 1 has '0BW0'"));
}

TEST_CASE("both alphabets say the same, overlaps aside") {
  for (const char* name : {"1f1b", "zb-h1", "zb-v", "interleaved-zb"}) {
    const ScheduleEntry& entry = find_schedule(name);
    const Schedule schedule = entry.generate({.ranks = 3, .microbatches = 6, .chunks = entry.uses_chunks ? 2 : 1});
    const std::string text = to_pytorch_csv(schedule, {.alphabet = CsvAlphabet::of_2024});
    const CsvReading reading = read_pytorch_csv(text, "x.csv");
    CHECK(reading.alphabet == CsvAlphabet::of_2024);
    CHECK(reading.schedule.actions == schedule.actions);
    CHECK(to_pytorch_csv(reading.schedule, {.alphabet = CsvAlphabet::of_2024}) == text);
  }
  const Schedule overlapping = generate_schedule("dualpipe-v", {.ranks = 2, .microbatches = 4, .chunks = 2});
  CHECK_THROWS_WITH(to_pytorch_csv(overlapping, {.alphabet = CsvAlphabet::of_2024}),
                    ContainsSubstring("overlap, for which the alphabet of 2024 has no cell"));
}

// PyTorch scales gradients at REDUCE_GRAD, which `_add_reduce_grad` puts behind a stage's last B or W.
TEST_CASE("with communication, sends follow their producer and REDUCE_GRAD a stage's last gradient") {
  const CsvWriting comms{.form = CsvForm::compute_comms};
  const Schedule schedule = generate_schedule("1f1b", {.ranks = 2, .microbatches = 2});
  const std::string text =
      "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1,0REDUCE_GRAD\n"
      "1RECV_F0,1F0,1RECV_F1,1B0,1SEND_B0,1F1,1B1,1SEND_B1,1REDUCE_GRAD\n";
  CHECK(to_pytorch_csv(schedule, comms) == text);
  const CsvReading reading = read_pytorch_csv(text, "x.csv");
  CHECK(reading.form == CsvForm::compute_comms);
  CHECK(validate(reading.schedule).empty());
  CHECK(without_messages(reading.schedule).actions == schedule.actions);
  CHECK(to_pytorch_csv(reading.schedule, comms) == text);
  CHECK_THAT(reading.notes.at(0), ContainsSubstring("2 × UNSHARD, RESHARD or REDUCE_GRAD left out"));
  CHECK_THROWS_WITH(to_pytorch_csv(reading.schedule), ContainsSubstring("it is lowered"));
}

// ZB-V's ranks send each other activations of one chunk and gradients of the other. Found with PyTorch's own runtime,
// which took an activation for a gradient.
TEST_CASE("messages are written in an order that PyTorch, which has no tags, does not mix up") {
  const CsvWriting comms{.form = CsvForm::compute_comms};
  for (const ScheduleEntry& entry : schedule_entries()) {
    CAPTURE(entry.name);
    const Schedule schedule = entry.generate(shape_for(entry, {.chunks = 2, .microbatches = 8, .ranks = 4}));
    if (schedule.update_every > 0 || entry.name == "bpipe") continue;
    const Schedule lowered = lower_as_pytorch(schedule);
    CHECK(validate(lowered).empty());
    CHECK(check_pytorch_queues(lowered).empty());
    CHECK(without_messages(lowered) == schedule);
    CHECK(parse_pytorch_csv(to_pytorch_csv(schedule, comms), "x.csv").actions == lowered.actions);
  }
  const Schedule own =
      lower(generate_schedule("zb-v", {.ranks = 4, .microbatches = 8, .chunks = 2}), {.optimizer = false});
  REQUIRE_FALSE(check_pytorch_queues(own).empty());
  CHECK(check_pytorch_queues(own)[0].kind == ScheduleProblem::Kind::crossed_messages);
  CHECK_THROWS_WITH(to_pytorch_csv(own, comms), ContainsSubstring("in one order"));
}

TEST_CASE("weights that a stage gathers before its first F are PyTorch's UNSHARD") {
  const Schedule schedule = generate_schedule("1f1b", {.ranks = 2, .microbatches = 2});
  const Schedule lowered = lower(schedule, {.optimizer = false, .gathering = WeightGathering::before_forward});
  REQUIRE(validate(lowered).empty());
  const std::string text = to_pytorch_csv(lowered, {.form = CsvForm::compute_comms});
  CHECK(text.starts_with("0UNSHARD,0F0,0SEND_F0,0F1,"));
  CHECK_THAT(text, ContainsSubstring("\n1UNSHARD,1RECV_F0,1F0,"));
  CHECK(without_messages(parse_pytorch_csv(text, "x.csv")).actions == schedule.actions);
  // Without a step nothing has been updated that a gathering behind an F would be of.
  Schedule late = lowered;
  std::swap(late.actions[0][0], late.actions[0][1]);
  CHECK_FALSE(validate(late).empty());
}

TEST_CASE("UNSHARD and RESHARD of data-parallel ranks are read over") {
  const CsvReading reading = read_pytorch_csv("0UNSHARD,0F0,0B0,0RESHARD,0REDUCE_GRAD\n", "x.csv");
  CHECK(to_text(reading.schedule.actions[0]) == "0F0 0B0");
  CHECK(validate(reading.schedule).empty());
}

TEST_CASE("a stage on two rows is a second replica if it runs the second half of the microbatches") {
  const std::string text = "0F0,,1F1,1B1,0B0\n0F1,1F0,1B0,,0B1\n";
  const CsvReading reading = read_pytorch_csv(text, "x.csv");
  CHECK(reading.schedule.rank_of_stage == std::vector<int>{0, 1});
  CHECK(reading.schedule.second_rank_of_stage == std::vector<int>{1, 0});
  CHECK(reading.schedule.chunks == 1);
  CHECK(validate(reading.schedule).empty());
  CHECK(to_pytorch_csv(reading.schedule) == "0F0,1F1,1B1,0B0\n0F1,1F0,1B0,0B1\n");
  CHECK_THAT(pytorch_csv_notes(reading.schedule).at(0), ContainsSubstring("holds a stage on one rank only"));
  const CsvWriting comms{.form = CsvForm::compute_comms};
  const std::string lowered = to_pytorch_csv(reading.schedule, comms);
  CHECK_THAT(lowered, ContainsSubstring("0REDUCE_GRAD,1REDUCE_GRAD\n"));
  const Schedule read = parse_pytorch_csv(lowered, "x.csv");
  CHECK(validate(read).empty());
  CHECK(to_pytorch_csv(read, comms) == lowered);
  CHECK_THROWS_WITH(parse_pytorch_csv("0F0,1F1,1B1,0B0\n0F1,1F0,1B0,0B1,0F2,0B2\n", "x.csv"),
                    ContainsSubstring("is on row 2"));
}

TEST_CASE("unreadable input names file, line and column") {
  const auto fails = [](const char* text, const char* with) {
    CAPTURE(text);
    CHECK_THROWS_AS(parse_pytorch_csv(text, "x.csv"), InputError);
    CHECK_THROWS_WITH(parse_pytorch_csv(text, "x.csv"), ContainsSubstring(with));
  };
  fails("0F0,0B0\n1F0,1Q0", "x.csv:2:5: '1Q0': expected one of");
  fails("0F0,0R0,0B0", "x.csv:1:5: '0R0': PyTorch has no action R");
  fails("0F0,0EVICT0", "PyTorch has no action EVICT");
  fails("0F0,0STEP", "PyTorch has no action STEP");
  fails("0F0,(0F7;1B3)OVERLAP", "x.csv:1:5: '(0F7;1B3)OVERLAP': expected (…;…)OVERLAP_F_B");
  fails("(0F7;1F3)OVERLAP_F_B", "expected one forward and one backward");
  fails("(0F7;1B3;2B4)OVERLAP_F_B", "nothing may follow, but there is ';2B4'");
  fails("(0F7;)OVERLAP_F_B", "expected an action");
  fails("0F0,0I0,0W0\n1F0,1BW0", "x.csv:2:5: '1BW0': belongs to another alphabet than '0I0' in line 1");
  fails("(0F0;0BW0)OVERLAP_F_B", "belongs to another alphabet");
  fails("0F0,0F", "x.csv:1:5: '0F': expected a microbatch");
  fails("", "x.csv: it is empty");
  fails("0F0,0B0\n,,\n1F0,1B0", "x.csv:2: this rank has nothing to do");
  fails("0F0,0B0\n1F0,0B1", "x.csv:2:5: '0B1': stage 0 is on row 1");
  fails("0F0,0B0\n1F0,0F1,1B0,0B1", "x.csv:2:5: '0F1': stage 0 is on row 1");  // the first of two
  fails("0F0,0B0,1F0,1B0,1F1,1B1\n0F1,0B1", "x.csv:2:1: '0F1': stage 0 is on row 1");
  // The row with most of a stage holds it, whichever comes first.
  fails("0F0,1F1,0F1,0B0,0B1\n1F0,1B0,1B1", "x.csv:1:5: '1F1': stage 1 is on row 2");
  fails("0F0,0B0\n2F0,2B0", "x.csv:2:1: '2F0': no cell has stage 1, which comes before stage 2");
  fails("0F0,2SEND_F0,2F0", "no cell has stage 1");
  fails("0F0,0B0,9F0,0B1,0F9,0B2,1B2,2B2,3B2,4B2", "x.csv: 10 stages and 10 microbatches with 10 actions");
  fails("2000000000F0,0B0", "only 2 actions");
  fails("0F2000000000,0B0", "only 2 actions");
  CHECK_THROWS_WITH(read_pytorch_csv("0F0,0BW0", "x.csv", CsvAlphabet::today),
                    ContainsSubstring("x.csv:1:5: '0BW0': BW belongs to the alphabet of 2024"));
  CHECK_THROWS_WITH(read_pytorch_csv("0F0,0I0,0W0", "x.csv", CsvAlphabet::of_2024),
                    ContainsSubstring("x.csv:1:5: '0I0': it belongs to today's alphabet"));
}

TEST_CASE("unreadable input is quoted as short text") {
  const auto complaint = [](const std::string& text) -> std::string {
    try {
      (void)parse_pytorch_csv(text, "x.csv");
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  };
  CHECK_THAT(complaint(std::string(1 << 20, '(')), ContainsSubstring("x.csv:1:1: '" + std::string(40, '(') + "…'"));
  CHECK_THAT(complaint("0F" + std::string(1 << 20, '1')), ContainsSubstring("1…': the microbatch is too large"));
  CHECK_THAT(complaint("0F0x\x1b[2J\xff"), ContainsSubstring("'0F0x\\x1b[2J\\xff': nothing may follow"));
  CHECK_THAT(complaint(std::string("0\0F0,1F0", 8)), ContainsSubstring("'0\\x00F0': expected one of F, B"));
  for (const std::string& text : {std::string(1 << 20, '('), std::string(1 << 20, 'F'), std::string(1 << 20, '\0'),
                                  "0F" + std::string(1 << 20, '1')}) {
    CHECK(complaint(text).size() < 500);
  }
}

TEST_CASE("a chain of very many ranks is read and checked") {
  constexpr int ranks = static_cast<int>(testing::cases(20'000));
  std::string text;
  for (int rank = 0; rank < ranks; ++rank) {
    text += std::to_string(rank) + "F0," + std::to_string(rank) + "B0\n";
  }
  const Schedule schedule = parse_pytorch_csv(text, "x.csv");
  CHECK(schedule.ranks == ranks);
  CHECK(validate(schedule).empty());
  // The last rank's backward stands before its forward.
  Schedule stuck = schedule;
  std::ranges::swap(stuck.actions.back()[0], stuck.actions.back()[1]);
  CHECK_FALSE(validate(stuck).empty());
}

TEST_CASE("schedules that a CSV cannot express are refused by name") {
  Schedule schedule = generate_schedule("1f1b", {.ranks = 2, .microbatches = 2});
  const auto refuses = [](const Schedule& given, const char* with) {
    CHECK_THROWS_WITH(to_pytorch_csv(given), ContainsSubstring(with));
  };
  refuses(with_recompute(schedule, {true, false}), "0R0");
  refuses(lower(schedule, {}), "lowered");
  refuses(generate_schedule("pipedream", {.ranks = 2, .microbatches = 2}),
          "STEP0: PyTorch has no action for optimizer");
  CHECK_THROWS_WITH(to_pytorch_csv(lower(schedule, {.tied_embeddings = true}), {.form = CsvForm::compute_comms}),
                    ContainsSubstring("0STEP: PyTorch has no action") || ContainsSubstring("0REDUCE_TIED"));
  schedule.actions[0].pop_back();
  refuses(schedule, "0B1 is missing");
}

namespace {

bool csv_can_say(const Schedule& schedule) {
  for (const auto& list : schedule.actions) {
    for (const Action& action : list) {
      if (!is_compute(action.kind)) return false;
    }
  }
  return true;
}

}  // namespace

// Lists are written whatever they are; slices are microbatches there. Evictions and updates within the step have no
// cell.
TEST_CASE("schedules over PyTorch's property grid are valid, lowered and not, and read back as written") {
  std::size_t tried = 0;
  for (const GridShape& shape : pytorch_grid) {
    for (const ScheduleEntry& entry : schedule_entries()) {
      if (!applies(entry, shape) || !testing::tries(tried++)) continue;
      CAPTURE(entry.name, shape.chunks, shape.microbatches, shape.ranks);
      Schedule schedule = entry.generate(shape_for(entry, shape));
      CHECK(validate(schedule).empty());
      CHECK(validate(lower(schedule, {.tied_embeddings = schedule.update_every == 0})).empty());
      if (!csv_can_say(schedule)) {
        CHECK_THROWS_WITH(to_pytorch_csv(schedule), ContainsSubstring("PyTorch has no action for"));
        continue;
      }
      const std::string text = to_pytorch_csv(schedule);
      Schedule read = parse_pytorch_csv(text, "grid.csv");
      read.name = schedule.name;
      schedule.slices = 1;
      CHECK(read == schedule);
      CHECK(to_pytorch_csv(read) == text);
      if (shape.microbatches > 16) continue;
      const CsvWriting comms{.form = CsvForm::compute_comms};
      const std::string lowered = to_pytorch_csv(schedule, comms);
      CHECK(to_pytorch_csv(parse_pytorch_csv(lowered, "grid.csv"), comms) == lowered);
    }
  }
}

// Schedules that others wrote, in the place of a name.
#include "common/planner/make_plan.hpp"
#include "common/planner/planner.hpp"
#include "common/scenario_file/read_scenario.hpp"
#include "common/schedule/generators/registry.hpp"
#include "common/schedule/interchange/pytorch_csv.hpp"
#include "common/schedule/interchange/schedule_file.hpp"
#include "tests/catch.hpp"
#include "tests/common/plan/scenarios.hpp"

using namespace plumb;
using namespace plumb::testing;

namespace {

std::string with_schedule(const std::string& schedule, const std::string& training = "global_batch: 4, microbatch: 1") {
  return scenario_text("cluster: {machine: local-cpu, ranks: 2}\ntraining: {sequence: 32, " + training +
                       "}\nlayout: {pipeline: 2}\nschedule: " + schedule + "\nsplit: uniform\n");
}

Plan plan_of(const TemporaryFolder& folder, const std::string& text) {
  const Scenario scenario = read_scenario(folder.write("scenario.yaml", text));
  return make_plan(scenario, {scenario.microbatches[0], scenario.schedules[0], scenario.splits[0]});
}

}  // namespace

TEST_CASE("a plan from a file's schedule predicts what one by its name does") {
  const TemporaryFolder folder;
  for (const std::string name : {"zb-v", "interleaved-1f1b", "dualpipe-v", "seq-1f1b", "pipedream"}) {
    CAPTURE(name);
    const ScheduleEntry& entry = find_schedule(name);
    const Schedule schedule = entry.generate(
        {.ranks = 2, .microbatches = 4, .chunks = entry.uses_chunks ? 2 : 1, .slices = entry.uses_slices ? 2 : 1});
    (void)folder.write("s.json", to_schedule_file(schedule));
    const Plan from_file = plan_of(folder, with_schedule("{file: s.json}"));
    const Plan by_name = plan_of(folder, with_schedule(entry.uses_slices   ? "{name: " + name + ", slices: 2}"
                                                       : entry.uses_chunks ? "{name: " + name + ", chunks: 2}"
                                                                           : name));
    CHECK(from_file.schedule.name == "file:s.json");
    CHECK(from_file.schedule.actions == by_name.schedule.actions);
    CHECK(from_file.split == by_name.split);
    CHECK(from_file.costs == by_name.costs);
    CHECK(median_step(predict_by_path(from_file)).duration == median_step(predict_by_path(by_name)).duration);
    const std::filesystem::path plan = folder.write("plan.json", to_json(from_file));
    CHECK(read_plan(plan) == from_file);
    CHECK(choice_of(from_file.schedule).given == from_file.schedule);
  }
}

TEST_CASE("a scenario asks for overlapped pairs where a schedule can do without") {
  const TemporaryFolder folder;
  const Plan plan = plan_of(folder, with_schedule("{name: interleaved-1f1b, chunks: 2, overlap: true}"));
  CHECK_FALSE(plan.schedule.overlapped.empty());
  CHECK(choice_of(plan.schedule).overlap);
  CHECK(plan_of(folder, with_schedule("{name: interleaved-1f1b, chunks: 2, overlap: false}"))
            .schedule.overlapped.empty());
  CHECK_THROWS_AS(plan_of(folder, with_schedule("{name: dualpipe-v, chunks: 2, overlap: true}")), InputError);
}

TEST_CASE("messages in a file are planned anew, and ranks may hold different numbers of stages") {
  const TemporaryFolder folder;
  const Schedule schedule = generate_schedule("1f1b", {.ranks = 2, .microbatches = 4});
  (void)folder.write("comms.csv", to_pytorch_csv(schedule, {.form = CsvForm::compute_comms}));
  CHECK(plan_of(folder, with_schedule("{file: comms.csv}")).schedule.actions == schedule.actions);
  (void)folder.write("uneven.csv", "0F0,1F0,,,1B0,0B0\n,,2F0,2B0\n");
  const Plan uneven = plan_of(folder, with_schedule("{file: uneven.csv}", "global_batch: 1"));
  CHECK(uneven.split.layers == std::vector<int>{3, 3, 2});
  CHECK(predict_by_path(uneven).ranks.size() == 2);
  (void)folder.write("old.csv", "0F0,0B0\n1F0,1B0\n");
  CHECK(plan_of(folder, with_schedule("{file: old.csv, alphabet: today}", "global_batch: 1"))
            .schedule.actions[0][1]
            .kind == ActionKind::backward);
}

TEST_CASE("with full recompute R is added to a file's schedule") {
  const TemporaryFolder folder;
  (void)folder.write("s.csv", "0F0,,0B0\n,1F0,1B0\n");
  const Plan plan = plan_of(folder, with_schedule("{file: s.csv}", "global_batch: 1, recompute: full"));
  CHECK(plan.schedule.actions[0][1].kind == ActionKind::recompute);
  CHECK(read_plan(folder.write("plan.json", to_json(plan))) == plan);
}

TEST_CASE("a file that does not agree with the scenario is refused at its line") {
  const TemporaryFolder folder;
  const auto fails = [&](const std::string& csv, const std::string& with,
                         const std::string& schedule = "{file: s.csv}") {
    (void)folder.write("s.csv", csv);
    CHECK_THROWS_WITH(plan_of(folder, with_schedule(schedule)), ContainsSubstring(with));
  };
  fails("0F0,0B0\n", "scenario.yaml:14:18: file:s.csv is for 1 ranks, the layout's pipeline has 2");
  fails("0F0,0B0\n1F0,1B0\n", "scenario.yaml:14:18: file:s.csv has 1 microbatches, the batch makes 4");
  fails("0F0,0B0\n1F0,1B0\n", "global_batch: 1");
  fails("0F0,0F1,0B0\n1F0,1B0\n", "scenario.yaml:14:18: file:s.csv: rank 0: 0B1 is missing");
  fails("0F0,0Q0\n1F0,1B0\n", "s.csv:1:5: '0Q0'");
  fails("0F0,0B0\n1F0,1B0\n", "scenario.yaml:14:18", "{file: other.csv}");
  fails("0F0,0B0\n1F0,1B0\n", "scenario.yaml:14:25: unknown key 'chunks'", "{file: s.csv, chunks: 2}");
  fails("0F0,0B0\n1F0,1B0\n", "unknown '2023'", "{file: s.csv, alphabet: 2023}");
  const Schedule schedule = generate_schedule("1f1b", {.ranks = 2, .microbatches = 4});
  (void)folder.write("r.json", to_schedule_file(with_recompute(schedule, {true, true})));
  CHECK_THROWS_WITH(plan_of(folder, with_schedule("{file: r.json}")), ContainsSubstring("file:r.json has R"));
}

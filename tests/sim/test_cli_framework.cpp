// `--for` and `for:` of plan, simulate and show, and where the experts of a mixture are.
#include <algorithm>

#include "tests/catch.hpp"
#include "tests/sim/answers.hpp"
#include "tests/sim/cli.hpp"

using plumb::tests::Folder;
using plumb::tests::Json;
using plumb::tests::json_of;
using plumb::tests::refuses;
using plumb::tests::replaced;
using plumb::tests::run_plumb;
using plumb::tests::small;

TEST_CASE("plan, simulate and show say which framework candidates are for, and what is left out") {
  const Folder folder;
  const std::string file = folder.file("open.yaml", replaced(small, "schedule: 1f1b", "schedule: auto"));
  const Json planned = json_of(run_plumb(folder, "plan " + file + " --for megatron --engine path --json"));
  CHECK(planned["for"] == "megatron");
  CHECK(std::ranges::count(planned["left_out"], Json("zb-h1")) == 1);
  for (const Json& candidate : planned["candidates"]) {
    const auto schedule = candidate["schedule"].get<std::string>();
    CHECK((schedule == "1f1b" || schedule == "interleaved-1f1b"));
  }
  CHECK_THAT(run_plumb(folder, "plan " + file + " --for megatron --engine path").out,
             ContainsSubstring("for megatron; left out: ") && ContainsSubstring("zb-h1"));
  CHECK_THAT(run_plumb(folder, "simulate " + file + " --for torchtitan --engine path").out,
             ContainsSubstring("for torchtitan; left out: "));
  CHECK_THAT(run_plumb(folder, "show " + file + " --for torchtitan").out, ContainsSubstring("for torchtitan"));
  CHECK_FALSE(json_of(run_plumb(folder, "plan " + file + " --engine path --json")).contains("for"));
}

TEST_CASE("a scenario or plan that a framework does not run is refused with what it runs") {
  const Folder folder;
  const std::string file = folder.file("zb.yaml", replaced(small, "schedule: 1f1b", "schedule: zb-h1"));
  for (const char* command : {"plan ", "simulate ", "show "}) {
    refuses(run_plumb(folder, command + file + " --for megatron"),
            {"zb.yaml:", "Megatron-LM does not run the schedule zb-h1", "schedule: 1f1b or interleaved-1f1b"});
  }
  const std::string plan = folder.file("plan.json");
  CHECK(run_plumb(folder, "plan " + file + " --engine path -o " + plan).status == 0);
  refuses(run_plumb(folder, "simulate " + plan + " --for megatron"), {"plan.json", "does not run the schedule zb-h1"});
  CHECK(run_plumb(folder, "simulate " + plan + " --for plumb-exec --engine path").status == 0);
  refuses(run_plumb(folder, "simulate " + plan + " --for nemo"), {"no framework 'nemo'", "megatron"});
}

TEST_CASE("the experts of a mixture are said to be whole on each data-parallel rank, and no dense model's") {
  const Folder folder;
  const std::string mixture = folder.file("moe.yaml", replaced(replaced(small, "full/dense", "full/moe"), "  layers",
                                                               "  experts: {count: 4, top_k: 2, ffn: 64}\n  layers"));
  const std::string text = "experts whole on each data-parallel rank";
  const std::string dense = folder.file("dense.yaml", small);
  for (const char* command : {"plan ", "simulate ", "show "}) {
    CAPTURE(command);
    CHECK_THAT(run_plumb(folder, command + mixture).out, ContainsSubstring(text));
    CHECK(json_of(run_plumb(folder, command + mixture + " --json"))["experts"] == text);
    CHECK_THAT(run_plumb(folder, command + dense).out, !ContainsSubstring(text));
  }
}

// Options that save and resume, as a user meets them: what goes together, what is said, what is refused.
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "exec/checkpoint/checkpoint_folder.hpp"
#include "exec/checkpoint/folder_lock.hpp"
#include "exec/checkpoint/step_log.hpp"
#include "exec/commands/checkpoint_arguments.hpp"
#include "tests/catch.hpp"
#include "tests/exec/program_here.hpp"

using namespace plumb;
using namespace plumb::exec;
using nlohmann::json;
namespace fs = std::filesystem;

TEST_CASE("a training is saved, resumed in its folder and in another layout, and never written over") {
  const TemporaryFolder folder;
  const std::string plan = folder.write("plan.json", to_json(tiny_plan({.microbatches = 4})));
  const std::string other = folder.write("other.json", to_json(tiny_plan({.ranks = 1, .microbatches = 4})));
  const std::string saved = folder / "saved";
  const Ended first = run_here({"run", plan, "--steps", "3", "--save", saved, "--save-every", "2", "--json"});
  INFO(first.err);
  REQUIRE(first.status == 0);
  CHECK(json::parse(first.out).at("checkpoints") ==
        std::vector<std::string>{saved + "/step-000002", saved + "/step-000003"});
  CHECK(json::parse(first.out).at("warm_up_s").empty());
  CHECK(json::parse(first.out).at("loss").size() == 3);

  const Ended again = run_here({"run", plan, "--steps", "5", "--save", saved});
  CHECK(again.status == 2);
  CHECK_THAT(again.err, ContainsSubstring("has step-000003 already, and this run begins behind step 0") &&
                            ContainsSubstring("--resume latest goes on from there; else remove or rename it"));
  const Ended done = run_here({"run", plan, "--steps", "3", "--save", saved, "--resume", "latest"});
  CHECK(done.status == 2);
  CHECK_THAT(done.err, ContainsSubstring("has 3 steps already") && ContainsSubstring("--steps 4"));

  const Ended whole = run_here({"run", plan, "--steps", "5", "--warm-up", "0", "--json"});
  REQUIRE(whole.status == 0);
  const json losses = json::parse(whole.out).at("loss");
  const Ended elsewhere = run_here({"run", other, "--steps", "5", "--resume", saved, "--json"});
  INFO(elsewhere.err);
  REQUIRE(elsewhere.status == 0);
  CHECK_THAT(elsewhere.err, ContainsSubstring("resumes " + saved + "/step-000003, of step 3 (pp2, 1f1b)"));
  CHECK(json::parse(elsewhere.out).at("loss") == json{losses.at(3), losses.at(4)});
  const Ended over = run_here(
      {"run", plan, "--steps", "4", "--resume", saved, "--log", saved + "/step-000003/rank-00001.safetensors"});
  CHECK(over.status == 2);
  CHECK_THAT(over.err, ContainsSubstring("is read and would be written over"));
  const Ended earlier = run_here({"run", plan, "--steps", "4", "--resume", saved + "/step-000002"});
  INFO(earlier.err);
  REQUIRE(earlier.status == 0);
  CHECK_THAT(earlier.out,
             ContainsSubstring("\n  3     ") && ContainsSubstring("\n  4     ") && !ContainsSubstring("\n  2     "));
}

TEST_CASE("a folder into which another run saves is refused, and may be read") {
  const TemporaryFolder folder;
  const std::string plan = folder.write("plan.json", to_json(tiny_plan({})));
  const std::string saved = folder / "saved";
  REQUIRE(run_here({"run", plan, "--steps", "1", "--save", saved}).status == 0);
  for (const std::string transport : {"local", "gloo"}) {
    const FolderLock other(saved);
    const Ended ended =
        run_here({"run", plan, "--steps", "2", "--save", saved, "--resume", "latest", "--transport", transport});
    INFO(ended.err);
    CHECK(ended.status == 2);
    CHECK_THAT(ended.err, ContainsSubstring(saved + ": another run saves its checkpoints there"));
    CHECK(run_here({"run", plan, "--steps", "2", "--resume", saved}).status == 0);
  }
  // A run that is refused leaves no folder.
  const std::string text = folder.write("text", "text\n");
  const Ended refused = run_here({"run", plan, "--steps", "2", "--save", folder / "new/runs", "--log", text});
  CHECK(refused.status == 2);
  CHECK_THAT(refused.err, ContainsSubstring("is no log of steps"));
  CHECK(!std::filesystem::exists(folder / "new"));
  // The ranks that a launcher starts need no lock of their own.
  const Ended launched =
      run(folder, {"run", plan, "--steps", "2", "--save", saved, "--resume", "latest", "--transport", "gloo"});
  INFO(launched.err);
  CHECK(launched.status == 0);
  CHECK(look_into(saved).steps == std::vector<std::int64_t>{1, 2});
}

TEST_CASE("checkpoints that are written beside the steps are those that are written between them") {
  const TemporaryFolder folder;
  const std::string plan = folder.write("plan.json", to_json(tiny_plan({})));
  for (const char* const name : {"between", "beside"}) {
    std::vector<std::string> words{"run", plan, "--steps", "5", "--save", folder / name, "--save-every", "2"};
    if (std::string(name) == "beside") words.emplace_back("--asynchronous-save");
    const Ended ended = run_here(words);
    INFO(ended.err);
    REQUIRE(ended.status == 0);
    CHECK(look_into(folder / name).steps == std::vector<std::int64_t>{2, 4, 5});
    CHECK(look_into(folder / name).leftovers.empty());
  }
  for (const char* const file : {"index.json", "rank-00000.safetensors", "rank-00001.safetensors"}) {
    for (const char* const step : {"step-000002/", "step-000004/", "step-000005/"}) {
      CHECK((read_file(folder / (std::string("between/") + step + file)) ==
             read_file(folder / (std::string("beside/") + step + file))));
    }
  }
}

// Else the others wait for the one that has refused.
TEST_CASE("every process of a run refuses a folder that it would write over, and one of them makes a new one") {
  const TemporaryFolder folder;
  const Plan plan = tiny_plan({.ranks = 1, .shallow = true});
  const std::string saved = folder / "saved";
  REQUIRE(run_here({"run", folder.write("plan.json", to_json(plan)), "--steps", "1", "--save", saved}).status == 0);
  const auto in_process = [&](const std::string& name, bool writes) {
    CheckpointArguments arguments;
    arguments.save = folder / name;
    std::ostringstream said;
    CheckpointOptions options = checkpoint_options(arguments, plan, SessionOptions(), said);
    if (writes) take_folder(options, plan, said);
    return options;
  };
  for (const bool writes : {true, false}) {
    CHECK_THROWS_WITH((void)in_process("saved", writes), ContainsSubstring("has step-000001 already"));
  }
  (void)in_process("other", false);
  CHECK_FALSE(fs::exists(folder / "other"));
  const CheckpointOptions has_it = in_process("other", true);
  CHECK(fs::is_directory(folder / "other"));
}

TEST_CASE("a checkpoint of which one rank's file was altered ends all ranks with status 2, whichever ends first") {
  const TemporaryFolder folder;
  const std::string plan = folder.write("plan.json", to_json(tiny_plan({.shallow = true})));
  const std::string saved = folder / "saved";
  REQUIRE(run_here({"run", plan, "--steps", "1", "--save", saved}).status == 0);
  const std::string file = saved + "/step-000001/rank-00001.safetensors";
  std::string bytes = read_file(file);
  bytes.back() ^= 1;
  write_file(file, bytes);
  for (const std::string transport : {"local", "gloo"}) {
    const Ended ended = run_over(transport, folder, {"run", plan, "--steps", "2", "--resume", saved});
    INFO(ended.err);
    CHECK(ended.status == 2);
    CHECK_THAT(ended.err, ContainsSubstring(file + ": has been altered"));
  }
}

TEST_CASE("options that do not go together, and folders that cannot be, are refused in a line with status 2") {
  const TemporaryFolder folder;
  const std::string plan = folder.write("plan.json", to_json(tiny_plan({})));
  const std::string file = folder.write("file", "text");
  const std::string pipe = folder / "pipe";  // without a reader
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases{
      {{"--save-every", "2"}, "--save-every: says nothing without a folder"},
      {{"--asynchronous-save"}, "--asynchronous-save: says nothing without a folder"},
      {{"--keep", "2"}, "--keep: says nothing without a folder"},
      {{"--resume", "latest"}, "--resume latest: says nothing without a folder"},
      {{"--save", folder / "saved", "--save-every", "0"}, "--save-every"},
      {{"--save", folder / "saved", "--emulate"}, "--save: there are no weights and no loss when compute is emulated"},
      {{"--log", folder / "log", "--emulate"}, "--log: there are no weights and no loss"},
      {{"--resume", folder / "saved", "--check"}, "--check: compares with a single device that trains from the first"},
      {{"--resume", folder / "missing"}, "missing: has no checkpoint"},
      {{"--resume", file}, "cannot be read as a folder of checkpoints"},
      {{"--save", file + "/saved"}, "cannot be made"},
      {{"--save", "/proc/self"}, "/proc/self: cannot be written: "},
      {{"--save", "/proc/self"}, "--save must name a folder that you may write to"},
      {{"--save", "/proc/saved"}, "cannot be made"},
      {{"--save", folder / "saved", "--log", folder / "saved/step-000002.partial"}, "--log: "},
      {{"--save", folder / "saved", "--log", folder / "saved/run.lock"}, "is a name of what --save keeps in "},
      {{"--save", folder / "saved", "--export-adapters", folder / "saved/step-000001"},
       "is a name of what --save keeps in "},
      {{"--save", folder / "saved", "-o", folder / "saved/step-000001/timeline.json"}, "-o: "},
      {{"--save", folder / "saved", "--export", folder / "saved/step-1"}, "--export: "},
      {{"--log", folder / "missing/log"}, "cannot be written: its folder does not exist"},
      {{"--log", pipe}, "pipe: is no regular file"},
      {{"--log", file}, "file: has something in it that is no log of steps"},
      {{"--log", plan}, "is read and would be written over"}};
  for (const auto& [more, problem] : cases) {
    std::vector<std::string> words{"run", plan, "--steps", "1"};
    words.insert(words.end(), more.begin(), more.end());
    const Ended ended = run_here(words);
    CAPTURE(ended.err);
    CHECK(ended.status == 2);
    CHECK(ended.out.empty());
    CHECK_THAT(ended.err, ContainsSubstring(problem));
  }
  CHECK_FALSE(fs::exists(folder / "saved"));
}

TEST_CASE("an existing file at a checkpoint's path is named before training begins") {
  const TemporaryFolder folder;
  const std::string plan = folder.write("plan.json", to_json(tiny_plan({.ranks = 1, .shallow = true})));
  const std::string saved = folder / "saved";
  REQUIRE(run_here({"run", plan, "--steps", "2", "--save", saved, "--save-every", "1"}).status == 0);
  fs::remove(saved + "/step-000001/index.json");  // half a copy
  const Ended behind = run_here({"run", plan, "--steps", "3", "--save", saved, "--resume", "latest"});
  INFO(behind.err);
  CHECK(behind.status == 0);
  CHECK_THAT(behind.err, ContainsSubstring(saved + "/step-000001 has no index.json, and is passed over"));
  for (const bool is_folder : {true, false}) {
    const std::string in_the_way = saved + "/step-000005";
    if (is_folder) {
      fs::create_directory(in_the_way);
    } else {
      write_file(in_the_way, "text");
    }
    const Ended ended = run_here({"run", plan, "--steps", "6", "--save", saved, "--resume", "latest"});
    INFO(ended.err);
    CHECK(ended.status == 2);
    CHECK_THAT(ended.err, ContainsSubstring(in_the_way + ": has no index.json: it is no checkpoint") &&
                              ContainsSubstring("remove or rename it"));
    fs::remove(in_the_way);
  }
}

TEST_CASE(
    "what --keep counts are the checkpoints of one training, resumed or not: those of another stay, which is said") {
  const TemporaryFolder folder;
  const auto plan_of_seed = [&](int seed) {
    const std::string more = ", seed: " + std::to_string(seed);
    return folder.write("plan" + std::to_string(seed) + ".json",
                        to_json(tiny_plan({.ranks = 1, .more_of_training = more, .shallow = true})));
  };
  const std::string saved = folder / "saved";
  const std::string elsewhere = folder / "elsewhere";
  REQUIRE(run_here({"run", plan_of_seed(1), "--steps", "2", "--save", saved, "--save-every", "1"}).status == 0);
  REQUIRE(run_here({"run", plan_of_seed(2), "--steps", "2", "--save", elsewhere}).status == 0);
  // With another seed it is the same training still.
  const Ended ended = run_here({"run", plan_of_seed(3), "--steps", "5", "--save", saved, "--save-every", "1", "--keep",
                                "2", "--resume", elsewhere});
  INFO(ended.err);
  REQUIRE(ended.status == 0);
  CHECK_THAT(ended.err, ContainsSubstring("--keep counts this training's checkpoints alone, and leaves step-000001, "
                                          "step-000002 of " +
                                          saved));
  CHECK(look_into(saved).steps == std::vector<std::int64_t>{1, 2, 4, 5});
  REQUIRE(
      run_here({"run", plan_of_seed(2), "--steps", "6", "--save", saved, "--keep", "1", "--resume", "latest"}).status ==
      0);
  CHECK(look_into(saved).steps == std::vector<std::int64_t>{1, 2, 6});
}

TEST_CASE("texts of an index are quoted in short, and a checkpoint of very many steps has no hint that is refused") {
  const TemporaryFolder folder;
  const std::string plan = folder.write("plan.json", to_json(tiny_plan({.ranks = 1, .shallow = true})));
  const std::string saved = folder / "saved";
  REQUIRE(run_here({"run", plan, "--steps", "1", "--save", saved}).status == 0);
  const std::string file = saved + "/step-000001/index.json";
  CheckpointIndex index = parse_index(read_file(file), file);
  index.step = 999'999'999;
  index.schedule = "\x1b[31m";
  index.layout = std::string(100'000, 'x');
  write_file(file, to_json(index));
  const Ended ended = run_here({"run", plan, "--steps", "7", "--resume", saved});
  CHECK(ended.status == 2);
  CHECK_THAT(ended.err, ContainsSubstring("xxx…, \\x1b[31m)") && ContainsSubstring("has 999999999 steps already") &&
                            !ContainsSubstring("hint"));
  CHECK(ended.err.size() < 1000);
}

TEST_CASE("a log of steps goes on behind its checkpoint: later lines and a half one go") {
  const TemporaryFolder folder;
  const std::string file = folder / "log.jsonl";
  const auto line = [](std::int64_t step, double loss) {
    return to_json_line(
        {.step = step, .loss = loss, .learning_rate = 0.5, .sequences = 4 * step, .seconds = {2}, .tokens = 10});
  };
  CHECK(line(3, 1.5) ==
        "{\"step\":3,\"loss\":1.5,\"learning_rate\":0.5,\"sequences\":12,\"step_s\":2.0,\"tokens_per_s\":5.0}\n");
  CHECK_THAT(line(3, std::nan("")), ContainsSubstring("\"loss\":null"));
  write_file(file, line(1, 5) + line(2, 4) + line(3, 3) + "{\"step\":4,\"lo");
  {
    StepLog log(file, 2);
    log.add({.step = 3, .loss = 2.5, .learning_rate = 0.5, .sequences = 12, .seconds = {2}, .tokens = 10});
    CHECK(read_file(file) == line(1, 5) + line(2, 4) + line(3, 2.5));
    const auto other_run = ContainsSubstring("log.jsonl: another run writes the log of its steps there");
    CHECK_THROWS_WITH(require_log_file(file), other_run);
    CHECK_THROWS_WITH(StepLog(file, 0), other_run);
    CHECK(read_file(file) == line(1, 5) + line(2, 4) + line(3, 2.5));
  }
  {
    StepLog log(file, 2);
    const std::string before = read_file(file);
    ::signal(SIGXFSZ, SIG_IGN);
    rlimit was{};
    ::getrlimit(RLIMIT_FSIZE, &was);
    const rlimit in_the_next_line{.rlim_cur = before.size() + 10, .rlim_max = was.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &in_the_next_line);
    CHECK_THROWS_WITH(log.add({.step = 3, .loss = 2.5, .seconds = {2}, .tokens = 10}),
                      ContainsSubstring("log.jsonl: could not be written"));
    ::setrlimit(RLIMIT_FSIZE, &was);
    ::signal(SIGXFSZ, SIG_DFL);
    CHECK(read_file(file) == before);
  }
  write_file(file, line(1, 5) + "text\n" + line(2, 4));
  CHECK_THROWS_WITH(StepLog(file, 2), ContainsSubstring("log.jsonl:2: is no line of a log of steps"));
  CHECK_NOTHROW(StepLog(file, 0));
  CHECK(read_file(file).empty());
  // What a run left that was killed in its first line is begun anew, what is no log is left.
  for (const std::string& own : {std::string("{\"step\":1,\"lo"), line(1, 5), std::string()}) {
    write_file(file, own);
    CHECK_NOTHROW(StepLog(file, 0));
  }
  for (const std::string& other : {std::string("text"), "text\n" + line(1, 5), std::string("{\"loss\":1}\n"),
                                   std::string("\n"), std::string("{\"step\":1,") + std::string(10'000, ' ')}) {
    write_file(file, other);
    CHECK_THROWS_WITH(StepLog(file, 0), ContainsSubstring("log.jsonl: has something in it that is no log of steps"));
    CHECK(read_file(file) == other);
  }
}

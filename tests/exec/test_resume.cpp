// Trainings that are killed: they go on from the last whole checkpoint, as if nothing had been.
#include <algorithm>
#include <csignal>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "exec/checkpoint/checkpoint_folder.hpp"
#include "tests/catch.hpp"
#include "tests/exec/running_program.hpp"

using namespace plumb;
using namespace plumb::exec;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

// By step, as the log of steps has them; each step once, in their order.
std::vector<double> logged_losses(const std::string& file) {
  std::vector<double> losses;
  std::istringstream lines(content(file));
  for (std::string line; std::getline(lines, line);) {
    const json parsed = json::parse(line);
    losses.push_back(parsed.at("loss").get<double>());
    CHECK(parsed.at("step") == losses.size());
    CHECK(parsed.at("learning_rate") == 1e-3);
  }
  return losses;
}

std::vector<double> uninterrupted_losses(const TemporaryFolder& folder, const std::string& plan, std::int64_t steps) {
  const Ended ended = run(folder, {"run", plan, "--steps", std::to_string(steps), "--log", folder / "whole.jsonl"});
  INFO(ended.err);
  REQUIRE(ended.status == 0);
  return logged_losses(folder / "whole.jsonl");
}

}  // namespace

TEST_CASE("a training of which a rank is killed resumes from its last checkpoint with the losses of one that was not") {
  const TemporaryFolder folder;
  const std::string plan = folder.write("plan.json", to_json(tiny_plan({.data = 2})));
  const fs::path saved = folder / "saved";
  std::vector<std::string> words{"run",    plan, "--save", saved.string(),       "--save-every", "2",
                                 "--keep", "2",  "--log",  folder / "log.jsonl", "--resume",     "latest"};
  const auto of_steps = [&](std::vector<std::string> more) {
    more.insert(more.begin(), words.begin(), words.end());
    return more;
  };
  Running killed(folder, of_steps({"--transport", "gloo", "--steps", "100000"}));
  wait_until([&] { return !look_into(saved).steps.empty() && look_into(saved).steps.back() >= 6; });
  const pid_t victim = killed.rank_process(1);
  REQUIRE(victim != 0);
  ::kill(victim, SIGKILL);
  const Ended ended = killed.wait();
  INFO(ended.err);
  CHECK(ended.status == 3);
  CHECK_THAT(ended.err, ContainsSubstring("has no checkpoint yet: the training begins with its first step"));
  const std::vector<std::int64_t> there = look_into(saved).steps;
  REQUIRE_FALSE(there.empty());
  CHECK(there.size() <= 3);  // the third while the first is removed
  const std::int64_t steps = there.back() + 3;
  const Ended resumed = run(folder, of_steps({"--steps", std::to_string(steps), "--json"}));
  INFO(resumed.err);
  REQUIRE(resumed.status == 0);
  CHECK_THAT(resumed.err, ContainsSubstring("resumes " + (saved / checkpoint_name(there.back())).string()));
  const json answer = json::parse(resumed.out);
  CHECK(answer.at("first_step") == there.back());
  CHECK(answer.at("loss").size() == 3);
  CHECK(look_into(saved).steps.back() == steps);
  CHECK(look_into(saved).steps.size() == 2);
  CHECK(look_into(saved).leftovers.empty());
  const std::vector<double> losses = logged_losses(folder / "log.jsonl");
  CHECK(losses == uninterrupted_losses(folder, plan, steps));
  CHECK(answer.at("loss").back() == losses.back());
}

// Beside its steps: those behind the one that is saved have run, and are run again.
TEST_CASE("a training that is killed while it saves takes the checkpoint before, and says what it removed") {
  const bool beside = GENERATE(false, true);
  CAPTURE(beside);
  const TemporaryFolder folder;
  const std::string plan = folder.write("plan.json", to_json(tiny_plan({})));
  const fs::path saved = folder / "saved";
  std::vector<std::string> words{"run", plan, "--save", saved.string(), "--log", folder / "log.jsonl"};
  if (beside) words.emplace_back("--asynchronous-save");
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), words.begin(), words.end());
    return more;
  };
  Running killed(folder, with({"--save-every", "1", "--steps", "100000"}));
  wait_until([&] { return look_into(saved).steps.size() >= 2; });
  // Stopped first, so that it surely is in the middle of one.
  wait_until([&] {
    if (look_into(saved).leftovers.empty()) return false;
    ::kill(killed.pid(), SIGSTOP);
    wait_until(
        [&] { return content("/proc/" + std::to_string(killed.pid()) + "/stat").find(") T ") != std::string::npos; });
    if (!look_into(saved).leftovers.empty()) return true;
    ::kill(killed.pid(), SIGCONT);
    return false;
  });
  ::kill(killed.pid(), SIGKILL);
  CHECK(killed.wait().status == 128 + SIGKILL);
  const CheckpointFolder there = look_into(saved);
  REQUIRE(there.leftovers.size() == 1);
  const std::int64_t last = there.steps.back();
  CHECK(there.leftovers.front() == checkpoint_name(last + 1) + ".partial");
  const Ended resumed = run(folder, with({"--resume", "latest", "--steps", std::to_string(last + 2)}));
  INFO(resumed.err);
  REQUIRE(resumed.status == 0);
  CHECK_THAT(resumed.err, ContainsSubstring("removed " + (saved / there.leftovers.front()).string()) &&
                              ContainsSubstring("resumes " + (saved / checkpoint_name(last)).string()));
  CHECK(look_into(saved).leftovers.empty());
  CHECK(look_into(saved).steps.back() == last + 2);
  CHECK(logged_losses(folder / "log.jsonl") == uninterrupted_losses(folder, plan, last + 2));
}

TEST_CASE(
    "a training of which all ranks are killed at once, or one, while it trains or saves, resumes from the last whole") {
  // One while it trains is a test of its own.
  const auto [while_saving, beside, all] = GENERATE(table<bool, bool, bool>(
      {{false, false, true}, {true, false, true}, {true, true, true}, {true, false, false}, {true, true, false}}));
  CAPTURE(while_saving, beside, all);
  const TemporaryFolder folder;
  const std::string plan = folder.write("plan.json", to_json(tiny_plan({.shallow = true})));
  const fs::path saved = folder / "saved";
  const auto with = [&](std::vector<std::string> more) {
    std::vector<std::string> words{"run",          plan,
                                   "--save",       saved.string(),
                                   "--resume",     "latest",
                                   "--log",        folder / "log.jsonl",
                                   "--save-every", while_saving ? "1" : "4"};
    if (beside) words.emplace_back("--asynchronous-save");
    more.insert(more.begin(), words.begin(), words.end());
    return more;
  };
  Running killed(folder, with({"--transport", "gloo", "--steps", "100000"}));
  wait_until([&] { return look_into(saved).steps.size() >= 2; });
  const std::vector<pid_t> ranks{killed.rank_process(0), killed.rank_process(1)};
  for (const pid_t rank : ranks) REQUIRE(rank != 0);
  const auto signal_all = [&](int signal) {
    for (const pid_t rank : ranks) ::kill(rank, signal);
  };
  // Stopped first, so that they surely are where they are to be.
  wait_until([&] {
    if (look_into(saved).leftovers.empty() == while_saving) return false;
    signal_all(SIGSTOP);
    wait_until([&] {
      return std::ranges::all_of(ranks, [](pid_t rank) {
        return content("/proc/" + std::to_string(rank) + "/stat").find(") T ") != std::string::npos;
      });
    });
    if (look_into(saved).leftovers.empty() != while_saving) return true;
    signal_all(SIGCONT);
    return false;
  });
  const CheckpointFolder there = look_into(saved);
  if (all) {
    signal_all(SIGKILL);
  } else {
    ::kill(ranks[1], SIGKILL);
    ::kill(ranks[0], SIGCONT);
  }
  const Ended ended = killed.wait();
  INFO(ended.err);
  CHECK(ended.status == 3);
  CHECK_THAT(ended.err, ContainsSubstring("killed by signal 9"));
  CHECK(there.leftovers.size() == (while_saving ? 1 : 0));
  // Where rank 1 had written its part, rank 0 may have made the checkpoint whole since.
  const std::int64_t last = look_into(saved).steps.back();
  CHECK(last - there.steps.back() <= (all ? 0 : 1));
  const Ended resumed = run(folder, with({"--steps", std::to_string(last + 2)}));
  INFO(resumed.err);
  REQUIRE(resumed.status == 0);
  CHECK_THAT(resumed.err, ContainsSubstring("resumes " + (saved / checkpoint_name(last)).string()));
  CHECK(look_into(saved).leftovers.empty());
  CHECK(logged_losses(folder / "log.jsonl") == uninterrupted_losses(folder, plan, last + 2));
}

TEST_CASE("a resumed training that is interrupted says which step it reached, and which checkpoints it saved") {
  const TemporaryFolder folder;
  const std::string plan = folder.write("plan.json", to_json(tiny_plan({.shallow = true})));
  const std::string saved = folder / "saved";
  REQUIRE(run(folder, {"run", plan, "--steps", "2", "--save", saved}).status == 0);
  Running resumed(folder, {"run", plan, "--steps", "100000", "--save", saved, "--save-every", "2", "--resume", "latest",
                           "--transport", "gloo", "--json"});
  wait_until([&] { return look_into(saved).steps.back() >= 6; });
  ::kill(resumed.pid(), SIGINT);
  const Ended ended = resumed.wait();
  INFO(ended.err);
  CHECK(ended.status == 3);
  const json answer = json::parse(ended.out);
  const std::size_t made = answer.at("loss").size();
  CHECK_THAT(ended.err, ContainsSubstring("after " + std::to_string(2 + made) + " whole steps of 100000: the last " +
                                          std::to_string(made) + " are above"));
  // It may have been stopped behind the last one's renaming.
  std::vector<std::string> there;
  for (const std::int64_t step : look_into(saved).steps) there.push_back(saved + "/" + checkpoint_name(step));
  const std::vector<std::string> told = answer.at("checkpoints");
  REQUIRE(told.size() + 2 >= there.size());
  REQUIRE(told.size() < there.size());
  CHECK(std::equal(told.begin(), told.end(), there.begin() + 1));
}

// Ranks of one run on what they take for several hosts: clocks of their own, files that others do not have.
#include <cstdlib>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "common/timeline/trace/trace.hpp"
#include "exec/transport/gloo/run_store.hpp"
#include "tests/exec/running_program.hpp"

using namespace plumb;
using namespace plumb::exec;
using nlohmann::json;

namespace {

// As launchers on two hosts give them.
std::vector<std::string> variables(int rank, int port) {
  return {"RANK=" + std::to_string(rank), "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1",
          "MASTER_PORT=" + std::to_string(port)};
}

}  // namespace

// A clock of its own as on another host: a time namespace, whose monotonic clock is 5000 s ahead.
TEST_CASE("ranks whose clocks differ write one timeline, by rank 0 alone, and say how well its times agree") {
  constexpr double ahead_s = 5000;
  const std::vector<std::string> ahead{"unshare", "--time", "--fork", "--monotonic", "5000", "--boottime", "5000"};
  if (std::system("unshare --time --fork --monotonic 5000 --boottime 5000 true 2>/dev/null") != 0) {
    WARN("skipped: no time namespaces here");
    return;
  }
  const TemporaryFolder folder;
  const std::string plan = write_slow_plan(folder, 2, 8);
  const int port = RunStore::host(0)->port();
  const auto words = [&](const std::string& output) {
    return std::vector<std::string>{"run",     plan, "--emulate", "--transport", "gloo",
                                    "--steps", "3",  "--json",    "-o",          output};
  };
  const auto run_both = [&](const std::vector<std::string>& through) {
    Running zero(folder, words(folder / "measured.json"), variables(0, port));
    Running one(folder, words(folder / "no/such/folder/measured.json"), variables(1, port), through);
    const Ended first = zero.wait();
    const Ended second = one.wait();
    INFO(first.err << second.err);
    REQUIRE(first.status == 0);
    REQUIRE(second.status == 0);
    return json::parse(first.out);
  };
  const json alone = run_both({});
  CHECK_FALSE(alone.contains("clock_uncertainty_s"));
  CHECK(read_timeline(folder / "measured.json").clock_uncertainty == Seconds{0});

  const json apart = run_both(ahead);
  const double uncertainty = apart.at("clock_uncertainty_s");
  CHECK(uncertainty > 0);
  CHECK(uncertainty < ahead_s / 100);
  CHECK(apart.at("clock_warnings").empty());
  // Eight microbatches through two ranks of 2 ms each: not 5000 s, nor without the ranks' waits.
  const Timeline timeline = read_timeline(folder / "measured.json");
  CHECK(timeline.clock_uncertainty.value == Approx(uncertainty));
  CHECK(timeline.clock_of_rank == std::vector<int>{0, 1});
  for (const StepTimeline& step : timeline.steps) {
    CHECK(step.duration < Seconds{ahead_s / 2});
    std::map<std::string, Seconds> ends;
    for (const Event& event : step.events) ends[to_string(event.action)] = event.end;
    for (int microbatch = 0; microbatch < 8; ++microbatch) {
      const std::string number = std::to_string(microbatch);
      CHECK(ends.at("1F" + number) - ends.at("0F" + number) > Seconds{0.002 - uncertainty});
      CHECK(ends.at("0B" + number) - ends.at("1B" + number) > Seconds{0.002 - uncertainty});
    }
  }
}

TEST_CASE("ranks that read different texts are refused") {
  const TemporaryFolder folder;
  const std::string plan = folder.write("plan.json", to_json(tiny_plan({})));
  const int port = RunStore::host(0)->port();
  std::vector<std::unique_ptr<Running>> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    const std::string text = folder.write("text" + std::to_string(rank), std::string(4000, rank == 0 ? 'a' : 'b'));
    ranks.push_back(std::make_unique<Running>(
        folder, std::vector<std::string>{"run", plan, "--transport", "gloo", "--data", text}, variables(rank, port)));
  }
  for (const auto& rank : ranks) {
    const Ended ended = rank->wait();
    CHECK(ended.status == 2);
    CHECK_THAT(ended.err, ContainsSubstring("rank 1: has another text to train on than rank 0"));
  }
}

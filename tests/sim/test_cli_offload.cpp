// What the commands say of states that stand on the host, and of those that could.
#include <set>

#include "tests/catch.hpp"
#include "tests/sim/answers.hpp"
#include "tests/sim/cli.hpp"

using plumb::tests::Folder;
using plumb::tests::Json;
using plumb::tests::json_of;
using plumb::tests::Outcome;
using plumb::tests::refuses;
using plumb::tests::replaced;
using plumb::tests::require_keys;
using plumb::tests::run_plumb;
using plumb::tests::small;

namespace {

// `small` with this in its training.
std::string with(const std::string& offload) {
  return replaced(small, "microbatch: 1}", "microbatch: 1, offload: " + offload + "}");
}

}  // namespace

TEST_CASE("plan weighs what a scenario may offload, and says it of each candidate") {
  const Folder folder;
  const std::string file = folder.file("open.yaml", with("[none, optimizer]"));
  const Json planned = json_of(run_plumb(folder, "plan " + file + " --json"));
  int on_host = 0;
  for (const Json& candidate : planned["candidates"]) {
    require_keys(candidate, {"offload"});
    on_host += candidate["offload"] == "optimizer" ? 1 : 0;
  }
  CHECK(on_host > 0);
  CHECK(planned["candidates"].front()["offload"] == "none");  // there is room for all, and copies take time
  const Outcome table = run_plumb(folder, "plan " + file);
  CHECK_THAT(table.out, ContainsSubstring("offload  ") && ContainsSubstring("host: offload: optimizer would free "));
}

TEST_CASE("simulate and show say what stands on the host and what a step copies, or what could stand there") {
  const Folder folder;
  const std::string there = folder.file("there.yaml", with("optimizer"));
  const std::string here = folder.file("here.yaml", small);
  const Json predicted = json_of(run_plumb(folder, "simulate " + there + " --json"));
  const Json without = json_of(run_plumb(folder, "simulate " + here + " --json"));
  CHECK(predicted["chosen"]["offload"] == "optimizer");
  CHECK(predicted["host_memory_bytes"].get<std::int64_t>() == std::int64_t{4} << 30);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const Json& own = predicted["ranks"][rank];
    const Json& of = without["ranks"][rank];
    // fp32: moments alone are the device's states, to which the host has a master copy and a buffer of gradients.
    const auto states = of["optimizer_bytes"].get<std::int64_t>();
    CHECK(own["optimizer_bytes"] == 0);
    CHECK(own["host_bytes"].get<std::int64_t>() == 2 * states);
    CHECK(own["host_copied_bytes"].get<std::int64_t>() == states);
    CHECK(own["peak_bytes"].get<std::int64_t>() == of["peak_bytes"].get<std::int64_t>() - states);
    CHECK(of["host_bytes"] == 0);
  }
  CHECK(predicted["iteration_s"].get<double>() > without["iteration_s"].get<double>());
  const std::string said = run_plumb(folder, "simulate " + there).out;
  CHECK_THAT(said, ContainsSubstring("recompute none, offload optimizer") &&
                       ContainsSubstring("of 4.000 GiB on the host of rank ") && ContainsSubstring(" go down and "));
  CHECK_THAT(run_plumb(folder, "simulate " + here).out, ContainsSubstring("offload: optimizer would free "));
  CHECK_THAT(run_plumb(folder, "show " + there).out,
             ContainsSubstring("for each device, updated at ") && ContainsSubstring("on the host of rank "));
}

TEST_CASE("simulate and plan say what of the activations stands on the host") {
  const Folder folder;
  const std::string there = folder.file("there.yaml", with("optimizer + activations"));
  const std::string here = folder.file("here.yaml", small);
  const Json predicted = json_of(run_plumb(folder, "simulate " + there + " --json"));
  const Json without = json_of(run_plumb(folder, "simulate " + here + " --json"));
  CHECK(predicted["chosen"]["offload"] == "optimizer+activations");
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const Json& own = predicted["ranks"][rank];
    const Json& of = without["ranks"][rank];
    CHECK(own["host_bytes"].get<std::int64_t>() > 2 * of["optimizer_bytes"].get<std::int64_t>());
    CHECK(own["host_copied_bytes"].get<std::int64_t>() > of["optimizer_bytes"].get<std::int64_t>());
    CHECK(own["peak_kept_bytes"] == 0);
    CHECK(own["peak_bytes"] < of["peak_bytes"]);
  }
  CHECK(predicted["iteration_s"].get<double>() > without["iteration_s"].get<double>());
  CHECK_THAT(run_plumb(folder, "simulate " + here).out, ContainsSubstring("offload: activations would free "));
  const std::string half = folder.file("half.yaml", with("optimizer"));
  CHECK_THAT(run_plumb(folder, "simulate " + half).out,
             ContainsSubstring("offload: optimizer+activations would free "));
  const Json planned = json_of(run_plumb(folder, "plan " + folder.file("open.yaml", with("auto")) + " --json"));
  std::set<std::string> weighed;
  for (const Json& candidate : planned["candidates"]) weighed.insert(candidate["offload"].get<std::string>());
  CHECK(weighed == std::set<std::string>{"none", "optimizer", "activations", "optimizer+activations"});
  refuses(
      run_plumb(folder, "plan " + folder.file("redone.yaml", replaced(with("activations"), "microbatch: 1,",
                                                                      "microbatch: 1, recompute: full,"))),
      {"offload of activations cannot be planned yet with recompute: full of whole stages", "recompute_unit: layer"});
}

// fp32: what STEP updates on the device comes up before and goes down behind.
TEST_CASE("simulate says what of the weights stands on the host, and refuses it where ranks keep them whole") {
  const Folder folder;
  const auto shared_by = [](const std::string& rule, const std::string& scenario) {
    return replaced(scenario, "{pipeline: 2}", "{data: {degree: 2, sharding: " + rule + "}}");
  };
  const std::string there = folder.file("there.yaml", shared_by("fsdp", with("parameters")));
  const std::string here = folder.file("here.yaml", shared_by("fsdp", small));
  const Json predicted = json_of(run_plumb(folder, "simulate " + there + " --json"));
  const Json without = json_of(run_plumb(folder, "simulate " + here + " --json"));
  CHECK(predicted["chosen"]["offload"] == "parameters");
  constexpr int gatherings = 4 + 4;  // F and B of each microbatch
  for (std::size_t rank = 0; rank < predicted["ranks"].size(); ++rank) {
    const Json& own = predicted["ranks"][rank];
    const auto weights = without["ranks"][rank]["parameter_bytes"].get<std::int64_t>();
    CHECK(weights > 0);
    CHECK(own["parameter_bytes"] == 0);
    CHECK(own["host_bytes"].get<std::int64_t>() == weights);
    CHECK(own["host_copied_bytes"].get<std::int64_t>() == (gatherings + 2) * weights);
    CHECK(own["peak_bytes"].get<std::int64_t>() == without["ranks"][rank]["peak_bytes"].get<std::int64_t>() - weights);
  }
  CHECK(predicted["iteration_s"].get<double>() > without["iteration_s"].get<double>());
  CHECK_THAT(run_plumb(folder, "simulate " + here).out, ContainsSubstring("offload: parameters would free "));
  const std::string whole = folder.file("whole.yaml", shared_by("zero1", with("parameters")));
  refuses(run_plumb(folder, "plan " + whole), {"only sharded weights can be offloaded", "sharding: fsdp"});
}

TEST_CASE("offload without a host is refused with the key that says what it is") {
  const Folder folder;
  const std::string machine =
      "{name: mine, devices: 2, device: {name: d, type: cpu, peak: {fp32: 1 TFLOP/s}, matmul_efficiency: 0.5, "
      "memory_bandwidth: 10 GB/s, memory_efficiency: 0.5, memory: 4 GiB}, inside: {latency: 1 us, bandwidth: 1 GB/s}, "
      "outside: {latency: 1 us, bandwidth: 1 GB/s}}";
  const std::string file =
      folder.file("bare.yaml", replaced(replaced(with("optimizer"), "local-cpu", machine), ", cores: 2", ""));
  refuses(run_plumb(folder, "plan " + file), {"machine mine has no 'host'", "host: {link: {latency"});
}

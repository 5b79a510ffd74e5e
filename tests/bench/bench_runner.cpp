// What the runner itself costs an action on the host: a rank of 1F1B whose stage does nothing and whose messages are
// there at once. One thread, no clock but the runner's own: its instructions can be counted (side_by_side.py).
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "common/plan/plan.hpp"
#include "common/schedule/generators/registry.hpp"
#include "exec/run/runner.hpp"
#include "exec/stage/stage.hpp"
#include "exec/transport/transport.hpp"
#include "tests/exec/run/idle_stage.hpp"

using namespace plumb;
using namespace plumb::exec;

namespace {

constexpr int rank_count = 4;
constexpr int measured_rank = 1;
constexpr int microbatches = 256;
constexpr std::size_t boundary_bytes = 4096;

Payload value() {
  static const auto bytes = std::make_shared<std::vector<std::byte>>(boundary_bytes);
  return {.owner = bytes, .data = bytes->data(), .size = bytes->size()};
}

class NoWork final : public test::IdleStage {
 public:
  Payload forward(int /*microbatch*/, Payload input) override { return input; }
  Payload input_gradient(int /*microbatch*/, Payload gradient) override { return gradient; }
};

// Takes what is sent, and has what is to be received.
class NoWay final : public Transport {
 public:
  int rank() const override { return measured_rank; }
  int size() const override { return rank_count; }
  void send(int /*peer*/, Channel /*channel*/, Payload /*payload*/) override {}
  void expect(int /*peer*/, Channel /*channel*/, std::size_t /*bytes*/, int /*count*/) override {}
  Received receive(int /*peer*/, Channel /*channel*/, Clock::time_point /*deadline*/) override {
    return {.payload = value(), .arrived = Clock::now()};
  }
  void send_parcel(int /*peer*/, Parcel /*parcel*/) override {}
  void expect_parcels(int /*peer*/, int /*count*/) override {}
  bool has_parcel(int /*peer*/) override { return false; }
  ReceivedParcel receive_parcel(int /*peer*/, Clock::time_point /*deadline*/) override { return {}; }
  void all_reduce(std::span<const int> /*group*/, std::span<float> /*values*/,
                  Clock::time_point /*deadline*/) override {}
  void barrier(Clock::time_point /*deadline*/) override {}
  std::vector<std::string> gather(const std::string& text, Clock::time_point /*deadline*/) override { return {text}; }
  void abort(const std::string& /*reason*/) noexcept override {}
  Bytes received_bytes() const override { return {}; }
};

Plan plan_of_pipeline() {
  Plan plan;
  plan.schedule = generate_schedule("1f1b", {.ranks = rank_count, .microbatches = microbatches});
  plan.costs = even_costs(rank_count, {.forward = {1e-3}, .input_gradient = {1e-3}, .weight_gradient = {1e-3}});
  plan.costs.boundary_bytes = {static_cast<std::int64_t>(boundary_bytes)};
  plan.layout.pipeline = rank_count;
  plan.split.layers.assign(rank_count, 1);
  return plan;
}

}  // namespace

int main(int argc, char** argv) {
  const int steps = argc > 1 ? std::atoi(argv[1]) : 400;
  const Plan plan = plan_of_pipeline();
  const Schedule lowered = lower(plan.schedule, {.optimizer = false, .tied_embeddings = false});
  std::vector<std::unique_ptr<Stage>> stages(rank_count);
  stages[measured_rank] = std::make_unique<NoWork>();
  NoWay transport;
  const auto actions = static_cast<double>(lowered.actions[measured_rank].size());
  std::vector<double> times;
  for (int step = 0; step < steps; ++step) {
    const auto start = std::chrono::steady_clock::now();
    const RankLog log = run_rank(plan, lowered, transport, stages, {.steps = 1});
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start;
    if (log.steps.front().events.size() == lowered.actions[measured_rank].size()) times.push_back(took.count());
  }
  std::sort(times.begin(), times.end());
  std::printf("%zu steps of %.0f actions: %.1f ns an action, at best %.1f\n", times.size(), actions,
              times[times.size() / 2] / actions, times.front() / actions);
  return EXIT_SUCCESS;
}

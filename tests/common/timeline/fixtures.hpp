// Small timelines for tests, made without the graph.
#pragma once

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "common/timeline/timeline.hpp"

namespace plumb::test {

inline Action action(ActionKind kind, int stage, int microbatch = no_microbatch) {
  return {.kind = kind, .stage = stage, .microbatch = microbatch};
}

// Costs of `stages` stages that are all a little different, and links with a bandwidth.
inline PipelineCosts some_costs(int stages) {
  PipelineCosts costs;
  for (int s = 0; s < stages; ++s) {
    ComputeCost cost;
    cost.forward = {1e-3 + s / 7e4};
    cost.input_gradient = {1.1e-3};
    cost.weight_gradient = {0.9e-3};
    cost.optimizer = {2e-4};
    cost.parameters = 1000 + s;
    cost.parameter_bytes = {4000};
    costs.stages.push_back(cost);
  }
  costs.boundary_bytes = {4096};
  costs.inside = {.latency = {1e-5}, .bandwidth = {1e9}};
  costs.outside = {.latency = {2e-5}, .bandwidth = {1e8}};
  costs.provenance = "made for a test";
  return costs;
}

// GPipe with random pauses: forwards along the ranks, then backwards, then optimizer steps; `steps` times.
inline Timeline random_gpipe(int ranks, int microbatches, int steps, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto moment = [&] { return std::uniform_real_distribution<double>(1e-4, 3e-3)(random); };
  Timeline timeline;
  timeline.source = steps == 1 ? TimelineSource::predicted : TimelineSource::measured;
  timeline.producer = "test";
  timeline.plan_name = "tiny \"<b>hybrid</b>\" & co";
  timeline.plan_digest = "0123456789abcdef";
  timeline.costs_digest = "fedcba9876543210";
  timeline.tokens_per_step = 8192;
  timeline.model_flops = {1e15 / 3};
  timeline.schedule = {.name = "gpipe",
                       .ranks = ranks,
                       .microbatches = microbatches,
                       .chunks = 1,
                       .rank_of_stage = {},
                       .actions = std::vector<std::vector<Action>>(static_cast<std::size_t>(ranks))};
  timeline.costs = some_costs(ranks);
  for (int r = 0; r < ranks; ++r) {
    timeline.schedule.rank_of_stage.push_back(r);
    timeline.ranks.push_back(
        {.parameter_bytes = {1 << 20},
         .gradient_bytes = {2 << 20},
         .optimizer_bytes = {3 << 20},
         .activation_bytes = {(ranks - r) << 20},
         .peak_bytes = {(ranks - r + 6) << 20},
         .received_bytes = {r * 4096 + microbatches},
         .peak = PeakMoment{
             .held = {.kept = {(ranks - r) << 19}, .messages = {(ranks - r) << 18}, .workspace = {(ranks - r) << 18}},
             .time = {0.1 * r},
             .action = action(ActionKind::forward, r, 0)}});
    if (r == 1) timeline.ranks.back().peak.reset();  // as of a measured one
  }
  for (int step = 0; step < steps; ++step) {
    std::vector<Event> events;
    std::vector<double> free(static_cast<std::size_t>(ranks), 0);
    const auto run = [&](ActionKind kind, int rank, int microbatch, double ready) {
      double& now = free[static_cast<std::size_t>(rank)];
      const double start = std::max(now, ready) + moment() / 50;
      now = start + moment();
      events.push_back({action(kind, rank, microbatch), rank, -1, {start}, {now}, {}, {}});
      if (step == 0) timeline.schedule.actions[static_cast<std::size_t>(rank)].push_back(events.back().action);
      return now;
    };
    const auto receive = [&](ActionKind kind, int rank, int peer, int microbatch, double sent) {
      const double end = sent + moment() / 3;
      const double waited = std::max(0.0, end - std::max(sent, free[static_cast<std::size_t>(rank)]));
      events.push_back({action(kind, rank, microbatch), rank, peer, {sent}, {end}, {waited}, {4096}});
      if (step == 0) timeline.schedule.actions[static_cast<std::size_t>(rank)].push_back(events.back().action);
      return end;
    };
    for (int m = 0; m < microbatches; ++m) {
      double ready = 0;
      for (int r = 0; r < ranks; ++r) {
        if (r > 0) ready = receive(ActionKind::receive_forward, r, r - 1, m, ready);
        ready = run(ActionKind::forward, r, m, ready);
      }
    }
    for (int m = 0; m < microbatches; ++m) {
      double ready = 0;
      for (int r = ranks - 1; r >= 0; --r) {
        if (r < ranks - 1) ready = receive(ActionKind::receive_backward, r, r + 1, m, ready);
        ready = run(ActionKind::backward, r, m, ready);
      }
    }
    for (int r = 0; r < ranks; ++r) run(ActionKind::optimizer_step, r, no_microbatch, 0);
    timeline.steps.push_back(ordered_step(std::move(events)));
  }
  return timeline;
}

}  // namespace plumb::test

// Planners of replicated stages against brute force over all cuts and degrees, by each planner's own aim.
#include "common/split/replicas.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <random>

#include "common/base/error.hpp"
#include "tests/catch.hpp"

using namespace plumb;

namespace {

// Times in whole numbers, so that sums in any order are the same.
struct Chain {
  ReplicaProblem problem = {};
  std::vector<int> reduction_of = {};  // by degree
  std::vector<int> message_of = {};    // by smaller degree
};

Chain random_chain(unsigned seed) {
  std::mt19937 random(seed);
  const auto number = [&](int least, int most) { return std::uniform_int_distribution<int>(least, most)(random); };
  Chain chain;
  ReplicaProblem& problem = chain.problem;
  const int blocks = number(3, 6);
  problem.devices = number(1, 5);
  problem.most_stages = std::min(problem.devices, blocks - 2);
  problem.microbatches = number(1, 9);
  for (int degree = 1; degree <= problem.devices; ++degree) {
    if (degree == 1 || number(0, 3) > 0) problem.degrees.push_back(degree);
  }
  if (number(0, 1) == 1) {
    problem.widest = problem.degrees[static_cast<std::size_t>(number(0, static_cast<int>(problem.degrees.size()) - 1))];
  }
  for (int i = 0; i < blocks; ++i) {
    problem.gradients.push_back({number(0, 20)});
    problem.fixed.push_back({number(0, 30)});
  }
  for (const int degree : problem.degrees) {
    problem.forward.emplace_back();
    problem.backward.emplace_back();
    problem.kept.emplace_back();
    for (int i = 0; i < blocks; ++i) {
      problem.forward.back().push_back({static_cast<double>(number(0, 60) / degree)});
      problem.backward.back().push_back({static_cast<double>(number(0, 90) / degree)});
      problem.kept.back().push_back({number(0, 10) / degree});
    }
  }
  problem.memory = {number(0, 3) == 0 ? 60 : 1'000'000};
  if (number(0, 1) == 1) {
    std::vector<int> of_block;
    for (int i = 0; i < blocks; ++i) of_block.push_back(number(0, 25));
    problem.working = [of_block](int degree, int first, int last) {
      return Bytes{*std::max_element(of_block.begin() + first, of_block.begin() + last) / degree};
    };
  }
  for (int i = 0; i <= problem.devices; ++i) {
    chain.reduction_of.push_back(i < 2 ? 0 : number(0, 4));
    chain.message_of.push_back(number(0, 12));
  }
  problem.reduction = [of = chain.reduction_of](int degree, Bytes gradients) {
    return Seconds{static_cast<double>(of[static_cast<std::size_t>(degree)] * gradients.value)};
  };
  problem.message = [of = chain.message_of](int from, int to) {
    return Seconds{static_cast<double>(of[static_cast<std::size_t>(std::min(from, to))])};
  };
  return chain;
}

struct Stage {
  int first = 0;
  int last = 0;
  std::size_t degree = 0;  // index
};
using Stages = std::vector<Stage>;

double sum(const std::vector<Seconds>& values, const Stage& stage) {
  double total = 0;
  for (int i = stage.first; i < stage.last; ++i) total += values[static_cast<std::size_t>(i)].value;
  return total;
}
std::int64_t sum(const std::vector<Bytes>& values, const Stage& stage) {
  std::int64_t total = 0;
  for (int i = stage.first; i < stage.last; ++i) total += values[static_cast<std::size_t>(i)].value;
  return total;
}
double forward(const ReplicaProblem& p, const Stage& s) { return sum(p.forward[s.degree], s); }
double backward(const ReplicaProblem& p, const Stage& s) { return sum(p.backward[s.degree], s); }
double reduction(const ReplicaProblem& p, const Stage& s) {
  return p.reduction(p.degrees[s.degree], {sum(p.gradients, s)}).value;
}
double message(const ReplicaProblem& p, const Stages& stages, std::size_t behind) {
  return p.message(p.degrees[stages[behind].degree], p.degrees[stages[behind + 1].degree]).value;
}

// Visits all stages on all devices that fit.
void for_all(const ReplicaProblem& problem, const std::function<void(const Stages&)>& visit) {
  const int blocks = static_cast<int>(problem.gradients.size());
  Stages stages;
  const std::function<void(int, int)> place = [&](int start, int devices) {
    if (start == blocks && devices == 0) {
      bool counts = !problem.widest;
      for (std::size_t s = 0; s < stages.size(); ++s) {
        const auto held = std::min<std::int64_t>(problem.microbatches, std::ssize(stages) - static_cast<int>(s));
        const int degree = problem.degrees[stages[s].degree];
        const Bytes working = problem.working ? problem.working(degree, stages[s].first, stages[s].last) : Bytes{};
        if (sum(problem.fixed, stages[s]) + held * sum(problem.kept[stages[s].degree], stages[s]) + working.value >
            problem.memory.value) {
          return;
        }
        counts = counts || problem.degrees[stages[s].degree] == *problem.widest;
      }
      if (counts) visit(stages);
    }
    if (start == blocks || std::ssize(stages) == problem.most_stages) return;
    for (std::size_t degree = 0; degree < problem.degrees.size(); ++degree) {
      if (problem.degrees[degree] > devices) continue;
      for (int end = start + 1; end <= blocks; ++end) {
        stages.push_back({start, end, degree});
        place(end, devices - problem.degrees[degree]);
        stages.pop_back();
      }
    }
  };
  place(0, problem.devices);
}

// DAPPLE's equations with every stage and message as the pivot: T_w + T_s until the pivot's last backward begins to
// drain, then each stage's gradients, reduced when it has done its last backward.
double dapple_aim(const ReplicaProblem& problem, const Stages& stages) {
  struct Piece {
    double forward;
    double backward;
    double reduction;
  };
  std::vector<Piece> pieces;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    pieces.push_back({forward(problem, stages[s]), backward(problem, stages[s]), reduction(problem, stages[s])});
    if (s + 1 == stages.size()) break;
    const double c = message(problem, stages, s);
    pieces.push_back({c, c, 0});
  }
  double longest = 0;
  for (std::size_t pivot = 0; pivot < pieces.size(); ++pivot) {
    for (std::size_t last = 0; last <= pivot; ++last) {
      double path = static_cast<double>(problem.microbatches - 1) * (pieces[pivot].forward + pieces[pivot].backward);
      for (std::size_t a = 0; a <= pivot; ++a) path += pieces[a].forward;
      for (std::size_t a = last; a <= pivot; ++a) path += pieces[a].backward;
      longest = std::max(longest, path + pieces[last].reduction);
    }
  }
  return longest;
}

double pipedream_aim(const ReplicaProblem& problem, const Stages& stages) {
  double worst = 0;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    worst = std::max(worst, forward(problem, stages[s]) + backward(problem, stages[s]) + reduction(problem, stages[s]));
    if (s + 1 < stages.size()) worst = std::max(worst, 2 * message(problem, stages, s));
  }
  return worst;
}

double alpa_aim(const ReplicaProblem& problem, const Stages& stages) {
  double all = 0;
  double worst = 0;
  for (const Stage& stage : stages) {
    const double time = forward(problem, stage) + backward(problem, stage);
    all += time;
    worst = std::max(worst, time);
  }
  return all + static_cast<double>(problem.microbatches - 1) * worst;
}

Stages stages_of(const ReplicaProblem& problem, const ReplicaSplit& split) {
  Stages stages;
  for (int stage = 0; stage < static_cast<int>(split.degrees.size()); ++stage) {
    const BlockRange range = blocks_of_stage(split.split, stage);
    const int degree = split.degrees[static_cast<std::size_t>(stage)];
    stages.push_back({range.first, range.last,
                      static_cast<std::size_t>(std::ranges::find(problem.degrees, degree) - problem.degrees.begin())});
  }
  return stages;
}

ReplicaProblem vgg_like() {
  // Convolutions that take long and have few parameters, then fully connected layers that are quick and have nearly all
  // (VGG-16: 1.4e7 of 1.38e8 parameters in the convolutions).
  ReplicaProblem problem{.devices = 16, .most_stages = 4, .microbatches = 16, .forward = {}, .backward = {}};
  const std::vector<double> times = {60, 60, 60, 60, 60, 60, 4, 4, 4};
  const std::vector<std::int64_t> parameters = {1, 2, 2, 3, 3, 3, 50, 30, 15};
  for (int degree = 1; degree <= 16; ++degree) {
    problem.degrees.push_back(degree);
    problem.forward.emplace_back();
    problem.backward.emplace_back();
    for (const double time : times) {
      problem.forward.back().push_back({time / 3 / degree});
      problem.backward.back().push_back({time * 2 / 3 / degree});
    }
  }
  for (const std::int64_t count : parameters) problem.gradients.push_back({count});
  // PipeDream's 4 (m − 1) w / (m B), for each replica's own microbatch.
  problem.reduction = [](int degree, Bytes w) {
    const double m = degree;
    return Seconds{4 * (m - 1) / m * static_cast<double>(w.value) / m};
  };
  problem.message = [](int, int) { return Seconds{1.0}; };
  return problem;
}

}  // namespace

TEST_CASE("planners of replicated stages find the best of all cuts and degrees by their own aim") {
  struct Planner {
    const char* name;
    std::vector<ReplicaSplit> (*plan)(const ReplicaProblem&);
    double (*aim)(const ReplicaProblem&, const Stages&);
  };
  int compared = 0;
  for (const Planner& planner :
       {Planner{"dapple", dapple_replicas, dapple_aim}, Planner{"pipedream", pipedream_replicas, pipedream_aim},
        Planner{"alpa", alpa_replicas, alpa_aim}}) {
    for (unsigned seed = 0; seed < 400; ++seed) {
      const Chain chain = random_chain(seed);
      INFO(planner.name << ", seed " << seed);
      std::map<std::size_t, double> best;
      for_all(chain.problem, [&](const Stages& stages) {
        const auto [found, is_new] = best.try_emplace(stages.size(), std::numeric_limits<double>::infinity());
        found->second = std::min(found->second, planner.aim(chain.problem, stages));
      });
      std::map<std::size_t, double> found;
      for (const ReplicaSplit& split : planner.plan(chain.problem)) {
        found[split.degrees.size()] = split.time.value;
        CHECK(planner.aim(chain.problem, stages_of(chain.problem, split)) == split.time.value);
        int devices = 0;
        for (const int degree : split.degrees) devices += degree;
        CHECK(devices == chain.problem.devices);
        if (chain.problem.widest) CHECK(std::ranges::find(split.degrees, *chain.problem.widest) != split.degrees.end());
      }
      CHECK(found == best);
      compared += static_cast<int>(best.size());
    }
  }
  CHECK(compared > 1000);
}

TEST_CASE("PipeDream gives a chain like VGG-16 on 16 workers its 15-1") {
  // arXiv 1806.03377, Table 1: VGG-16 on 4×4 V100 over 10 Gb/s is split 15-1, and so is AlexNet.
  const std::vector<ReplicaSplit> found = pipedream_replicas(vgg_like());
  const auto best = std::ranges::min_element(found, {}, &ReplicaSplit::time);
  REQUIRE(best != found.end());
  CHECK(best->degrees == std::vector{15, 1});
  CHECK(best->split.layers == std::vector{5, 2});  // all that convolves on the 15, with the first block
  // Closed form: 15 replicas of 360 s of compute, and their synchronisation of 14 parameters.
  const double m = 15;
  CHECK(best->time.value == Approx((360 + 4 * (m - 1) / m * 14) / m).epsilon(1e-12));
}

TEST_CASE("without gradients that weigh, PipeDream replicates everything") {
  // Table 1 again: for ResNet-50 its optimizer picks data parallelism.
  ReplicaProblem problem = vgg_like();
  for (Bytes& gradients : problem.gradients) gradients = {};
  problem.message = [](int, int) { return Seconds{20.0}; };
  const std::vector<ReplicaSplit> found = pipedream_replicas(problem);
  const auto best = std::ranges::min_element(found, {}, &ReplicaSplit::time);
  REQUIRE(best != found.end());
  CHECK(best->degrees == std::vector{16});
}

TEST_CASE("with one stage the step is M microbatches and the reduction") {
  ReplicaProblem problem = vgg_like();
  problem.most_stages = 1;
  const std::vector<ReplicaSplit> found = dapple_replicas(problem);
  REQUIRE(found.size() == 1);
  const double m = 16;
  CHECK(found[0].time.value == Approx(16 * 372 / m + 4 * (m - 1) / m * 109 / m).epsilon(1e-12));
}

TEST_CASE("a chain without all its lists is refused") {
  ReplicaProblem problem = vgg_like();
  problem.forward.pop_back();
  CHECK_THROWS_AS(dapple_replicas(problem), InputError);
}

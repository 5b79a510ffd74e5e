// What a rank of a grid in panels does in which order, and what notices that it does otherwise.
#include "exec/stage/tensor/program_moves.hpp"

#include <algorithm>

#include "common/block_cost/block_work.hpp"
#include "exec/stage/tensor/division.hpp"
#include "exec/stage/tensor/move_ticks.hpp"
#include "tests/catch.hpp"
#include "tests/exec/stage/models.hpp"

using namespace plumb;
using namespace plumb::exec;

namespace {

constexpr int block = 1;

Training training() {
  Training made{.sequence = 32, .global_batch = 8};
  made.microbatch = 2;
  return made;
}

// As a 2d grid of four in panels makes them.
struct InPanels {
  explicit InPanels(const Model& model, int rank = 1)
      : division(model, block, layout, training(), rank), moves(block_moves("block 1", division.placed(), rank)) {
    Scenario scenario;
    scenario.model = model;
    scenario.training = training();
    scenario.layout.tensor = layout;
    const auto work = work_of_block(scenario, block);
    moves.in_pieces = moves_in_pieces(division.placed(), work->program);
    moves.panels = panel_steps(division.placed(), work->program);
  }

  [[nodiscard]] const std::vector<PanelStep>& steps(Phase phase) const {
    return moves.panels->at(static_cast<std::size_t>(phase));
  }

  // "q.weight 0" of a panel, "products 0", "norm_1.statistics".
  [[nodiscard]] std::vector<std::string> text(Phase phase) const {
    std::vector<std::string> all;
    for (const PanelStep& step : steps(phase)) {
      std::string name = step.move == nullptr ? "products" : step.move->tensor;
      if (name.starts_with("attention.")) name.erase(0, std::string("attention.").size());
      if (step.panel != PanelStep::whole) name += " " + std::to_string(step.panel);
      all.push_back(name);
    }
    return all;
  }

  static constexpr TensorLayout layout{.degree = 4, .kind = TensorKind::two_d, .asynchronous = true};
  Division division;
  BlockMoves moves;
};

void run_panels(const BlockMoves& moves, Phase phase, const std::vector<PanelStep>& made) {
  MoveTicks ticks(3);
  ticks.begin(moves, phase, 5);
  for (const PanelStep& step : made) {
    if (step.move == nullptr) {
      ticks.tick_products(step.panel);
      continue;
    }
    const std::vector<int>& ranks = moves.groups.at(step.move->move.over.bits);
    const Collective collective = *step.move->move.collective;
    if (step.panel == PanelStep::whole) {
      ticks.tick(*step.move, collective, ranks);
    } else {
      ticks.tick_panel(*step.move, collective, ranks, step.panel);
    }
  }
  ticks.end();
}

}  // namespace

TEST_CASE("in panels the next panel's operands and the sums of the one before are begun before a panel's products") {
  const InPanels of(test::gpt2(2, false));
  const auto first = [&](Phase phase, std::size_t from, std::size_t count) {
    const std::vector<std::string> all = of.text(phase);
    return std::vector<std::string>(all.begin() + static_cast<std::ptrdiff_t>(from),
                                    all.begin() + static_cast<std::ptrdiff_t>(from + count));
  };
  CHECK(first(Phase::forward, 0, 11) ==
        std::vector<std::string>{"norm_1.statistics", "norm_1 0", "q.weight 0", "k.weight 0", "v.weight 0", "norm_1 1",
                                 "q.weight 1", "k.weight 1", "v.weight 1", "products 0", "products 1"});
  const std::size_t backward = of.steps(Phase::input_gradient).size();
  CHECK(first(Phase::input_gradient, backward - 11, 11) ==
        std::vector<std::string>{"v.weight 0", "k.weight 0", "q.weight 0", "v.weight 1", "k.weight 1", "q.weight 1",
                                 "products 0", "norm_1 0", "products 1", "norm_1 1", "norm_1.statistics"});
  CHECK(first(Phase::weight_gradient, 0, 6) == std::vector<std::string>{"mlp.activation 0", "mlp.activation 1",
                                                                        "products 0", "mlp.down.weight 0", "products 1",
                                                                        "mlp.down.weight 1"});
}

TEST_CASE("all readers of a parallel layer's norm form one group, first in F and last in I and W") {
  const InPanels of(test::gptj(2));
  const std::vector<std::string> forward = of.text(Phase::forward);
  const std::vector<std::string> weights = of.text(Phase::weight_gradient);
  const std::vector<std::string> together{"norm_1 0", "q.weight 0", "k.weight 0", "v.weight 0", "mlp.up.weight 0"};
  CHECK(std::search(forward.begin(), forward.end(), together.begin(), together.end()) ==
        std::ranges::find(forward, "norm_1 0"));
  CHECK(forward.front() == "norm_1.statistics");
  CHECK(std::vector<std::string>(weights.end() - 4, weights.end()) ==
        std::vector<std::string>{"mlp.up.weight 1", "v.weight 1", "k.weight 1", "q.weight 1"});
}

TEST_CASE(
    "a panel that is left out, begun twice, too early or in another order is noticed, and products that are not made") {
  const InPanels of(test::gpt2(2, false));
  for (const Phase phase : {Phase::forward, Phase::input_gradient, Phase::weight_gradient}) {
    run_panels(of.moves, phase, of.steps(phase));
  }
  const auto noticed = [&](const auto& change, const std::string& by) {
    std::vector<PanelStep> made = of.steps(Phase::forward);
    change(made);
    CHECK_THROWS_WITH(run_panels(of.moves, Phase::forward, made),
                      ContainsSubstring("rank 3, F of microbatch 5 in block 1") && ContainsSubstring(by));
  };
  // norm_1.statistics, then panel 0 of norm_1, q, k and v, and so panel 1; products of both.
  noticed([](auto& made) { made.erase(made.begin() + 2); },
          "panel 0 of the all-gather of the weight attention.k.weight (site attention.k) was begun where this comes "
          "next: panel 0 of the all-gather of the weight attention.q.weight");
  noticed([](auto& made) { made.insert(made.begin() + 2, made[1]); },
          "panel 0 of the all-gather of the input norm_1 (site attention.q) was begun where this comes next: panel 0 "
          "of the all-gather of the weight attention.q.weight");
  noticed([](auto& made) { std::swap(made[1], made[5]); },
          "panel 1 of the all-gather of the input norm_1 (site attention.q) was begun where this comes next: panel 0");
  noticed([](auto& made) { std::swap(made[8], made[9]); },
          "the products of panel 0 were made where this comes next: panel 1 of the all-gather of the weight "
          "attention.v.weight");
  noticed([](auto& made) { made.erase(made.begin() + 9); },
          "the products of panel 1 were made where this comes next: the products of panel 0");
  noticed([](auto& made) { made.pop_back(); }, "the products of panel 1 were not made");
  noticed([](auto& made) { made.push_back({.panel = 2}); },
          "the products of panel 2 were made when all moves of this action had been");
  noticed([](auto& made) { made.erase(made.begin() + 1, made.end()); },
          "panel 0 of the all-gather of the input norm_1 (site attention.q) was not made");
  noticed([](auto& made) { made[1].panel = PanelStep::whole; },
          "the all-gather of the input norm_1 (site attention.q) was made where this comes next: panel 0 of the "
          "all-gather of the input norm_1");
  // Along the row, to which the rank at 1 belongs, and not along the column; by no other collective.
  const auto among = [&](const PlacedMove& move) { return of.moves.groups.at(move.move.over.bits); };
  MoveTicks ticks(3);
  const PlacedMove& gather = *of.steps(Phase::forward)[1].move;
  const PlacedMove& statistics = *of.steps(Phase::forward)[0].move;
  ticks.begin(of.moves, Phase::forward, 5);
  ticks.tick(statistics, Collective::all_reduce, among(statistics));
  CHECK(among(gather) == std::vector<int>{0, 1});
  CHECK_THROWS_WITH(ticks.tick_panel(gather, Collective::all_gather, {1, 3}, 0),
                    ContainsSubstring("was made among the ranks at 1, 3 of the group, not 0, 1"));
  CHECK_THROWS_WITH(ticks.tick_panel(gather, Collective::reduce_scatter, {0, 1}, 0),
                    ContainsSubstring("was made as another collective, reduce-scatter"));
  MoveTicks outside(3);
  CHECK_THROWS_WITH(outside.tick_products(0), ContainsSubstring("products of a panel of no move"));
}

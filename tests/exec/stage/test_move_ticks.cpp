// What is moved wrongly is noticed where it happens: by the ticks of an action, or before any, by the layout's table.
#include "exec/stage/tensor/move_ticks.hpp"

#include <algorithm>
#include <functional>

#include "common/base/error.hpp"
#include "common/block_cost/block_work.hpp"
#include "common/model/divided_vocabulary.hpp"
#include "exec/stage/tensor/division.hpp"
#include "tests/catch.hpp"
#include "tests/exec/stage/models.hpp"

using namespace plumb;
using namespace plumb::exec;

namespace {

constexpr int block = 1;
const TensorLayout by_tokens{.degree = 2, .sequence_parallel = true};

Training training() {
  Training made{.sequence = 32, .global_batch = 8};
  made.microbatch = 2;
  return made;
}

using Made = std::vector<std::pair<const PlacedMove*, Collective>>;

Made all_of(const BlockMoves& moves, Phase phase) {
  Made made;
  for (const PlacedMove* move : moves.by_phase[static_cast<std::size_t>(phase)]) {
    made.emplace_back(move, *move->move.collective);
  }
  return made;
}

const std::vector<int>& among(const BlockMoves& moves, const PlacedMove& move) {
  return moves.groups.at(move.move.over.bits);
}

void run(const BlockMoves& moves, Phase phase, const Made& made) {
  MoveTicks ticks(3);
  ticks.begin(moves, phase, 5);
  for (const auto& [move, collective] : made) ticks.tick(*move, collective, among(moves, *move));
  ticks.end();
}

struct Mutation {
  const char* name;
  Phase phase;
  std::function<void(Made&, const Made& other_phase)> change;
  const char* noticed;
};

}  // namespace

TEST_CASE("an action whose moves are all made in their order is ticked off, a wrong one says which and where") {
  const Division division(test::llama(2), block, by_tokens, training(), 1);
  const BlockMoves moves = block_moves("block 1", division.placed(), 1);
  const Made forward = all_of(moves, Phase::forward);
  const Made backward = all_of(moves, Phase::input_gradient);
  const Made of_weights = all_of(moves, Phase::weight_gradient);
  REQUIRE(forward.size() == 4);     // gathered before and scattered behind the mixer and the MLP
  REQUIRE(backward.size() == 4);    // the mirror of that
  REQUIRE(of_weights.size() == 2);  // both gathered again
  run(moves, Phase::forward, forward);
  run(moves, Phase::input_gradient, backward);
  run(moves, Phase::weight_gradient, of_weights);

  const Division other(test::llama(2), 2, by_tokens, training(), 1);
  const BlockMoves of_other = block_moves("block 2", other.placed(), 1);
  const std::vector<Mutation> mutations = {
      {"the first move is skipped", Phase::forward, [](Made& made, const Made&) { made.erase(made.begin()); },
       "output attention.out (site attention.out) was made where this comes next: the all-gather of the input norm_1"},
      {"the last move is skipped", Phase::forward, [](Made& made, const Made&) { made.pop_back(); },
       "the reduce-scatter of the output mlp.down (site mlp.down) was not made"},
      {"none is made", Phase::forward, [](Made& made, const Made&) { made.clear(); },
       "norm_1 (site attention.q) was not made"},
      {"a gather is made twice", Phase::forward, [](Made& made, const Made&) { made.insert(made.begin(), made[0]); },
       "input norm_1 (site attention.q) was made where this comes next: the reduce-scatter of the output "
       "attention.out"},
      {"the last is made twice", Phase::forward, [](Made& made, const Made&) { made.push_back(made.back()); },
       "was made when all moves of this action had been"},
      {"two are exchanged", Phase::forward, [](Made& made, const Made&) { std::swap(made[1], made[2]); },
       "input norm_2 (site mlp.gate) was made where this comes next"},
      {"a gradient is gathered behind what needs it", Phase::input_gradient,
       [](Made& made, const Made&) { std::swap(made[0], made[1]); }, "was made where this comes next"},
      {"nothing is gathered again", Phase::weight_gradient, [](Made& made, const Made&) { made.clear(); },
       "the all-gather of the input norm_2 (site mlp.up) was not made"},
      {"one input is not gathered again", Phase::weight_gradient,
       [](Made& made, const Made&) { made.erase(made.begin()); },
       "was made where this comes next: the all-gather of the input norm_2"},
      {"I gathers again what W does", Phase::input_gradient,
       [&](Made& made, const Made&) { made.insert(made.begin() + 1, of_weights[0]); },
       "the all-gather of the input norm_2 (site mlp.up) was made where this comes next"},
      {"a gradient's sum is skipped", Phase::input_gradient, [](Made& made, const Made&) { made.pop_back(); },
       "the reduce-scatter of the input gradient norm_1 (site attention.q) was not made"},
      {"I makes what F does", Phase::input_gradient, [](Made& made, const Made& other_phase) { made = other_phase; },
       "was made where this comes next"},
      {"a sum is not scattered", Phase::forward,
       [](Made& made, const Made&) { made[1].second = Collective::all_reduce; },
       "was made as another collective, all-reduce"},
      {"another block's move", Phase::forward,
       [&](Made& made, const Made&) { made[0] = all_of(of_other, Phase::forward)[0]; },
       "input norm_1 (site attention.q) was made where this comes next: the all-gather of the input norm_1"},
      {"W moves something else", Phase::weight_gradient,
       [](Made& made, const Made& other_phase) { made.push_back(other_phase[0]); },
       "was made when all moves of this action had been"},
  };
  for (const Mutation& mutation : mutations) {
    INFO(mutation.name);
    Made made = all_of(moves, mutation.phase);
    mutation.change(made, mutation.phase == Phase::forward ? backward : forward);
    const std::string action = mutation.phase == Phase::forward          ? "F"
                               : mutation.phase == Phase::input_gradient ? "I"
                                                                         : "W";
    CHECK_THROWS_WITH(
        run(moves, mutation.phase, made),
        ContainsSubstring("rank 3, " + action + " of microbatch 5 in block 1") && ContainsSubstring(mutation.noticed));
  }
  MoveTicks ticks(3);
  CHECK_THROWS_WITH(ticks.tick(*forward[0].first, forward[0].second, {0, 1}),
                    ContainsSubstring("outside of an action"));
}

// Of pipeline ranks that divide the vocabulary, with one barrier.
TEST_CASE("a missing collective of a head shard is noticed") {
  Model part = part_of_vocabulary(test::llama(2), ModelPart::vocabulary_and_target_rows, 2);
  const Division division(part, 1, by_tokens, training(), 1);
  const BlockMoves moves = block_moves("block 1", division.placed(), 1);
  const Made forward = all_of(moves, Phase::forward);
  const Made backward = all_of(moves, Phase::input_gradient);
  const Made of_weights = all_of(moves, Phase::weight_gradient);
  REQUIRE(forward.size() == 3);  // its input, the statistics, the targets' rows
  REQUIRE(backward.size() == 1);
  REQUIRE(of_weights.size() == 1);
  run(moves, Phase::forward, forward);
  run(moves, Phase::input_gradient, backward);
  run(moves, Phase::weight_gradient, of_weights);
  const std::vector<std::pair<Made, const char*>> wrong = {
      {{forward[0], forward[1]}, "the reduce-scatter of the output target_rows (site target_rows) was not made"},
      {{forward[0], forward[2]}, "where this comes next: the all-reduce of the statistics loss.statistics"},
      {{forward[1], forward[2]}, "where this comes next: the all-gather of the input input (site head)"},
      {{forward[0], forward[2], forward[1]}, "where this comes next: the all-reduce of the statistics"},
      {{forward[0], forward[1], forward[2], backward[0]}, "was made when all moves of this action had been"}};
  for (const auto& [made, noticed] : wrong) {
    CHECK_THROWS_WITH(run(moves, Phase::forward, made), ContainsSubstring(noticed));
  }
  CHECK_THROWS_WITH(run(moves, Phase::input_gradient, {}), ContainsSubstring("the input gradient input (site head)"));
  CHECK_THROWS_WITH(run(moves, Phase::weight_gradient, {}), ContainsSubstring("the input input (site head) was not"));
}

TEST_CASE("a grid's weight that is not gathered, a gradient that is not scattered, and a wrong axis are noticed") {
  const TensorLayout grid{.degree = 4, .kind = TensorKind::two_d};
  Model model = test::of_four(test::llama(2));
  const Division division(model, block, grid, training(), 1);
  const BlockMoves moves = block_moves("block 1", division.placed(), 1);
  const Made forward = all_of(moves, Phase::forward);
  const Made backward = all_of(moves, Phase::input_gradient);
  const Made of_weights = all_of(moves, Phase::weight_gradient);
  REQUIRE(forward.size() == 2 + 4 + 7);   // statistics of the norms, inputs, matrices
  REQUIRE(backward.size() == 2 + 4 + 7);  // and gradients of these inputs
  REQUIRE(of_weights.size() == 4 + 7);    // these inputs again, gradients of the matrices
  run(moves, Phase::forward, forward);
  run(moves, Phase::input_gradient, backward);
  run(moves, Phase::weight_gradient, of_weights);
  const auto without_tensor = [](Made made, const std::string& tensor, Role role) {
    const auto is = [&](const auto& each) { return each.first->tensor == tensor && each.first->role == role; };
    REQUIRE(std::erase_if(made, is) == 1);
    return made;
  };
  CHECK_THROWS_WITH(
      run(moves, Phase::forward, without_tensor(forward, "mlp.up.weight", Role::weight)),
      ContainsSubstring(
          "the all-gather of the input mlp.activation (site mlp.down) was made where this comes next: the "
          "all-gather of the weight mlp.up.weight"));
  CHECK_THROWS_WITH(run(moves, Phase::input_gradient, without_tensor(backward, "attention.q.weight", Role::weight)),
                    ContainsSubstring("this comes next: the all-gather of the weight attention.q.weight"));
  CHECK_THROWS_WITH(
      run(moves, Phase::weight_gradient, without_tensor(of_weights, "attention.q.weight", Role::weight_gradient)),
      ContainsSubstring(
          "the reduce-scatter of the weight gradient attention.q.weight (site attention.q) was not made"));
  // Along the column, to which the rank at 0 belongs, and not along the row.
  const auto gather =
      std::ranges::find(forward, "attention.q.weight", [](const auto& each) { return each.first->tensor; });
  MoveTicks ticks(3);
  ticks.begin(moves, Phase::forward, 5);
  for (auto each = forward.begin(); each != gather; ++each) {
    ticks.tick(*each->first, each->second, among(moves, *each->first));
  }
  CHECK(among(moves, *gather->first) == std::vector<int>{1, 3});
  CHECK_THROWS_WITH(ticks.tick(*gather->first, gather->second, {0, 1}),
                    ContainsSubstring("the all-gather of the weight attention.q.weight (site attention.q) was made "
                                      "among the ranks at 0, 1 of the group, not 1, 3"));
}

namespace {

// As an asynchronous layout of four ranks makes them.
struct InPieces {
  explicit InPieces(std::size_t number, int rank)
      : division(of_model(), static_cast<int>(number), layout, training(), rank),
        moves(block_moves("block", division.placed(), rank)) {
    Scenario scenario;
    scenario.model = of_model();
    scenario.training = training();
    scenario.layout.tensor = layout;
    moves.in_pieces = moves_in_pieces(division.placed(), work_of_block(scenario, number)->program);
  }

  static Model of_model() { return test::of_four(test::llama(2)); }

  static constexpr TensorLayout layout{.degree = 4, .sequence_parallel = true, .asynchronous = true};
  Division division;
  BlockMoves moves;
};

// A move and whose pieces, in their order; none: it is made whole.
struct MadeInPieces {
  const PlacedMove* move;
  std::vector<int> pieces;
};

std::vector<MadeInPieces> forward_of_layer(const BlockMoves& moves, int rank) {
  std::vector<MadeInPieces> made;
  for (const PlacedMove* move : moves.by_phase[0]) {
    const bool gathers = move->move.collective == Collective::all_gather;
    const std::vector<int> ring = gathers ? std::vector<int>{rank, rank + 3, rank + 2, rank + 1}
                                          : std::vector<int>{rank + 3, rank + 2, rank + 1, rank};
    made.push_back({.move = move, .pieces = {}});
    for (const int whose : ring) made.back().pieces.push_back(whose % 4);
  }
  return made;
}

void run_pieces(const BlockMoves& moves, const std::vector<MadeInPieces>& made) {
  MoveTicks ticks(3);
  ticks.begin(moves, Phase::forward, 5);
  for (const MadeInPieces& each : made) {
    const std::vector<int>& ranks = among(moves, *each.move);
    if (each.pieces.empty()) {
      ticks.tick(*each.move, *each.move->move.collective, ranks);
      continue;
    }
    ticks.tick_in_pieces(*each.move, *each.move->move.collective, ranks);
    for (const int whose : each.pieces) ticks.tick_piece(whose);
  }
  ticks.end();
}

}  // namespace

TEST_CASE("an asynchronous layout moves every gathered input and scattered output of a matmul in pieces") {
  CHECK(InPieces(0, 0).moves.in_pieces.empty());  // an embedding's scatter has no product
  CHECK(InPieces(1, 0).moves.in_pieces.size() == 4 + 4 + 2);
  const InPieces head(3, 0);
  REQUIRE(head.moves.in_pieces.size() == 3);
  for (const PlacedMove* move : head.moves.in_pieces) CHECK(move->tensor == "final_norm");
}

TEST_CASE("a step of a ring that is left out, made twice or in another order is noticed, and a move that is whole") {
  for (const int rank : {0, 2}) {
    const InPieces of(1, rank);
    const std::vector<MadeInPieces> right = forward_of_layer(of.moves, rank);
    REQUIRE(right.size() == 4);
    run_pieces(of.moves, right);
    const auto noticed = [&](const auto& change, const std::string& by) {
      std::vector<MadeInPieces> made = right;
      change(made);
      CHECK_THROWS_WITH(run_pieces(of.moves, made),
                        ContainsSubstring("rank 3, F of microbatch 5 in block") && ContainsSubstring(by));
    };
    const auto text = [&](int distance) { return std::to_string((rank + distance) % 4); };
    noticed([](auto& made) { made[0].pieces.pop_back(); },
            "all-gather of the input norm_1 (site attention.q) had no products of the piece of rank " + text(1));
    noticed([](auto& made) { made[0].pieces.erase(made[0].pieces.begin() + 1); },
            "piece of rank " + text(2) + " of its group made where that of rank " + text(3) + " comes next");
    noticed([](auto& made) { std::swap(made[0].pieces[1], made[0].pieces[2]); },
            "piece of rank " + text(2) + " of its group made where that of rank " + text(3) + " comes next");
    noticed([](auto& made) { made[0].pieces.push_back(0); }, "made when all pieces had been");
    noticed([](auto& made) { std::ranges::rotate(made[1].pieces, made[1].pieces.end() - 1); },
            "reduce-scatter of the output attention.out (site attention.out) had its products of the piece of rank " +
                text(0));
    noticed([](auto& made) { made[3].pieces.pop_back(); },
            "reduce-scatter of the output mlp.down (site mlp.down) had no products of the piece of rank " + text(0));
    noticed([](auto& made) { made[2].pieces.clear(); },
            "all-gather of the input norm_2 (site mlp.gate) was made whole, and its program has it in pieces");
    noticed([](auto& made) { made.erase(made.begin()); },
            "output attention.out (site attention.out) was made where this comes next: the all-gather of the input");
  }
  const InPieces embedding(0, 0);
  const PlacedMove* const scatter = embedding.moves.by_phase[0].front();
  CHECK_THROWS_WITH(run_pieces(embedding.moves, {{scatter, {3, 2, 1, 0}}}),
                    ContainsSubstring("was made in pieces, and its program has it whole"));
  MoveTicks ticks(3);
  CHECK_THROWS_WITH(ticks.tick_piece(0), ContainsSubstring("a piece of no move"));
}

TEST_CASE("a table that leaves out a declared move is refused by the site and the tensor that need it") {
  Layout layout;
  layout.tensor = by_tokens;
  const Mesh mesh = mesh_of(layout);
  int needed = 0;
  const Model model = test::llama(2);
  for (std::size_t of = 0; of < 4; ++of) {
    const std::vector<Site> sites = block_sites(model, of, {.sequences = 2, .sequence = 32});
    const LayoutTable whole = layout_table(mesh, layout.tensor, sites);
    const PlacedBlock placed = place_block(mesh, whole, sites);
    for (std::size_t left_out = 0; left_out < whole.declared.size(); ++left_out) {
      const DeclaredMove& missing = whole.declared[left_out];
      const auto uses = std::ranges::find_if(placed.moves, [&](const PlacedMove& move) {
        return move.phase == missing.phase && move.role == missing.role && move.move.collective == missing.collective;
      });
      if (uses == placed.moves.end()) continue;
      ++needed;
      LayoutTable table = whole;
      table.declared.erase(table.declared.begin() + static_cast<std::ptrdiff_t>(left_out));
      CHECK_THROWS_WITH(place_block(mesh, table, sites),
                        ContainsSubstring("site " + uses->site) && ContainsSubstring(uses->tensor));
    }
  }
  CHECK(needed == 2 + 2 * 5 + 4);  // of the embedding, of two layers, of the head
}

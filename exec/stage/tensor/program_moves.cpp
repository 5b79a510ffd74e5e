#include "exec/stage/tensor/program_moves.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include "common/base/error.hpp"

namespace plumb::exec {
namespace {

bool is_step_of(const PlacedMove& move, const ProgramStep& step) {
  return step.kind == StepKind::move && step.phase == move.phase && step.move.role == move.role &&
         step.move.site == move.site && step.move.tensor == move.tensor;
}

const PlacedMove& move_of(const PlacedBlock& placed, const ProgramStep& step) {
  const auto found = std::ranges::find_if(
      placed.moves, [&](const PlacedMove& move) { return move.move.collective && is_step_of(move, step); });
  if (found == placed.moves.end()) throw RunError("program", "no move of its placed block is " + step.name);
  return *found;
}

// Writes the steps of one phase, which come as they run.
class PanelWriter {
 public:
  explicit PanelWriter(std::vector<PanelStep>& steps) : steps_(steps) {}

  void add_move(const PlacedMove& move, bool in_panels, bool is_beside) {
    if (!is_beside) make_products();
    steps_.push_back({.move = &move, .panel = in_panels ? panels_[&move]++ : PanelStep::whole});
  }

  void add_product(const std::string& name) {
    const int panel = products_[name]++;
    if (open_ != panel) make_products();
    open_ = panel;
  }

  // What has come of a panel, when all is begun that goes beside it.
  void make_products() {
    if (open_) steps_.push_back({.move = nullptr, .panel = *open_});
    open_.reset();
  }

 private:
  std::vector<PanelStep>& steps_;
  std::map<const PlacedMove*, int> panels_ = {};
  std::map<std::string, int> products_ = {};
  std::optional<int> open_ = {};
};

std::vector<PanelStep> panel_steps_of(Phase phase, const PlacedBlock& placed, const BlockProgram& program) {
  const std::set<const PlacedMove*> in_panels = moves_in_pieces(placed, program);
  std::vector<const ProgramStep*> running;
  std::set<std::string> products;  // all of them but a phase's last have something beside them
  for (const ProgramStep& step : program.steps) {
    if (step.phase != phase) continue;
    running.push_back(&step);
    for (const std::size_t beside : step.beside) products.insert(program.steps[beside].name);
  }
  if (phase != Phase::forward) std::ranges::reverse(running);
  std::vector<PanelStep> steps;
  PanelWriter writer(steps);
  for (const ProgramStep* step : running) {
    if (step->kind == StepKind::move) {
      const PlacedMove& move = move_of(placed, *step);
      writer.add_move(move, in_panels.contains(&move), !step->beside.empty());
    } else if (products.contains(step->name)) {
      writer.add_product(step->name);
    } else {
      writer.make_products();
    }
  }
  writer.make_products();
  return steps;
}

}  // namespace

std::set<const PlacedMove*> moves_in_pieces(const PlacedBlock& placed, const BlockProgram& program) {
  std::set<const PlacedMove*> found;
  for (const PlacedMove& move : placed.moves) {
    const auto is_piece = [&](const ProgramStep& step) { return is_step_of(move, step) && !step.beside.empty(); };
    if (move.move.collective && std::ranges::any_of(program.steps, is_piece)) found.insert(&move);
  }
  return found;
}

PanelSteps panel_steps(const PlacedBlock& placed, const BlockProgram& program) {
  PanelSteps steps;
  for (const Phase phase : {Phase::forward, Phase::input_gradient, Phase::weight_gradient}) {
    steps[static_cast<std::size_t>(phase)] = panel_steps_of(phase, placed, program);
  }
  return steps;
}

}  // namespace plumb::exec

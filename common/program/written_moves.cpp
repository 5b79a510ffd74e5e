#include "common/program/written_moves.hpp"

#include <cmath>
#include <stdexcept>
#include <string>

namespace plumb {
namespace {

struct Moved {
  int count = 0;
  double bytes = 0;
};

// Those that are told apart by nothing but their place.
Moved like_it(const PlacedMove& one, const PlacedBlock& placed, ElementType precision) {
  Moved all;
  for (const PlacedMove& each : placed.moves) {
    const bool same = each.phase == one.phase && each.role == one.role && each.move.collective == one.move.collective &&
                      each.move.over == one.move.over && each.site == one.site && each.tensor == one.tensor;
    if (!same) continue;
    ++all.count;
    all.bytes += received_bytes(placed, each, precision);
  }
  return all;
}

Moved in_program(const PlacedMove& one, const BlockProgram& program) {
  Moved all;
  for (const ProgramStep& step : program.steps) {
    if (step.kind != StepKind::move || step.phase != one.phase) continue;
    const StepMove& move = step.move;
    const bool same = move.role == one.role && move.collective == *one.move.collective && move.over == one.move.over &&
                      move.site == one.site && move.tensor == one.tensor;
    if (!same) continue;
    ++all.count;
    all.bytes += move.received;
  }
  return all;
}

bool has_rows(const PlacedBlock& placed, const PlacedMove& one) {
  const PlacedTensor* const value = find_value(site_of(placed, one.site), one.tensor);
  return value != nullptr && has(value->whole.shape, Dim::rows);
}

std::string text(const Moved& moved) {
  return std::to_string(moved.count) + " times with " + std::to_string(std::llround(moved.bytes)) + " bytes";
}

}  // namespace

void require_all_moves(const BlockProgram& program, const PlacedBlock& placed, ElementType precision, bool trains_all) {
  for (const PlacedMove& one : placed.moves) {
    if (!one.move.collective) continue;
    const Moved wanted = like_it(one, placed, precision);
    const Moved written = in_program(one, program);
    if (written.count == 0 && !trains_all && one.phase != Phase::forward) continue;
    const bool as_many = std::abs(written.bytes - wanted.bytes) <= 1e-9 * wanted.bytes || has_rows(placed, one);
    if (written.count == wanted.count && as_many) continue;
    throw std::logic_error("site " + one.site + ": the " + std::string(name_of(*one.move.collective)) + " of the " +
                           std::string(name_of(one.role)) + " " + one.tensor + " over " +
                           describe(placed.mesh, one.move.over) + " (" + std::string(name_of(one.phase)) +
                           ") is placed " + text(wanted) + ", but stands in the program " + text(written));
  }
}

}  // namespace plumb

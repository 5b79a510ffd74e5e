#include "common/program/program_parts.hpp"

#include <algorithm>

#include "common/program/program_time.hpp"

namespace plumb {

std::int32_t CollectiveTable::index(Collective kind, double bytes, Axes over, int pieces) {
  if (!groups_.is_grid()) over = {};
  const auto [found, is_new] =
      index_.try_emplace({kind, bytes, over.bits, pieces}, static_cast<std::int32_t>(plans_.size()));
  if (is_new) {
    plans_.push_back(piece_of(fastest_collective(machine_, kind, bytes, groups_.over(over)), pieces));
    axes_.push_back(over);
  }
  return found->second;
}

Seconds time_of(std::span<const ActionPart> parts, const CollectiveTable& table) {
  Seconds sum;
  for (const ActionPart& part : parts) {
    const Seconds collective = part.collective < 0 ? Seconds{} : time_of(table.at(part.collective));
    sum += part.beside ? std::max(part.compute, collective) : part.compute + collective;
  }
  return sum;
}

std::vector<ActionPart> action_parts(std::span<const ProgramStep> steps, std::span<const Phase> phases,
                                     CollectiveTable& table) {
  const auto contains = [&](Phase phase) { return std::ranges::find(phases, phase) != phases.end(); };
  const auto wanted = [&](const ProgramStep& step) { return contains(step.phase); };
  const bool forward = contains(Phase::forward);
  const auto time = [&](const ProgramStep& step) { return step_time(step, table.machine(), table.groups()); };
  std::vector<int> taken(steps.size());  // beside so many collectives that are still to come
  for (const ProgramStep& step : steps) {
    if (!wanted(step)) continue;
    for (const std::size_t other : step.beside) taken[other] += wanted(steps[other]) ? 1 : 0;
  }
  const std::vector<int> beside_any = taken;
  std::vector<Seconds> used(steps.size());
  std::vector<ActionPart> parts;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const std::size_t at = forward ? i : steps.size() - 1 - i;
    const ProgramStep& step = steps[at];
    if (!wanted(step) || beside_any[at] > 0) continue;
    ActionPart part;
    if (step.kind == StepKind::move) {
      part.collective = table.index(step.move.collective, step.move.bytes, step.move.over, step.move.pieces);
      Seconds left = time(step);
      for (const std::size_t other : step.beside) {
        if (beside_any[other] == 0) continue;
        part.beside = true;
        // All of it beside the last collective, as much as each takes beside those before.
        Seconds computing = time(steps[other]) - used[other];
        if (--taken[other] > 0) computing = std::min(computing, left);
        used[other] += computing;
        left = std::max(left - computing, Seconds{});
        part.compute += computing;
      }
    } else {
      part.compute = time(step);
    }
    append_parts(parts, {&part, 1});
  }
  return parts;
}

void append_parts(std::vector<ActionPart>& parts, std::span<const ActionPart> more) {
  for (const ActionPart& part : more) {
    const bool joins = !parts.empty() && parts.back().collective < 0 && !part.beside;
    if (!joins) {
      parts.push_back(part);
      continue;
    }
    parts.back().compute += part.compute;
    parts.back().collective = part.collective;
  }
}

void stretch(std::vector<ActionPart>& parts, Seconds more) {
  Seconds computing;
  for (const ActionPart& part : parts) computing += part.beside ? Seconds{} : part.compute;
  if (computing.value <= 0 || (computing + more).value <= 0) return;
  const double factor = (computing + more) / computing;
  for (ActionPart& part : parts) {
    if (!part.beside) part.compute = part.compute * factor;
  }
}

}  // namespace plumb

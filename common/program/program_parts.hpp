// What an action of one stage does in detail: computing, and between and beside it the collectives of its tensor group.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "common/cost/collective_time.hpp"
#include "common/cost/tensor_groups.hpp"
#include "common/program/step.hpp"

namespace plumb {

// The collectives that parts name by their index, each once.
class CollectiveTable {
 public:
  CollectiveTable(Machine machine, const TensorGroups& groups) : machine_(std::move(machine)), groups_(groups) {}

  // `over`: of a grid, along which of its axes; else all of the tensor group's ranks take part. `pieces`: of one of so
  // many equal ones (StepMove).
  [[nodiscard]] std::int32_t index(Collective kind, double bytes, Axes over = {}, int pieces = 1);
  [[nodiscard]] const CollectivePlan& at(std::int32_t index) const { return plans_[static_cast<std::size_t>(index)]; }
  [[nodiscard]] Axes over(std::int32_t index) const { return axes_[static_cast<std::size_t>(index)]; }
  [[nodiscard]] const Machine& machine() const { return machine_; }
  [[nodiscard]] const TensorGroups& groups() const { return groups_; }
  [[nodiscard]] const std::vector<Axes>& axes() const { return axes_; }  // by index

 private:
  Machine machine_;
  TensorGroups groups_;
  std::vector<CollectivePlan> plans_;
  std::vector<Axes> axes_;
  std::map<std::tuple<Collective, double, std::uint16_t, int>, std::int32_t> index_;
};

// One after the other: a rank computes, and then, or beside it, takes part in a collective.
struct ActionPart {
  Seconds compute = {};
  std::int32_t collective = -1;  // in the table; -1: none
  bool beside = false;
  bool operator==(const ActionPart&) const = default;
};

[[nodiscard]] Seconds time_of(std::span<const ActionPart> parts, const CollectiveTable& table);

// The steps of these phases of one block, as `phase_times` adds them up but for the host's launches: F, I, or I and W
// together as in a full backward, which goes backward through the list. Of a collective that runs beside steps those of
// the phases are taken.
[[nodiscard]] std::vector<ActionPart> action_parts(std::span<const ProgramStep> steps, std::span<const Phase> phases,
                                                   CollectiveTable& table);

// `more` behind `parts`; neighbouring ones that only compute become one.
void append_parts(std::vector<ActionPart>& parts, std::span<const ActionPart> more);

// As many seconds more, shared out over the parts that only compute or compute before a collective, in proportion;
// nothing if there are none or fewer seconds than are to be taken from them.
void stretch(std::vector<ActionPart>& parts, Seconds more);

}  // namespace plumb

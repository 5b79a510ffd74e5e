// Writes the moves of a placed block into its program, each once, where its operations meet them.
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/program/block_program.hpp"

namespace plumb {

// Its I or W does something: of a frozen operation before all adapters neither does.
[[nodiscard]] bool has_backward(const Operation& operation);

class BlockMoves {
 public:
  static constexpr std::size_t none = static_cast<std::size_t>(-1);

  // All three must outlive this.
  BlockMoves(const KernelContext& context, const PlacedBlock& placed, BlockProgram& program);

  // Where a divided part begins: once for each value that its sites read. W alone needs it gathered again.
  struct Entry {
    bool is_gathered = false;
    std::size_t again = none;
    std::size_t reduction = none;
  };
  // Of one that begins no divided part nothing.
  Entry enter_matmul(const Operation& operation);
  // What sites other than matmuls read and give back: Mamba's B and C, an expert's share.
  void enter_others(const Operation& operation);
  // Where it ends: what is partial is added up.
  void leave(const Operation& operation);
  // A move beside a step, where the software overlaps them.
  void beside(std::size_t move, std::size_t step);

  // Sites that compute nothing to speak of have no operation (a class token's, learned positions'): their moves come
  // with the operations behind and before them.
  void name_sites(const std::vector<Operation>& operations);
  void pass_sites_before(const Operation& operation);
  void pass_sites_behind(const Operation& last);

  // Sums of what an adapter makes are no moves of the placed block.
  void add_sum(const std::string& name, Phase phase, const std::string& site, double bytes);

  // What stays partial in the accumulators of the weights' gradients, of a tensor group; and of an adapter's.
  void sum_once();
  void sum_once(const std::string& tensor, double bytes);

 private:
  [[nodiscard]] const PlacedSite& site(const Operation& operation) const;
  [[nodiscard]] bool enters(const Operation& operation) const;
  Entry& enter(const Operation& operation, const NamedShape& value);
  std::size_t add_move(const std::string& suffix, const PlacedMove& moved, const Shape& value,
                       const Operation& operation);
  [[nodiscard]] StepMove all_reduce(const std::string& tensor, Role role, double bytes, Axes over) const;
  [[nodiscard]] Axes tensor_axes() const;
  void pass_sites(std::ptrdiff_t end, bool with_backward);

  const KernelContext& context_;
  const PlacedBlock& placed_;
  BlockProgram& program_;
  std::map<std::string, Entry> entered_ = {};  // by the value that is read
  std::set<std::string> named_ = {};           // sites that have operations
  std::ptrdiff_t next_site_ = 0;
};

}  // namespace plumb

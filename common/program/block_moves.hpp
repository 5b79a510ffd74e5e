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
  // All three must outlive this.
  BlockMoves(const KernelContext& context, const PlacedBlock& placed, BlockProgram& program);

  // Where a divided part begins: once for each value that its sites read, which is gathered there, and whose gradient
  // is reduced.
  void enter_matmul(const Operation& operation);
  // What sites other than matmuls read and give back: Mamba's B and C, an expert's share.
  void enter_others(const Operation& operation);
  // Products that such a matmul has written, by their places in the list: beside its input gradient W's gather of its
  // input may run, beside its weight gradient the reduction of its input's gradient, where the software overlaps them.
  void beside_input_gradient(const Operation& operation, std::size_t step);
  void beside_weight_gradient(const Operation& operation, std::size_t step);
  // Behind the products of the last matmul that reads a value, the first in W: what W gathers again of it.
  void gather_again(const Operation& operation);
  // Where it ends: what is partial is added up.
  void leave(const Operation& operation);

  // All of the block, before any. Sites that compute nothing to speak of have no operation (a class token's, learned
  // positions'): their moves come with the operations behind and before them.
  void name_sites(const std::vector<Operation>& operations);
  void pass_sites_before(const Operation& operation);
  void pass_sites_behind(const Operation& last);

  // Sums of what an adapter makes are no moves of the placed block.
  void add_sum(const std::string& name, Phase phase, const std::string& site, double bytes);

  // What stays partial in the accumulators of the weights' gradients, of a tensor group; and of an adapter's.
  void sum_once();
  void sum_once(const std::string& tensor, double bytes);

 private:
  static constexpr std::size_t none = static_cast<std::size_t>(-1);
  struct Entry {
    bool is_gathered = false;
    std::size_t reduction = none;
    std::vector<std::size_t> input_gradients = {};  // of all matmuls that read it
    std::size_t again = none;
  };

  [[nodiscard]] const PlacedSite& site(const Operation& operation) const;
  [[nodiscard]] bool enters(const Operation& operation) const;
  void enter(const Operation& operation, const NamedShape& value);
  // Null for an operation that begins no divided part.
  [[nodiscard]] Entry* entry_of(const Operation& operation);
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
  // By the value that a divided part begins with, the site of the last trained matmul that reads it so.
  std::map<std::string, std::string> last_reader_ = {};
  std::ptrdiff_t next_site_ = 0;
};

}  // namespace plumb

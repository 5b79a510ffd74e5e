// Writes the moves of a placed block into its program, each once, where its operations meet them.
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/program/block_program.hpp"
#include "common/program/decomposed.hpp"

namespace plumb {

// Its I or W does something: of a frozen operation before all adapters neither does.
[[nodiscard]] bool has_backward(const Operation& operation);

class BlockMoves {
 public:
  // All three must outlive this.
  BlockMoves(const KernelContext& context, const PlacedBlock& placed, BlockProgram& program);

  // All of the block, before any; they must outlive this. Of a site that several operations make up, the first enters
  // it and the last leaves it. Sites that compute nothing to speak of have no operation (a class token's, learned
  // positions'): their moves come with the operations behind and before them.
  void name_sites(const std::vector<Operation>& operations);
  void pass_sites_before(const Operation& operation);
  void pass_sites_behind(const Operation& last);

  // Before what an operation computes in F, and so behind its I and W: its site's inputs and weights are gathered, the
  // gradients of both reduced.
  void enter(const Operation& operation);
  // Behind F and before I and W: sums of outputs; their gradients, and weights again, are gathered.
  void leave(const Operation& operation);

  // A product that a matmul has written, behind `enter` and before `leave`, by its place in the list. Beside its input
  // gradient W's gather of its input may run, beside its weight gradient the reduction of its input's gradient, where
  // the software overlaps them. Where one move follows another, the first that comes.
  void made_product(const Operation& operation, std::size_t step);
  // Behind the products of the last trained matmul that reads a value, the first in W: what W gathers again of it.
  void gather_again(const Operation& operation);

  // Sums of what an adapter makes are no moves of the placed block.
  void add_sum(const std::string& name, Phase phase, const std::string& site, double bytes);

  // Of the layout whose group moves tokens: what stands between divided parts, and the products that read it or make
  // it.
  [[nodiscard]] std::vector<MoveWithProducts> with_products() const;

  // Of a 2d or 2.5d grid: products of one value with all that gathers what they read and reduces what they make.
  [[nodiscard]] std::vector<ProductsWithMoves> with_panels() const;

  // Of the 1d layout.
  [[nodiscard]] Axes tensor_axes() const;

  // What stays partial in the accumulators of the weights' gradients, of a tensor group; and of an adapter's.
  void sum_once();
  void sum_once(const std::string& tensor, double bytes);

 private:
  static constexpr std::size_t none = static_cast<std::size_t>(-1);
  using Products = std::array<std::vector<std::size_t>, 3>;  // by phase
  // A value as some matmuls need it: how F gathers it, I reduces its gradient and W gathers it again.
  struct Entry {
    std::string value;
    Placement needed;
    std::size_t gather = none;
    std::size_t reduction = none;
    std::size_t again = none;
    Products products = {};  // of all these matmuls
    Products weights = {};   // of a grid, moves of their matrices: gathered in F and I, reduced in W
  };
  // What a site makes: how F reduces it and I gathers its gradient.
  struct Exit {
    std::size_t reduction = none;
    std::size_t gather = none;
    Products products = {};  // of this site
  };
  // Steps of a site that stand together in the list.
  struct Meeting {
    const PlacedSite& site;
    const Operation& operation;
  };

  // In the 1d layout, where its moves do not go in pieces; on grids every move is exposed.
  [[nodiscard]] bool overlaps() const;
  [[nodiscard]] const PlacedSite& site(const Operation& operation) const;
  [[nodiscard]] bool enters(const Operation& operation) const;
  // Null for an operation that begins no divided part.
  [[nodiscard]] Entry* entry_of(const Operation& operation);
  Entry& entry(const PlacedTensor& input);
  // The last in the list, which of I and W comes first; none: nothing moves.
  std::size_t add_moves(const char* suffix, const Meeting& at, Phase phase, Role role, std::string_view tensor = {});
  void add_move(const char* suffix, const PlacedMove& moved, const Meeting& at);
  // Of the matrix that a site multiplies by.
  void add_weight_moves(const char* suffix, const Meeting& at, Phase phase, Role role);
  void enter_site(const Meeting& at);
  void leave_site(const Meeting& at);
  [[nodiscard]] StepMove all_reduce(const std::string& tensor, Role role, double bytes, Axes over) const;
  void pass_sites(std::ptrdiff_t end, bool with_backward);

  const KernelContext& context_;
  const PlacedBlock& placed_;
  BlockProgram& program_;
  std::vector<Entry> entries_ = {};
  std::map<std::string, Exit> exits_ = {};  // by site
  // By site, the operations that enter and leave it.
  std::map<std::string, std::pair<const Operation*, const Operation*>> ends_ = {};
  // By the site of the last trained matmul that reads a value so: how W gathers it.
  std::map<std::string, std::vector<const PlacedMove*>> again_ = {};
  std::ptrdiff_t next_site_ = 0;
};

}  // namespace plumb

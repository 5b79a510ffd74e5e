// What the ranks of a group have, put together along a move's dimension in their order, is what each has behind a
// gather, and what each had before a scatter: by the indices of the whole tensor, of every move of every block.
#include "exec/stage/tensor/local_move.hpp"

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "common/model/parameters.hpp"
#include "exec/stage/primitives/block_parameters.hpp"
#include "exec/stage/tensor/division.hpp"
#include "tests/catch.hpp"
#include "tests/exec/stage/models.hpp"

using namespace plumb;
using namespace plumb::exec;

namespace {

// A part of a tensor as it lies in a rank's memory: which elements of the whole, and in how many dimensions.
struct Part {
  std::vector<std::int64_t> elements;
  std::vector<std::int64_t> sizes;
};

std::vector<std::int64_t> elements_of(const PlacedBlock& block, const Shape& whole, const Placement& placement,
                                      int rank) {
  std::vector<std::int64_t> all;
  for (const IndexRange& range : owned_elements(block.mesh, whole, placement, rank)) {
    for (std::int64_t at = range.begin; at < range.end; ++at) all.push_back(at);
  }
  return all;
}

// Of a value [batch, tokens, all else]; of a parameter as the model's list has its shape.
Part part_of(const PlacedBlock& block, const NamedShape& whole, const Placement& placement, int rank,
             const Parameter* parameter) {
  Part part{.elements = elements_of(block, whole.shape, placement, rank), .sizes = {}};
  const auto count = static_cast<std::int64_t>(part.elements.size());
  if (parameter == nullptr) {
    const Shape local = local_shape(block.mesh, whole, placement);
    part.sizes = {local[0].size, local[1].size, count / local[0].size / local[1].size};
  } else if (parameter->shape.size() == 1) {
    part.sizes = {count};
  } else {
    std::set<std::int64_t> rows;
    for (const std::int64_t element : part.elements) rows.insert(element / parameter->shape[1]);
    part.sizes = {std::ssize(rows), count / std::ssize(rows)};
  }
  return part;
}

std::vector<std::int64_t> side_by_side(const std::vector<Part>& parts, int dimension) {
  std::int64_t outer = 1;
  for (int at = 0; at < dimension; ++at) outer *= parts.front().sizes[static_cast<std::size_t>(at)];
  std::vector<std::int64_t> all;
  for (std::int64_t row = 0; row < outer; ++row) {
    for (const Part& part : parts) {
      const std::int64_t inner = std::ssize(part.elements) / outer;
      const auto begin = part.elements.begin() + row * inner;
      all.insert(all.end(), begin, begin + inner);
    }
  }
  return all;
}

const Shape* find_shape(const PlacedSite& site, const std::string& tensor) {
  for (const PlacedTensor& weight : site.weights) {
    if (weight.whole.name == tensor) return &weight.whole.shape;
  }
  const PlacedTensor* const value = find_value(site, tensor);
  return value == nullptr ? nullptr : &value->whole.shape;
}

const Parameter* find_parameter(const std::vector<Parameter>& parameters, const std::string& name) {
  const auto ends_so = [&](const Parameter& each) { return each.name == name || each.name.ends_with("." + name); };
  const auto found = std::ranges::find_if(parameters, ends_so);
  return found == parameters.end() ? nullptr : &*found;
}

// How many moves it has looked at.
int require_placed_so(const Model& model, int block, const TensorLayout& tensor) {
  Training training{.sequence = 32, .global_batch = 8};
  training.microbatch = 4;
  const PlacedBlock placed = Division(model, block, tensor, training).placed();
  const std::vector<Parameter> parameters = block_parameters(model, block);
  int seen = 0;
  for (const PlacedMove& move : placed.moves) {
    if (!move.move.collective || *move.move.collective == Collective::all_reduce) continue;
    INFO("block " << block << ", " << describe(placed.mesh, move.move.over) << ", " << move.tensor << " of "
                  << move.site);
    const NamedShape whole{move.tensor, *find_shape(site_of(placed, move.site), move.tensor)};
    const bool is_weight = move.role == Role::weight || move.role == Role::weight_gradient;
    const Parameter* const parameter = is_weight ? find_parameter(parameters, move.tensor) : nullptr;
    REQUIRE(is_weight == (parameter != nullptr));
    const bool gathers = *move.move.collective == Collective::all_gather;
    const Placement& small = gathers ? move.move.from : move.move.to;
    const Placement& large = gathers ? move.move.to : move.move.from;
    for (int rank = 0; rank < tensor.degree; ++rank) {
      const LocalMove local = local_move(placed, &move, rank);
      REQUIRE(std::ssize(local.group) == size(placed.mesh, move.move.over));
      std::vector<Part> parts;
      for (const int member : local.group) parts.push_back(part_of(placed, whole, small, member, parameter));
      CHECK(side_by_side(parts, local.dimension) == elements_of(placed, whole.shape, large, rank));
    }
    ++seen;
  }
  return seen;
}

}  // namespace

TEST_CASE("the parts of a move's ranks, along its dimension, are what it gathers and what it scatters") {
  const std::vector<TensorLayout> layouts{{.degree = 4, .sequence_parallel = true},
                                          {.degree = 4, .kind = TensorKind::two_d},
                                          {.degree = 8, .kind = TensorKind::two_and_half_d, .depth = 2},
                                          {.degree = 8, .kind = TensorKind::three_d}};
  for (const Model& model : {test::gpt2(1, false), test::of_four(test::llama(1)), test::gptj(1)}) {
    for (const TensorLayout& tensor : layouts) {
      INFO(model.name << ", " << tensor.degree << " ranks");
      int seen = 0;
      for (int block = 0; block <= head_block(model); ++block) seen += require_placed_so(model, block, tensor);
      CHECK(seen > 10);
    }
  }
}

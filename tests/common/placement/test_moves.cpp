// Moves carried out on numbers, by the definition of each collective, give what the placement behind them says, and
// each is the adjoint of its mirror: ⟨F x, y⟩ = ⟨x, F* y⟩.
#include "common/placement/moves.hpp"

#include <algorithm>
#include <functional>
#include <random>
#include <stdexcept>

#include "common/base/error.hpp"
#include "tests/catch.hpp"

using namespace plumb;

namespace {

// Row and column.
using Index = std::pair<std::int64_t, std::int64_t>;

// What a rank holds of a whole tensor of two dimensions: values by index, absent where it holds none.
class Held {
 public:
  // Indices rise from call to call.
  void add(const Index& index, std::int64_t value) { all_.emplace_back(index, value); }
  // Null: none.
  [[nodiscard]] const std::int64_t* find(const Index& index) const {
    const auto found = std::ranges::lower_bound(all_, index, {}, &std::pair<Index, std::int64_t>::first);
    return found == all_.end() || found->first != index ? nullptr : &found->second;
  }
  [[nodiscard]] std::int64_t at(const Index& index) const {
    const std::int64_t* const found = find(index);
    if (found == nullptr) throw std::out_of_range("the rank holds no such element");
    return *found;
  }
  [[nodiscard]] auto begin() const { return all_.begin(); }
  [[nodiscard]] auto end() const { return all_.end(); }
  bool operator==(const Held&) const = default;

 private:
  std::vector<std::pair<Index, std::int64_t>> all_;
};

struct Case {
  Mesh mesh;
  NamedShape whole{"tensor", {{Dim::sequence, 24}, {Dim::hidden, 48, {24, 24}}}};
};

bool holds(const std::vector<IndexRange>& ranges, std::int64_t index) {
  return std::ranges::any_of(ranges,
                             [&](const IndexRange& range) { return range.begin <= index && index < range.end; });
}

// Rising.
std::vector<Index> indices(const Case& of, const Placement& placement, int rank) {
  const std::vector<IndexRange> rows = owned(of.mesh, of.whole.shape[0], placement, rank);
  const std::vector<IndexRange> columns = owned(of.mesh, of.whole.shape[1], placement, rank);
  std::vector<std::int64_t> held_columns;
  for (std::int64_t j = 0; j < of.whole.shape[1].size; ++j) {
    if (holds(columns, j)) held_columns.push_back(j);
  }
  std::vector<Index> all;
  for (std::int64_t i = 0; i < of.whole.shape[0].size; ++i) {
    if (!holds(rows, i)) continue;
    for (const std::int64_t j : held_columns) all.emplace_back(i, j);
  }
  return all;
}

std::int64_t value_of(Index index) { return 1000 * index.first + index.second + 1; }

// Partial sums: random summands by coordinates along the partial axes, the last of which makes the sum right; equal on
// ranks that are copies.
std::vector<Held> placed(const Case& of, const Placement& placement, const std::function<std::int64_t(Index)>& value) {
  std::vector<Held> all(static_cast<std::size_t>(ranks(of.mesh)));
  const std::vector<Axis> partial = members(of.mesh, placement.partial);
  const int parts = size(of.mesh, placement.partial);
  for (int rank = 0; rank < ranks(of.mesh); ++rank) {
    const int part = position(of.mesh, rank, partial);
    for (const Index& index : indices(of, placement, rank)) {
      std::int64_t summand = part * 7 + index.first - 3 * index.second;
      if (part == parts - 1) {
        summand = value(index);
        for (int other = 0; other + 1 < parts; ++other) summand -= other * 7 + index.first - 3 * index.second;
      }
      all[static_cast<std::size_t>(rank)].add(index, summand);
    }
  }
  return all;
}

// By definition: of what the members of the group hold behind the move, each element is the sum of the members'
// summands (all-reduce, reduce-scatter), or what any member had.
std::vector<Held> carried_out(const Case& of, const Move& move, const std::vector<Held>& before) {
  std::vector<Held> after(before.size());
  const bool adds = move.collective == Collective::all_reduce || move.collective == Collective::reduce_scatter;
  for (int rank = 0; rank < ranks(of.mesh); ++rank) {
    const std::vector<int> group_of_rank = group(of.mesh, rank, move.over);
    for (const Index& index : indices(of, move.to, rank)) {
      std::int64_t made = 0;
      if (!move.collective) {
        const std::int64_t* const found = before[static_cast<std::size_t>(rank)].find(index);
        made = found == nullptr ? 0 : *found;
      } else {
        bool known = false;
        for (const int member : group_of_rank) {
          const std::int64_t* const found = before[static_cast<std::size_t>(member)].find(index);
          if (found == nullptr) continue;
          if (adds) {
            made += *found;
          } else if (!known) {
            made = *found;
          }
          known = true;
        }
        if (!known) throw std::logic_error("no member of the group has what the move gives");
      }
      after[static_cast<std::size_t>(rank)].add(index, made);
    }
  }
  return after;
}

std::vector<Held> carried_out(const Case& of, const std::vector<Move>& all, std::vector<Held> held) {
  for (const Move& move : all) held = carried_out(of, move, held);
  return held;
}

std::int64_t inner(const std::vector<Held>& a, const std::vector<Held>& b) {
  std::int64_t sum = 0;
  for (std::size_t rank = 0; rank < a.size(); ++rank) {
    for (const auto& [index, value] : a[rank]) sum += value * b[rank].at(index);
  }
  return sum;
}

std::vector<Axis> shuffled(std::mt19937& random, std::size_t axes) {
  std::vector<Axis> all;
  for (std::size_t i = 0; i < axes; ++i) all.push_back({static_cast<std::uint8_t>(i)});
  std::shuffle(all.begin(), all.end(), random);
  return all;
}

// Each axis splits one of the dimensions, is partial, or neither.
Placement random_placement(std::mt19937& random, const Case& of, bool partial) {
  Placement placement;
  std::vector<Axis> rows;
  std::vector<Axis> columns;
  for (const Axis axis : shuffled(random, of.mesh.axes.size())) {
    const unsigned kind = random() % 4;
    if (kind == 0) rows.push_back(axis);
    if (kind == 1) columns.push_back(axis);
    if (kind == 2 && partial) placement = with_partial(placement, set_of(axis));
  }
  placement = with_split(placement, Dim::sequence, rows, random() % 4 == 0);
  return with_split(placement, Dim::hidden, columns);
}

// Of the values that a linear function of these is given back by: copies are met by partial sums and these by copies,
// so that the sum over all ranks of products of both is that of the whole tensors.
Placement dual(const Mesh& mesh, const Placement& placement) {
  Axes all;
  for (std::size_t i = 0; i < mesh.axes.size(); ++i) {
    if (mesh.axes[i].size > 1) all = all | set_of(Axis{static_cast<std::uint8_t>(i)});
  }
  Placement mirrored = placement;
  mirrored.partial = without(without(all, split_axes(placement)), placement.partial);
  return mirrored;
}

Case random_case(std::mt19937& random) {
  Case made;
  for (int i = 0; i < 3; ++i) made.mesh.axes.push_back({"a" + std::to_string(i), 1 + static_cast<int>(random() % 3)});
  std::int64_t parts = 2;
  for (const Mesh::Entry& entry : made.mesh.axes) parts *= entry.size;
  made.whole.shape = {{Dim::sequence, parts}, {Dim::hidden, 3 * parts, {parts, 2 * parts}}};
  return made;
}

bool copies_become_sums(const Case& of, const Placement& from, const Placement& to) {
  const Axes held = from.partial | split_axes(from);
  return std::ranges::any_of(members(of.mesh, to.partial),
                             [&](Axis axis) { return size(of.mesh, axis) > 1 && !contains(held, axis); });
}

}  // namespace

TEST_CASE("elements of a rank: those whose indices it owns, in the order of memory", "[placement]") {
  const Mesh mesh{{{"a", 2}, {"b", 3}}};
  const Shape whole{{Dim::heads, 6}, {Dim::channels, 5}, {Dim::width, 18, {6, 12}}, {Dim::features, 2}};
  for (const Placement& placement :
       {Placement{}, with_split({}, Dim::heads, {Axis{1}}), with_split({}, Dim::width, {Axis{1}}),
        with_split(with_split({}, Dim::heads, {Axis{0}}), Dim::width, {Axis{1}})}) {
    std::vector<int> owners(static_cast<std::size_t>(elements(whole)), 0);
    for (int rank = 0; rank < ranks(mesh); ++rank) {
      const std::vector<IndexRange> heads = owned(mesh, whole[0], placement, rank);
      const std::vector<IndexRange> width = owned(mesh, whole[2], placement, rank);
      const std::vector<IndexRange> mine = owned_elements(mesh, whole, placement, rank);
      for (std::int64_t i = 0; i < elements(whole); ++i) {
        const bool is_mine = holds(heads, i / (5 * 18 * 2)) && holds(width, i / 2 % 18);
        REQUIRE(holds(mine, i) == is_mine);
        owners[static_cast<std::size_t>(i)] += is_mine ? 1 : 0;
      }
      CHECK(std::ranges::is_sorted(mine, {}, &IndexRange::begin));
    }
    const int copies = ranks(mesh) / size(mesh, split_axes(placement));
    CHECK(std::ranges::all_of(owners, [&](int count) { return count == copies; }));
  }
}

TEST_CASE("a redistribution delivers the values of the next placement", "[placement]") {
  std::mt19937 random(2);
  for (int round = 0; round < 150; ++round) {
    const Case of = random_case(random);
    const Placement from = random_placement(random, of, true);
    const Placement to = random_placement(random, of, false);
    const std::vector<Move> way = moves(of.mesh, of.whole, from, to);
    const std::vector<Held> arrived = carried_out(of, way, placed(of, from, value_of));
    INFO(describe(of.mesh, from) << " -> " << describe(of.mesh, to));
    REQUIRE(arrived == placed(of, to, value_of));
  }
}

TEST_CASE("redistribution into partial sums adds up to the whole", "[placement]") {
  std::mt19937 random(12);
  int moved = 0;
  for (int round = 0; round < 300; ++round) {
    const Case of = random_case(random);
    Placement from = random_placement(random, of, true);
    for (DimSplit& split : from.splits) split.zigzag = false;
    const Placement to = random_placement(random, of, true);
    if (copies_become_sums(of, from, to)) continue;
    Placement whole = to;
    whole.partial = {};
    std::vector<Held> held = carried_out(of, moves(of.mesh, of.whole, from, to), placed(of, from, value_of));
    held = carried_out(of, moves(of.mesh, of.whole, to, whole), held);
    INFO(describe(of.mesh, from) << " -> " << describe(of.mesh, to));
    REQUIRE(held == placed(of, whole, value_of));
    ++moved;
  }
  CHECK(moved > 50);
}

TEST_CASE("ranks together hold every index once, also of uneven parts", "[placement]") {
  const Mesh mesh{{{"tensor", 6}}};
  const Extent vocabulary{Dim::vocabulary, 50257};
  std::int64_t next = 0;
  for (int rank = 0; rank < 6; ++rank) {
    for (const IndexRange& range : owned(mesh, vocabulary, with_split({}, Dim::vocabulary, {Axis{0}}), rank)) {
      CHECK(range.begin == next);
      next = range.end;
    }
  }
  CHECK(next == 50257);
}

TEST_CASE("each move is the adjoint of its mirror", "[placement]") {
  std::mt19937 random(3);
  int compared = 0;
  for (int round = 0; round < 150; ++round) {
    const Case of = random_case(random);
    const Placement from = random_placement(random, of, true);
    const Placement to = random_placement(random, of, false);
    for (const Move& move : moves(of.mesh, of.whole, from, to)) {
      const std::vector<Move> back = moves(of.mesh, of.whole, dual(of.mesh, move.to), dual(of.mesh, move.from));
      const std::vector<Held> x = placed(of, move.from, value_of);
      const std::vector<Held> y =
          placed(of, dual(of.mesh, move.to), [](auto index) { return 5 * index.second - 2 * index.first; });
      INFO(describe(of.mesh, move.from) << " -> " << describe(of.mesh, move.to) << "; back "
                                        << describe(of.mesh, dual(of.mesh, move.to)) << " -> "
                                        << describe(of.mesh, dual(of.mesh, move.from)));
      REQUIRE(inner(carried_out(of, move, x), y) == inner(x, carried_out(of, back, y)));
      ++compared;
    }
  }
  CHECK(compared > 150);
}

TEST_CASE("copies are never taken for partial sums", "[placement]") {
  std::mt19937 random(4);
  int refused = 0;
  for (int round = 0; round < 200; ++round) {
    const Case of = random_case(random);
    const Placement from = random_placement(random, of, true);
    const Placement to = random_placement(random, of, true);
    if (!copies_become_sums(of, from, to)) continue;
    CHECK_THROWS_AS(moves(of.mesh, of.whole, from, to), InputError);
    ++refused;
  }
  CHECK(refused > 20);
}

TEST_CASE("sums go over the smallest parts: shards first, then their copies", "[placement]") {
  const Mesh mesh{{{"shard", 4}, {"replicate", 2}}};
  const NamedShape whole{"weight", {{Dim::elements, 64}}};
  const Axis shard{0};
  const Axis replicate{1};
  const std::vector<Move> way =
      moves(mesh, whole, with_partial({}, set_of(shard) | set_of(replicate)), with_split({}, Dim::elements, {shard}));
  REQUIRE(way.size() == 2);
  CHECK(way[0].collective == Collective::reduce_scatter);
  CHECK(way[0].over == set_of(shard));
  CHECK(way[1].collective == Collective::all_reduce);
  CHECK(way[1].elements_from == 16);
}

TEST_CASE("a part that is not whole is refused with the tensor's name", "[placement]") {
  const Mesh mesh{{{"tensor", 3}}};
  CHECK_THROWS_WITH(
      local_shape(mesh, {"attention.q", {{Dim::heads, 8}}}, with_split({}, Dim::heads, {Axis{0}})),
      ContainsSubstring("attention.q") && ContainsSubstring("heads of 8") && ContainsSubstring("by tensor"));
  // q‖k‖v: each on its own.
  CHECK_THROWS_AS(local_shape(mesh, {"conv", {{Dim::width, 12, {4, 4, 4}}}}, with_split({}, Dim::width, {Axis{0}})),
                  InputError);
}

TEST_CASE("zigzag gives each rank as much of a causal triangle", "[placement]") {
  const Mesh mesh{{{"context", 4}}};
  const Placement placement = with_split({}, Dim::sequence, {Axis{0}}, true);
  for (int rank = 0; rank < 4; ++rank) {
    std::int64_t seen = 0;
    for (const IndexRange& range : owned(mesh, {Dim::sequence, 64}, placement, rank)) {
      for (std::int64_t token = range.begin; token < range.end; ++token) seen += token + 1;
    }
    CHECK(seen == 64 * 65 / 2 / 4);
  }
}

TEST_CASE("a part is split further by minor axes, but not zigzag where it is not", "[placement]") {
  const Placement by_one = with_split({}, Dim::sequence, {Axis{0}});
  CHECK(with_split(by_one, Dim::sequence, {Axis{1}}) == with_split({}, Dim::sequence, {Axis{0}, Axis{1}}));
  CHECK(with_split(by_one, Dim::sequence, {}, true) == by_one);
  CHECK_THROWS_AS(with_split(by_one, Dim::sequence, {Axis{1}}, true), std::logic_error);
}

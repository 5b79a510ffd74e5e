// Tokens to experts and back: the plan is exactly its reference's, the moves as near to fp64 as their type allows.
#include "kernels/moe.hpp"

#include <algorithm>
#include <set>

#include "tests/catch.hpp"
#include "tests/kernels/arrays.hpp"

using namespace plumb::kernels;
using namespace plumb::test;

namespace {

struct Case {
  MoeShape shape;
  std::vector<std::int32_t> expert_of;
};

// Each token's choices differ, as routers' do; some are dropped; the last expert and every fifth get nothing.
Case make_case(const MoeShape& shape, bool drop) {
  Case c = {shape, {}};
  const Numbers dice = made_up(static_cast<std::size_t>(shape.tokens * shape.top_k), 3);
  for (std::int64_t t = 0; t < shape.tokens; ++t) {
    std::set<std::int32_t> taken;
    for (std::int64_t j = 0; j < shape.top_k; ++j) {
      const double die = dice[static_cast<std::size_t>(t * shape.top_k + j)];
      auto expert = static_cast<std::int32_t>((die + 1) / 2 * static_cast<double>(shape.experts - 1));
      if (shape.experts > 10) {
        while (taken.contains(expert) || expert % 5 == 4)
          expert = (expert + 1) % static_cast<std::int32_t>(shape.experts - 1);
      }
      taken.insert(expert);
      c.expert_of.push_back(drop && die > 0.8 ? -1 : expert);
    }
  }
  return c;
}

// One of each; odd; many tokens of whole packs (from 700 on the plan has several segments); one expert.
std::vector<Case> cases(std::int64_t many) {
  return {make_case({1, 1, 1, 1}, false), make_case({7, 13, 3, 16}, true), make_case({many, 16, 4, 64}, true),
          make_case({40, 2064, 2, 1}, false), make_case({9, 64, 8, 128}, false)};
}

struct Planned {
  std::vector<std::int32_t> row_of, offsets;
};

Planned by_reference(const Case& c) {
  Planned p = {std::vector<std::int32_t>(c.expert_of.size()),
               std::vector<std::int32_t>(static_cast<std::size_t>(c.shape.experts + 1))};
  moe_plan_reference(c.shape,
                     {.expert_of = c.expert_of.data(), .row_of = p.row_of.data(), .offsets = p.offsets.data()});
  return p;
}

// Integers in the place's memory.
struct Integers {
  explicit Integers(std::size_t count) : array(Type::fp32, count), size(count) {}
  explicit Integers(const std::vector<std::int32_t>& numbers) : Integers(numbers.size()) {
    copy_in(array.data(), numbers.data(), numbers.size() * 4);
  }
  [[nodiscard]] std::int32_t* data() const { return static_cast<std::int32_t*>(array.data()); }
  [[nodiscard]] std::vector<std::int32_t> read() const {
    std::vector<std::int32_t> numbers(size);
    copy_out(numbers.data(), array.data(), size * 4);
    return numbers;
  }
  Array array;
  std::size_t size;
};

}  // namespace

TEST_CASE("The plan's reference sorts by expert and keeps the order within one") {
  for (const Case& c : cases(700)) {
    const Planned p = by_reference(c);
    std::vector<std::pair<std::int32_t, std::size_t>> by_row(static_cast<std::size_t>(p.offsets.back()));
    for (std::size_t i = 0; i < p.row_of.size(); ++i) {
      CHECK((p.row_of[i] < 0) == (c.expert_of[i] < 0));
      if (p.row_of[i] >= 0) by_row.at(static_cast<std::size_t>(p.row_of[i])) = {c.expert_of[i], i};
    }
    CHECK(std::is_sorted(by_row.begin(), by_row.end()));
    for (std::size_t e = 0; e + 1 < p.offsets.size(); ++e) {
      const auto of_expert = std::count(c.expert_of.begin(), c.expert_of.end(), static_cast<std::int32_t>(e));
      CHECK(p.offsets[e + 1] - p.offsets[e] == of_expert);
    }
  }
}

TEST_CASE("The planning kernels give exactly the reference's rows") {
  need_device();
  for (const Case& c : cases(700)) {
    INFO(c.shape.tokens << " tokens");
    const Planned expected = by_reference(c);
    each_way([&] {
      const Integers experts(c.expert_of);
      const Integers rows(expected.row_of.size());
      const Integers offsets(expected.offsets.size());
      const Integers workspace(static_cast<std::size_t>(moe_workspace(c.shape)));
      moe_plan(c.shape,
               {.expert_of = experts.data(),
                .row_of = rows.data(),
                .offsets = offsets.data(),
                .workspace = workspace.data()},
               {});
      CHECK(rows.read() == expected.row_of);
      CHECK(offsets.read() == expected.offsets);
    });
  }
}

TEST_CASE("Permute copies, and unpermute adds up as near to fp64 as its type allows, both ways") {
  need_device();
  for (const Type type : all_types) {
    for (const Case& c : cases(60)) {
      INFO(c.shape.tokens << " tokens of " << c.shape.hidden << ", type " << static_cast<int>(type));
      const Planned p = by_reference(c);
      const auto wide = static_cast<std::size_t>(c.shape.tokens * c.shape.hidden);
      const auto sorted = static_cast<std::size_t>(p.offsets.back() * c.shape.hidden);
      const Numbers x = rounded(type, made_up(wide, 1));
      const Numbers rows = rounded(type, made_up(sorted, 2));
      const Numbers dy = rounded(type, made_up(wide, 3));
      const Numbers weight = rounded(Type::fp32, made_up(p.row_of.size(), 4));
      Numbers permuted(sorted), y(wide), plain(wide), drows(sorted), dweight(weight.size());
      moe_permute_reference(c.shape, {.x = x.data(), .row_of = p.row_of.data(), .rows = permuted.data()});
      moe_unpermute_reference(c.shape,
                              {.rows = rows.data(), .row_of = p.row_of.data(), .weight = weight.data(), .y = y.data()});
      moe_unpermute_reference(c.shape, {.rows = rows.data(), .row_of = p.row_of.data(), .y = plain.data()});
      moe_unpermute_backward_reference(c.shape, {.dy = dy.data(),
                                                 .rows = rows.data(),
                                                 .row_of = p.row_of.data(),
                                                 .weight = weight.data(),
                                                 .drows = drows.data(),
                                                 .dweight = dweight.data()});
      const auto run = [&] {
        const Integers row_of(p.row_of);
        const Array xs(type, x), sources(type, rows), dys(type, dy), weights(Type::fp32, weight);
        const Array to(type, sorted), out(type, wide), sums(type, wide), dsources(type, sorted);
        const Array dweights(Type::fp32, weight.size());
        moe_permute(c.shape, type, {.x = xs.data(), .row_of = row_of.data(), .rows = to.data()}, {});
        moe_unpermute(c.shape, type,
                      {.rows = sources.data(), .row_of = row_of.data(), .weight = weights.floats(), .y = out.data()},
                      {});
        moe_unpermute(c.shape, type, {.rows = sources.data(), .row_of = row_of.data(), .y = sums.data()}, {});
        moe_unpermute_backward(c.shape, type,
                               {.dy = dys.data(),
                                .rows = sources.data(),
                                .row_of = row_of.data(),
                                .weight = weights.floats(),
                                .drows = dsources.data(),
                                .dweight = dweights.floats()},
                               {});
        CHECK(to.read() == permuted);
        CHECK(error_ratio(type, out.read(), y) <= most_error);
        CHECK(error_ratio(type, sums.read(), plain) <= most_error);
        CHECK(error_ratio(type, dsources.read(), drows) <= most_error);
        CHECK(error_ratio(Type::fp32, dweights.read(), dweight) <= most_error);
        return to.raw() + out.raw() + sums.raw() + dsources.raw() + dweights.raw();
      };
      same_bits_each_way(run);
    }
  }
}

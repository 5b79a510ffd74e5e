// Stages with different data degrees: where their ranks stand, and who sends what to whom.
#include "common/layout/message_shares.hpp"

#include <map>
#include <numeric>
#include <set>

#include "common/base/error.hpp"
#include "tests/catch.hpp"

using namespace plumb;

namespace {

Layout with(const std::vector<int>& degrees, int tensor = 1) {
  Layout layout;
  layout.pipeline = static_cast<int>(degrees.size());
  layout.tensor.degree = tensor;
  return with_stage_data(layout, degrees);
}

const std::vector<std::vector<int>> vectors = {{15, 1}, {1, 3}, {3, 2}, {2, 3, 1}, {4, 6, 2, 2}, {1, 1, 2}};

}  // namespace

TEST_CASE("ranks of stages with different data degrees stand one stage behind the other") {
  for (const auto& degrees : vectors) {
    for (const int tensor : {1, 2}) {
      const Layout layout = with(degrees, tensor);
      CAPTURE(describe(layout));
      require_consistent(layout);
      CHECK(ranks(layout) == std::accumulate(degrees.begin(), degrees.end(), 0) * tensor);
      int rank = 0;
      for (int stage = 0; stage < layout.pipeline; ++stage) {
        CHECK(first_rank(layout, stage) == rank);
        for (int replica = 0; replica < degrees[static_cast<std::size_t>(stage)]; ++replica) {
          for (int place = 0; place < tensor; ++place, ++rank) {
            const MeshCoordinates at = coordinates(layout, rank);
            CHECK(at == MeshCoordinates{place, 0, 0, replica, stage});
            CHECK(rank_at(layout, at) == rank);
          }
        }
      }
    }
  }
}

TEST_CASE("groups of such stages are as wide as their stage") {
  const Layout layout = with({3, 1}, 2);
  CHECK(group(layout, 0, MeshAxis::data) == std::vector{0, 2, 4});
  CHECK(group(layout, 3, MeshAxis::data) == std::vector{1, 3, 5});
  CHECK(group(layout, 3, MeshAxis::tensor) == std::vector{2, 3});
  CHECK(group(layout, 6, MeshAxis::data) == std::vector{6});
  CHECK(group(layout, 7, MeshAxis::tensor) == std::vector{6, 7});
  CHECK(group(layout, 1, MeshAxis::pipeline) == std::vector{1, 7});
  CHECK(group(layout, 2, MeshAxis::pipeline) == std::vector{2});
  CHECK(describe(layout) == "pp2·tp2·dp3-1");
}

TEST_CASE("degrees by stage that are alike are one degree") {
  const Layout layout = with({2, 2});
  CHECK_FALSE(has_stage_data(layout));
  CHECK(layout.data.degree == 2);
  CHECK(ranks(layout) == 4);
}

TEST_CASE("a layout with degrees by stage that do not fit it is refused") {
  const auto problem_of = [](const Layout& layout) {
    try {
      require_consistent(layout);
    } catch (const InputError& error) {
      return error.problem();
    }
    return std::string("none");
  };
  Layout layout = with({2, 1});
  CHECK(problem_of(layout) == "none");
  layout.pipeline = 3;
  CHECK_THAT(problem_of(layout), ContainsSubstring("2 data degrees by stage for a pipeline of 3 ranks"));
  layout = with({2, 1});
  layout.order = {MeshAxis::tensor, MeshAxis::pipeline, MeshAxis::data, MeshAxis::context, MeshAxis::expert};
  CHECK_THAT(problem_of(layout), ContainsSubstring("must end with 'pipeline'"));
  layout = with({2, 1});
  layout.data.degree = 1;
  CHECK_THAT(problem_of(layout), ContainsSubstring("must be the largest"));
  layout.stage_data = {1, 1};
  CHECK_THAT(problem_of(layout), ContainsSubstring("alike"));
}

TEST_CASE("every byte of a message crosses once, between ranks of the same place in their tensor groups") {
  for (const auto& degrees : vectors) {
    for (const int tensor : {1, 2}) {
      const Layout layout = with(degrees, tensor);
      CAPTURE(describe(layout));
      for (int stage = 0; stage + 1 < layout.pipeline; ++stage) {
        std::map<int, double> sent;
        std::map<int, double> received;
        std::set<std::pair<int, int>> pairs;
        for (const MessageShare& share : message_shares(layout, stage, stage + 1)) {
          CHECK(pairs.emplace(share.from, share.to).second);
          CHECK(share.fraction > 0);
          CHECK(share.from % tensor == share.to % tensor);
          sent[share.from] += share.fraction;
          received[share.to] += share.fraction;
        }
        CHECK(std::ssize(sent) == stage_width(layout, stage));
        CHECK(std::ssize(received) == stage_width(layout, stage + 1));
        for (const auto& [rank, part] : sent) CHECK(part == Approx(1.0 / data_degree(layout, stage)).epsilon(1e-12));
        for (const auto& [rank, part] : received) {
          CHECK(part == Approx(1.0 / data_degree(layout, stage + 1)).epsilon(1e-12));
        }
        // Cuts at all multiples of 1/d1 and 1/d2 make d1 + d2 − gcd(d1, d2) parts.
        const int before = data_degree(layout, stage);
        const int behind = data_degree(layout, stage + 1);
        CHECK(std::ssize(pairs) == (before + behind - std::gcd(before, behind)) * tensor);
      }
    }
  }
}

TEST_CASE("shares of a microbatch are whole sequences, or refused with the least size that has them") {
  const Layout layout = with({3, 2});
  CHECK(
      uneven_shares(layout, 1).value() ==
      "a microbatch of 3 sequences (1 on each of 3 replicas) does not divide among the 2 replicas of pipeline rank 1");
  CHECK_FALSE(uneven_shares(layout, 2));
  CHECK(least_microbatch(layout) == 2);
  CHECK(share_of_stage(layout, 0, 2) == 2);
  CHECK(share_of_stage(layout, 1, 2) == 3);
  CHECK(least_microbatch(with({15, 1})) == 1);
  CHECK(least_microbatch(with({4, 6, 10})) == 6);
  for (const auto& degrees : vectors) {
    for (std::int64_t size = 1; size < 2 * least_microbatch(with(degrees)); ++size) {
      CHECK(uneven_shares(with(degrees), size).has_value() == (size % least_microbatch(with(degrees)) != 0));
    }
  }
}

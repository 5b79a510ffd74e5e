// Sums whose values travel as int4, against the way of each part written out anew, and values as int8 and int4 against
// the error that their scales allow.
#include "exec/transport/collectives/quantised_sums.hpp"

#include <algorithm>
#include <cmath>
#include <random>

#include "exec/transport/collectives/quantised_values.hpp"
#include "tests/catch.hpp"
#include "tests/exec/transport/collectives/collective_worlds.hpp"

using namespace plumb;
using namespace plumb::exec;
using namespace plumb::exec::test;

namespace {

// In blocks of 128: the largest is seven steps.
std::vector<float> rounded(const std::vector<float>& values) {
  std::vector<float> made(values.size());
  for (std::size_t first = 0; first < values.size(); first += 128) {
    const std::size_t end = std::min(first + 128, values.size());
    float largest = 0;
    for (std::size_t i = first; i < end; ++i) largest = std::max(largest, std::fabs(values[i]));
    for (std::size_t i = first; i < end; ++i) {
      made[i] = largest > 0 ? largest / 7 * std::nearbyint(values[i] * (7 / largest)) : 0;
    }
  }
  return made;
}

void add(std::vector<float>& sum, const std::vector<float>& values) {
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += values[i];
}

// Elements of part `part` of so many, in order, the first ones with one more.
std::vector<float> cut(const std::vector<float>& values, std::size_t parts, std::size_t part) {
  std::vector<float> own;
  std::size_t at = 0;
  for (std::size_t p = 0; p <= part; ++p) {
    const std::size_t count = values.size() / parts + (p < values.size() % parts ? 1 : 0);
    if (p == part)
      own.assign(values.begin() + static_cast<std::ptrdiff_t>(at),
                 values.begin() + static_cast<std::ptrdiff_t>(at + count));
    at += count;
  }
  return own;
}

// What rank `rank` gets: in each group of `inside` the sum of what its ranks have of the part, then that of the groups.
std::vector<float> expected_part(const std::vector<std::vector<float>>& values, std::size_t inside, std::size_t rank) {
  const std::size_t ranks = values.size();
  std::vector<std::vector<float>> groups;
  for (std::size_t r = 0; r < ranks; ++r) {
    const std::vector<float> own = cut(values[r], ranks, rank);
    if (r % inside == 0) groups.emplace_back(own.size(), 0.0F);
    add(groups.back(), inside > 1 ? rounded(own) : own);
  }
  if (groups.size() == 1) return groups.front();
  std::vector<float> total(groups.front().size(), 0.0F);
  for (const std::vector<float>& group : groups) add(total, rounded(group));
  return total;
}

std::size_t int4_bytes(std::size_t elements) { return (elements + 1) / 2 + (elements + 127) / 128 * 4; }

}  // namespace

TEST_CASE("values in blocks of integers are within half a step of what they were, and as large as is counted") {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (const int bits : {4, 8}) {
    const float top = bits == 8 ? 127 : 7;
    for (const std::size_t count : {1U, 2U, 127U, 128U, 129U, 1000U}) {
      std::vector<float> values(count);
      for (float& value : values) value = normal(random) * std::pow(10.0F, normal(random));
      std::vector<std::byte> blocks(quantised_size(count, bits));
      CHECK(blocks.size() == (count * static_cast<std::size_t>(bits) + 7) / 8 + (count + 127) / 128 * 4);
      quantise(values, bits, blocks);
      std::vector<float> back(count);
      dequantise(blocks, bits, back);
      for (std::size_t first = 0; first < count; first += 128) {
        const std::size_t end = std::min(first + 128, count);
        float largest = 0;
        for (std::size_t i = first; i < end; ++i) largest = std::max(largest, std::fabs(values[i]));
        for (std::size_t i = first; i < end; ++i) {
          CHECK(std::fabs(values[i] - back[i]) <= largest / top / 2 * (1 + 1e-5F));
        }
      }
      if (bits == 4) CHECK(back == rounded(values));
      if (count > 1) CHECK(back != values);
    }
  }
}

TEST_CASE("each rank's part is summed among neighbours and then across, with the bits and the bytes of that way") {
  const WorldKind world = each_world();
  const auto ranks = static_cast<std::size_t>(world.ranks);
  std::vector<std::vector<std::vector<float>>> sums;  // by sum and rank
  unsigned seed = 1;
  for (const std::size_t count : {std::size_t{1}, std::size_t{64}, std::size_t{1000}, std::size_t{5003}}) {
    sums.push_back(random_values<float>(world.ranks, count, seed++));
  }
  for (std::size_t inside = 1; inside <= ranks; ++inside) {
    if (ranks % inside != 0) continue;
    INFO(world.kind.name << ", " << ranks << " ranks, " << inside << " neighbours");
    std::vector<std::vector<std::vector<float>>> made = sums;
    std::vector<Bytes> received(ranks);
    const auto transports = world.kind.make(world.ranks);
    run_on_threads(transports, [&](Transport& transport) {
      const auto rank = static_cast<std::size_t>(transport.rank());
      std::vector<int> near;
      std::vector<int> across;
      for (std::size_t other = 0; other < ranks; ++other) {
        if (other / inside == rank / inside) near.push_back(static_cast<int>(other));
        if (other % inside == rank % inside) across.push_back(static_cast<int>(other));
      }
      QuantisedSums exchanged(transport, near, across);
      for (auto& of_sum : made) exchanged.start(of_sum[rank]);
      exchanged.finish(in_seconds(600));
      for (const auto& [group, bytes] : transport.received_in_groups()) received[rank] += bytes;
    });
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      std::size_t bytes = 0;
      for (std::size_t n = 0; n < sums.size(); ++n) {
        CHECK(cut(made[n][rank], ranks, rank) == expected_part(sums[n], inside, rank));
        const auto size = [&](std::size_t part) { return int4_bytes(cut(sums[n][rank], ranks, part).size()); };
        for (std::size_t group = 0; group < ranks / inside; ++group)
          bytes += (inside - 1) * size(group * inside + rank % inside);
        bytes += (ranks / inside - 1) * size(rank);
      }
      CHECK(received[rank] == Bytes{static_cast<std::int64_t>(bytes)});
    }
  }
}

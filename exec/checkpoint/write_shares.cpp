#include "exec/checkpoint/write_shares.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "exec/transport/collectives/collectives.hpp"

namespace plumb::exec {
namespace {

using Holders = std::vector<std::size_t>;

// Equal lists once, with all that hold them: replicas of many ranks cost no more than one.
std::map<std::vector<std::pair<std::int64_t, std::int64_t>>, Holders> by_list(const std::vector<IndexRanges>& held) {
  std::map<std::vector<std::pair<std::int64_t, std::int64_t>>, Holders> lists;
  for (std::size_t holder = 0; holder < held.size(); ++holder) {
    std::vector<std::pair<std::int64_t, std::int64_t>> list;
    for (const IndexRange& range : held[holder]) {
      if (range.begin < range.end) list.emplace_back(range.begin, range.end);
    }
    std::ranges::sort(list);
    if (!list.empty()) lists[list].push_back(holder);
  }
  return lists;
}

// Stretches of the whole by who has them: a sweep over all begins and ends.
std::map<Holders, IndexRanges> by_holders(const std::vector<IndexRanges>& held) {
  struct Change {
    std::int64_t at = 0;
    bool begins = false;
    const Holders* of = nullptr;
  };
  const auto lists = by_list(held);
  std::vector<Change> changes;
  for (const auto& [list, holders] : lists) {
    for (const auto& [begin, end] : list) {
      changes.push_back({begin, true, &holders});
      changes.push_back({end, false, &holders});
    }
  }
  std::ranges::sort(changes, {}, [](const Change& each) { return each.at; });
  std::map<Holders, IndexRanges> found;
  std::multiset<const Holders*> here;
  for (std::size_t index = 0; index < changes.size(); ++index) {
    const Change& change = changes[index];
    if (change.begins) {
      here.insert(change.of);
    } else {
      here.erase(here.find(change.of));
    }
    if (here.empty() || changes[index + 1].at == change.at) continue;
    Holders all;
    for (const Holders* const each : here) all.insert(all.end(), each->begin(), each->end());
    std::ranges::sort(all);
    found[all].push_back({change.at, changes[index + 1].at});
  }
  return found;
}

}  // namespace

std::vector<IndexRanges> write_shares(const std::vector<IndexRanges>& held, std::int64_t at_least, std::size_t turn) {
  std::vector<IndexRanges> shares(held.size());
  for (const auto& [holders, ranges] : by_holders(held)) {
    const auto all = static_cast<std::size_t>(elements(ranges));
    const auto most = std::max<std::size_t>(1, all / static_cast<std::size_t>(at_least));
    const std::size_t parts = std::min(holders.size(), most);
    for (std::size_t part = 0; part < parts; ++part) {
      const auto begin = static_cast<std::int64_t>(begin_of_part(all, parts, part));
      const auto count = static_cast<std::int64_t>(elements_of_part(all, parts, part));
      IndexRanges& own = shares[holders[(turn + part) % holders.size()]];
      const IndexRanges mine = part_of(ranges, begin, begin + count);
      own.insert(own.end(), mine.begin(), mine.end());
    }
  }
  for (IndexRanges& own : shares) std::ranges::sort(own, {}, &IndexRange::begin);
  return shares;
}

}  // namespace plumb::exec

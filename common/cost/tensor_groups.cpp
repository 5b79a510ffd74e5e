#include "common/cost/tensor_groups.hpp"

#include <algorithm>

namespace plumb {

void add_to(std::vector<TensorSum>& sums, const TensorSum& more) {
  const auto place =
      std::ranges::lower_bound(sums, more.over.bits, {}, [](const TensorSum& sum) { return sum.over.bits; });
  if (place != sums.end() && place->over == more.over) {
    place->bytes += more.bytes;
  } else {
    sums.insert(place, more);
  }
}

Seconds time_of(const std::vector<TensorSum>& sums, const Machine& machine, const TensorGroups& groups) {
  Seconds all;
  for (const TensorSum& sum : sums) {
    all +=
        collective_time(machine, Collective::all_reduce, static_cast<double>(sum.bytes.value), groups.over(sum.over));
  }
  return all;
}

}  // namespace plumb

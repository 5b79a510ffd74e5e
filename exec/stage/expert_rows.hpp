// Rows sorted by expert: work on those of one after the other.
#pragma once

#include <cstdint>
#include <vector>

namespace plumb::exec {

// Calls work(expert, first row, rows) for each expert that has rows.
template <class Work>
void for_each_expert(const std::vector<std::int64_t>& rows_of_expert, const Work& work) {
  std::int64_t first = 0;
  for (std::size_t expert = 0; expert < rows_of_expert.size(); ++expert) {
    if (rows_of_expert[expert] > 0) {
      work(static_cast<std::int64_t>(expert), first, rows_of_expert[expert]);
    }
    first += rows_of_expert[expert];
  }
}

}  // namespace plumb::exec

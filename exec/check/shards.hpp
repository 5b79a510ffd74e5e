// Whole tensors from what each rank of a run holds of them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/placement/placement.hpp"
#include "common/plan/plan.hpp"
#include "exec/stage/factory.hpp"
#include "exec/stage/vocabulary/part_rows.hpp"

namespace plumb::exec {

// Which elements a rank holds follows from the placement of the plan's tensor layout; of names that no block has, all.
// Elements that several ranks hold are copies: they must have the same bits.
class Shards {
 public:
  explicit Shards(const Plan& plan);

  // What `rank` of the plan's layout holds; of what data-parallel ranks share out `mine` has its part of each tensor
  // alone (StateShard). The first name of which an element has other bits than a rank before had, or nothing. Throws
  // RunError for a part of another size than its placement says.
  enum class Holds : std::uint8_t { all, part };
  [[nodiscard]] std::string add(int rank, const NamedGradients& mine, Holds holds = Holds::all);

  // Throws RunError that names a tensor of which no rank had some element.
  [[nodiscard]] NamedGradients whole() &&;

 private:
  struct Part {
    std::int64_t of = 0;  // elements of the whole
    std::vector<IndexRange> ranges;
  };
  struct Whole {
    std::vector<float> values;
    std::vector<bool> there;
  };

  // Of the rank at `position` of its tensor group.
  void add_blocks(const VocabularyPart& of_vocabulary, int position, std::map<std::string, Part>& parts) const;
  [[nodiscard]] std::size_t position_of(int rank) const;

  // Elements of what `part` says, from `first` of them on; whether those that were there have the same bits.
  [[nodiscard]] static bool put(Whole& whole, const Part& part, std::size_t first, const std::vector<float>& values);

  const Plan& plan_;
  // By position in the tensor group, of each rank of the pipeline in turn where that divides the vocabulary.
  std::vector<std::map<std::string, Part>> parts_;
  std::map<std::string, Whole> found_;
};

}  // namespace plumb::exec

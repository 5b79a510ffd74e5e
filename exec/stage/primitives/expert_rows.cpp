#include "exec/stage/primitives/expert_rows.hpp"

#include <ATen/ATen.h>

namespace plumb::exec {

const std::vector<std::int64_t>& ExpertRows::counts() const {
  if (is_counted()) return counts_;
  const at::Tensor here = ends_.cpu();
  const auto* const end = here.const_data_ptr<std::int32_t>();
  for (std::int64_t expert = 0; expert < experts(); ++expert) {
    counts_.push_back(end[expert] - (expert == 0 ? 0 : end[expert - 1]));
  }
  return counts_;
}

}  // namespace plumb::exec

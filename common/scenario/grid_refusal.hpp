// Why a scenario cannot be planned in a 2d, 2.5d or 3d tensor layout, beside its model's shapes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/layout/layout.hpp"
#include "common/scenario/scenario.hpp"

namespace plumb {

struct GridRefusal {
  std::string where = {};
  std::string problem = {};
  std::string hint = {};
};

// A microbatch whose sequences the grid does not divide, or adapters, which no grid has a place for yet; none: it can.
[[nodiscard]] std::optional<GridRefusal> grid_refusal(const Scenario& scenario, const TensorLayout& tensor,
                                                      std::int64_t microbatch);

}  // namespace plumb

// Pipeline costs as JSON, the same in plans and timelines. Internal: public headers do not include it.
#pragma once

#include <vector>

#include "common/base/document/json.hpp"
#include "common/base/document/json_tables.hpp"
#include "common/cost/costs.hpp"

namespace plumb {

// A bandwidth without limit is written as null.
[[nodiscard]] Json to_json(const ComputeCost& cost);
[[nodiscard]] Json to_json(const PipelineCosts& costs);

// Throw InputError naming file and key for what is missing, unknown, negative, or of another type.
[[nodiscard]] ComputeCost compute_cost_from_json(const JsonValue& value);
[[nodiscard]] PipelineCosts pipeline_costs_from_json(const JsonValue& value);

// Throws InputError where the sums of what so many microbatches keep and send, over all of them and all stages, might
// not fit 63 bits: schedules have up to 2^23 pairs of stage and microbatch, so that a bound on each field alone is
// either too tight for one or too wide for the sum. Ranks and moments hold no more than that.
void require_countable(const PipelineCosts& costs, int microbatches, const JsonValue& value);

// Its keys, for the reference page.
[[nodiscard]] std::vector<JsonTable> costs_tables();

}  // namespace plumb

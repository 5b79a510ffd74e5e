// The parts of a plan as JSON that no other folder writes: cluster, training, software, boundary. Internal, like
// json.hpp.
#pragma once

#include <vector>

#include "common/base/document/json.hpp"
#include "common/base/document/json_tables.hpp"
#include "common/cluster/machine.hpp"
#include "common/scenario/boundary.hpp"
#include "common/scenario/scenario.hpp"

namespace plumb {

[[nodiscard]] Json to_json(const Cluster& cluster);
[[nodiscard]] Json to_json(const Training& training);
[[nodiscard]] Json to_json(const Software& software);
[[nodiscard]] Json to_json(const BoundaryManifest& boundary);

// Throw InputError naming file and key for what is missing, unknown, of another type or out of range.
[[nodiscard]] Cluster cluster_from_json(const JsonValue& value);
[[nodiscard]] Training training_from_json(const JsonValue& value);
[[nodiscard]] Software software_from_json(const JsonValue& value);
[[nodiscard]] BoundaryManifest boundary_from_json(const JsonValue& value);

// Their keys, for the reference page.
[[nodiscard]] std::vector<JsonTable> cluster_tables();
[[nodiscard]] std::vector<JsonTable> training_tables();
[[nodiscard]] std::vector<JsonTable> software_tables();
[[nodiscard]] std::vector<JsonTable> boundary_tables();

}  // namespace plumb

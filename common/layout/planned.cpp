#include "common/layout/planned.hpp"

namespace plumb {
namespace {

PlannedKey planned(std::vector<std::string> path, const std::string& what, const std::string& instead) {
  return {.path = std::move(path), .problem = what + " is planned and not built yet", .hint = "built: " + instead};
}

}  // namespace

std::optional<PlannedKey> planned_key(const Layout& layout) {
  for (const MeshAxis axis : {MeshAxis::context, MeshAxis::expert}) {
    if (degree(layout, axis) == 1) continue;
    const std::string name(axis_name(axis));
    return planned({name}, name + " parallelism of degree " + std::to_string(degree(layout, axis)),
                   "pipeline, tensor and data parallelism");
  }
  return std::nullopt;
}

}  // namespace plumb

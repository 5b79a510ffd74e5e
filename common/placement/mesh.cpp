#include "common/placement/mesh.hpp"

#include <algorithm>
#include <stdexcept>

#include "common/base/error.hpp"
#include "common/layout/tensor_grid.hpp"

namespace plumb {
namespace {

void add_tensor(Mesh& mesh, const TensorLayout& tensor) {
  if (tensor.kind == TensorKind::one_d) {
    mesh.axes.push_back({"tensor", tensor.degree});
    return;
  }
  const TensorGrid grid = tensor_grid(tensor);
  mesh.axes.push_back({"tensor.column", grid.column});
  mesh.axes.push_back({"tensor.row", grid.row});
  if (tensor.kind != TensorKind::two_d) mesh.axes.push_back({"tensor.depth", grid.depth});
}

void add_data(Mesh& mesh, const DataLayout& data) {
  if (const int inside = inside_shards(data); inside > 1) {
    mesh.axes.push_back({"inside", inside});
    mesh.axes.push_back({"across", data.degree / inside});
    return;
  }
  if (data.sharding != Sharding::hsdp) {
    mesh.axes.push_back({"data", data.degree});
    return;
  }
  if (data.shard * data.replicate != data.degree) {
    throw InputError("layout.data", "expected shard × replicate = degree, found " + std::to_string(data.shard) + " × " +
                                        std::to_string(data.replicate) + " and " + std::to_string(data.degree));
  }
  mesh.axes.push_back({"shard", data.shard});
  mesh.axes.push_back({"replicate", data.replicate});
}

int stride(const Mesh& mesh, Axis axis) {
  int product = 1;
  for (int i = 0; i < axis.index; ++i) product *= mesh.axes[static_cast<std::size_t>(i)].size;
  return product;
}

}  // namespace

Axes set_of(const std::vector<Axis>& axes) {
  Axes set;
  for (const Axis axis : axes) set = set | set_of(axis);
  return set;
}

Mesh mesh_of(const Layout& layout) {
  Mesh mesh;
  for (const MeshAxis axis : layout.order) {
    if (axis == MeshAxis::tensor) add_tensor(mesh, layout.tensor);
    if (axis == MeshAxis::data) add_data(mesh, layout.data);
    if (axis == MeshAxis::context) mesh.axes.push_back({"context", layout.context});
    if (axis == MeshAxis::expert) mesh.axes.push_back({"expert", layout.expert});
    if (axis == MeshAxis::pipeline) mesh.axes.push_back({"pipeline", layout.pipeline});
  }
  return mesh;
}

Mesh with_copied_heads(Mesh mesh, int copies) {
  if (copies == 1) return mesh;
  const Axis tensor = axis_of(mesh, "tensor");
  const auto at = mesh.axes.begin() + tensor.index;
  const int heads = at->size / copies;
  *at = {"tensor.kv", heads};
  mesh.axes.insert(at, {"tensor.copy", copies});
  return mesh;
}

bool has_grid(const Mesh& mesh) {
  return std::ranges::find(mesh.axes, "tensor.column", &Mesh::Entry::name) != mesh.axes.end();
}

Axis axis_of(const Mesh& mesh, std::string_view name) {
  const auto found = std::ranges::find(mesh.axes, name, &Mesh::Entry::name);
  if (found == mesh.axes.end()) throw std::logic_error("a mesh without the axis " + std::string(name));
  return {static_cast<std::uint8_t>(found - mesh.axes.begin())};
}

std::vector<Axis> axes_of(const Mesh& mesh, const std::vector<std::string_view>& names) {
  std::vector<Axis> found;
  for (std::size_t i = 0; i < mesh.axes.size(); ++i) {
    const bool wanted = std::ranges::find(names, mesh.axes[i].name) != names.end();
    if (wanted && mesh.axes[i].size > 1) found.push_back({static_cast<std::uint8_t>(i)});
  }
  return found;
}

int size(const Mesh& mesh, Axes over) {
  int product = 1;
  for (const Axis axis : members(mesh, over)) product *= size(mesh, axis);
  return product;
}

int ranks(const Mesh& mesh) {
  int product = 1;
  for (const Mesh::Entry& entry : mesh.axes) product *= entry.size;
  return product;
}

std::vector<Axis> members(const Mesh& mesh, Axes set) {
  std::vector<Axis> found;
  for (std::size_t i = 0; i < mesh.axes.size(); ++i) {
    const Axis axis{static_cast<std::uint8_t>(i)};
    if (contains(set, axis)) found.push_back(axis);
  }
  return found;
}

int coordinate(const Mesh& mesh, int rank, Axis axis) { return rank / stride(mesh, axis) % size(mesh, axis); }

int position(const Mesh& mesh, int rank, const std::vector<Axis>& major_to_minor) {
  int at = 0;
  for (const Axis axis : major_to_minor) at = at * size(mesh, axis) + coordinate(mesh, rank, axis);
  return at;
}

std::vector<int> group(const Mesh& mesh, int rank, Axes over) {
  int first = rank;
  const std::vector<Axis> axes = members(mesh, over);
  for (const Axis axis : axes) first -= coordinate(mesh, rank, axis) * stride(mesh, axis);
  std::vector<int> all{first};
  for (const Axis axis : axes) {  // innermost first, so that the ranks ascend
    const std::size_t before = all.size();
    for (int i = 1; i < size(mesh, axis); ++i) {
      for (std::size_t j = 0; j < before; ++j) all.push_back(all[j] + i * stride(mesh, axis));
    }
  }
  return all;
}

std::string describe(const Mesh& mesh, Axes over) {
  std::string text;
  for (const Axis axis : members(mesh, over)) text += (text.empty() ? "" : " × ") + mesh.axes[axis.index].name;
  return text;
}

}  // namespace plumb

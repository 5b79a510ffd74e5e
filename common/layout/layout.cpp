#include "common/layout/layout.hpp"

#include <algorithm>
#include <limits>

#include "common/base/error.hpp"
#include "common/layout/sharding.hpp"
#include "common/layout/tensor_grid.hpp"

namespace plumb {
namespace {

constexpr std::array<MeshAxis, 5> all_axes = {MeshAxis::tensor, MeshAxis::context, MeshAxis::expert, MeshAxis::data,
                                              MeshAxis::pipeline};

std::size_t index(MeshAxis axis) { return static_cast<std::size_t>(axis); }

// More than any product of degrees that is meant.
constexpr std::int64_t too_many = std::numeric_limits<std::int64_t>::max();

std::int64_t saturating_product(std::int64_t a, std::int64_t b) { return a > too_many / b ? too_many : a * b; }

// Ranks of one stage for each of its replicas.
std::int64_t ranks_per_replica(const Layout& layout) {
  return saturating_product(saturating_product(layout.tensor.degree, layout.context), layout.expert);
}

int as_ranks(std::int64_t count) {
  if (count > std::numeric_limits<int>::max()) throw InputError("layout", "the degrees multiply to too many ranks");
  return static_cast<int>(count);
}

// Along an axis, among the ranks of one pipeline rank.
int degree_at(const Layout& layout, MeshAxis axis, int pipeline_rank) {
  return axis == MeshAxis::data ? data_degree(layout, pipeline_rank) : degree(layout, axis);
}

void require_stage_data(const Layout& layout) {
  if (!has_stage_data(layout)) return;
  const auto fail = [](const std::string& problem) { throw InputError("layout", problem); };
  const std::vector<int>& degrees = layout.stage_data;
  if (std::ssize(degrees) != layout.pipeline) {
    fail(std::to_string(degrees.size()) + " data degrees by stage for a pipeline of " +
         std::to_string(layout.pipeline) + " ranks");
  }
  std::int64_t sum = 0;
  for (const int degree : degrees) {
    if (degree < 1) fail("a data degree by stage must be at least 1");
    sum += degree;
  }
  const auto [least, most] = std::ranges::minmax(degrees);
  if (least == most) fail("data degrees by stage that are alike are one degree");
  if (most != layout.data.degree) fail("the data degree must be the largest of those by stage");
  if (layout.order.back() != MeshAxis::pipeline) {
    fail("stages with different data degrees stand one behind the other: the order must end with 'pipeline'");
  }
  (void)as_ranks(saturating_product(sum, ranks_per_replica(layout)));
}

}  // namespace

const std::vector<std::string>& tensor_kind_names() {
  static const std::vector<std::string> names = {"1d", "2d", "2.5d", "3d"};
  return names;
}

std::string_view axis_name(MeshAxis axis) {
  switch (axis) {
    case MeshAxis::tensor:
      return "tensor";
    case MeshAxis::context:
      return "context";
    case MeshAxis::expert:
      return "expert";
    case MeshAxis::data:
      return "data";
    case MeshAxis::pipeline:
      return "pipeline";
  }
  return "";
}

int degree(const Layout& layout, MeshAxis axis) {
  switch (axis) {
    case MeshAxis::tensor:
      return layout.tensor.degree;
    case MeshAxis::context:
      return layout.context;
    case MeshAxis::expert:
      return layout.expert;
    case MeshAxis::data:
      return layout.data.degree;
    case MeshAxis::pipeline:
      return layout.pipeline;
  }
  return 1;
}

void require_consistent(const Layout& layout) {
  for (const MeshAxis axis : all_axes) {
    const std::string name(axis_name(axis));
    if (std::count(layout.order.begin(), layout.order.end(), axis) != 1) {
      throw InputError("layout", "the order of axes must name '" + name + "' exactly once");
    }
    if (degree(layout, axis) < 1) throw InputError("layout", "the degree of '" + name + "' must be at least 1");
  }
  (void)as_ranks(rank_product(layout));
  require_stage_data(layout);
  require_consistent_sharding(layout);
  require_grid(layout);
  if (layout.vocabulary_barriers < 0 || layout.vocabulary_barriers > 2) {
    throw InputError("layout", "a vocabulary over the pipeline has one or two barriers, not " +
                                   std::to_string(layout.vocabulary_barriers));
  }
  if (layout.tensor.asynchronous && layout.tensor.degree > 1 && !goes_in_pieces(layout.tensor)) {
    throw InputError("layout",
                     "an asynchronous tensor layout gathers and scatters tokens, which this one does not divide, or "
                     "panels, which it does not have",
                     "kind: 1d with sequence_parallel: true, kind: 2d or 2.5d, or asynchronous: false");
  }
  if (layout.tensor.reshard_after_forward && layout.tensor.kind != TensorKind::three_d) {
    throw InputError("layout",
                     "of a 3d tensor layout alone there is a choice of what forwards gather: 2d and 2.5d let go of it",
                     "kind: 3d, or reshard_after_forward: false");
  }
}

int ranks(const Layout& layout) {
  return has_stage_data(layout) ? first_rank(layout, layout.pipeline) : as_ranks(rank_product(layout));
}

std::int64_t rank_product(const Layout& layout) {
  std::int64_t product = 1;
  for (const MeshAxis axis : all_axes) product = saturating_product(product, degree(layout, axis));
  return product;
}

std::int64_t batch_shards(const Layout& layout) { return std::int64_t{1} * layout.data.degree * layout.expert; }

int data_degree(const Layout& layout, int pipeline_rank) {
  return has_stage_data(layout) ? layout.stage_data[static_cast<std::size_t>(pipeline_rank)] : layout.data.degree;
}

int first_rank(const Layout& layout, int pipeline_rank) {
  std::int64_t replicas = 0;
  for (int before = 0; before < pipeline_rank; ++before) replicas += data_degree(layout, before);
  return as_ranks(saturating_product(replicas, ranks_per_replica(layout)));
}

int stage_width(const Layout& layout, int pipeline_rank) {
  return as_ranks(saturating_product(data_degree(layout, pipeline_rank), ranks_per_replica(layout)));
}

Layout as_all(const Layout& layout, int pipeline_rank) {
  Layout result = layout;
  result.data.degree = data_degree(layout, pipeline_rank);
  result.stage_data.clear();
  return result;
}

Layout with_stage_data(Layout layout, const std::vector<int>& degrees) {
  const auto [least, most] = std::ranges::minmax(degrees);
  layout.data.degree = most;
  layout.stage_data = least == most ? std::vector<int>{} : degrees;
  return layout;
}

MeshCoordinates coordinates(const Layout& layout, int rank) {
  MeshCoordinates position{};
  int stage = 0;
  if (has_stage_data(layout)) {
    for (; rank >= stage_width(layout, stage); ++stage) rank -= stage_width(layout, stage);
  }
  for (const MeshAxis axis : layout.order) {
    position.at(index(axis)) = rank % degree_at(layout, axis, stage);
    rank /= degree_at(layout, axis, stage);
  }
  if (has_stage_data(layout)) position.at(index(MeshAxis::pipeline)) = stage;
  return position;
}

int rank_at(const Layout& layout, const MeshCoordinates& coordinates) {
  const int stage = coordinates.at(index(MeshAxis::pipeline));
  int rank = has_stage_data(layout) ? first_rank(layout, stage) : 0;
  int stride = 1;
  for (const MeshAxis axis : layout.order) {
    if (axis == MeshAxis::pipeline && has_stage_data(layout)) break;
    rank += coordinates.at(index(axis)) * stride;
    stride *= degree_at(layout, axis, stage);
  }
  return rank;
}

int pipeline_stride(const Layout& layout) {
  MeshCoordinates next{};
  next.at(index(MeshAxis::pipeline)) = 1;
  return layout.pipeline > 1 ? rank_at(layout, next) : ranks(layout);
}

std::vector<int> group(const Layout& layout, int rank, MeshAxis axis) {
  MeshCoordinates position = coordinates(layout, rank);
  std::vector<int> members;
  const auto stage = static_cast<std::size_t>(MeshAxis::pipeline);
  const int replica = position.at(index(MeshAxis::data));
  for (int i = 0; i < degree_at(layout, axis, position.at(stage)); ++i) {
    position.at(index(axis)) = i;
    if (axis == MeshAxis::pipeline && replica >= data_degree(layout, i)) continue;
    members.push_back(rank_at(layout, position));
  }
  return members;
}

const std::vector<std::string>& sharding_names() {
  static const std::vector<std::string> names{"none", "zero1", "zero2", "zero3", "fsdp", "hsdp"};
  return names;
}

int state_shards(const Layout& layout) {
  if (layout.data.sharding == Sharding::hsdp) return layout.data.shard;
  return layout.data.sharding == Sharding::none ? 1 : layout.data.degree;
}

bool shards_weights(const Layout& layout) {
  return state_shards(layout) > 1 && layout.data.sharding >= Sharding::zero3;
}

bool gathers_in_actions(const Layout& layout) { return shards_weights(layout) && layout.data.reshard_after_forward; }

bool reduces_in_actions(const Layout& layout) {
  return state_shards(layout) > 1 && layout.data.reduces_each_microbatch;
}

int inside_shards(const DataLayout& data) { return std::max({1, data.secondary_shard, data.quantized_gradients}); }

namespace {

// Of the data axis, in groups of so many: the rank's neighbours, and those at its place in each group.
std::vector<int> neighbours(const Layout& layout, int rank, int count) {
  const std::vector<int> all = group(layout, rank, MeshAxis::data);
  const auto position = std::ranges::find(all, rank) - all.begin();
  const auto first = all.begin() + position / count * count;
  return {first, first + count};
}

std::vector<int> in_other_groups(const Layout& layout, int rank, int count) {
  const std::vector<int> all = group(layout, rank, MeshAxis::data);
  const auto step = static_cast<std::size_t>(count);
  const auto position = static_cast<std::size_t>(std::ranges::find(all, rank) - all.begin());
  std::vector<int> found;
  for (std::size_t at = position % step; at < all.size(); at += step) found.push_back(all[at]);
  return found;
}

// Of a grid, or of one whose moves go in pieces.
std::string kind_and_depth(const TensorLayout& tensor) {
  if (!is_grid(tensor)) return tensor.asynchronous ? "·async" : "";
  const std::string depth = tensor.depth > 1 ? "·depth" + std::to_string(tensor.depth) : "";
  const std::string choice = tensor.asynchronous ? "·async" : tensor.reshard_after_forward ? "·reshard" : "";
  return "·" + name_of(tensor.kind) + depth + choice;
}

std::string zero_plus_plus(const DataLayout& data) {
  std::string text = data.quantized_weights ? "·qwZ" : "";
  if (data.secondary_shard > 0) text += "·hpZ" + std::to_string(data.secondary_shard);
  if (data.quantized_gradients > 0) text += "·qgZ" + std::to_string(data.quantized_gradients);
  return text;
}

}  // namespace

std::vector<int> shard_group(const Layout& layout, int rank) {
  if (layout.data.sharding != Sharding::hsdp) return group(layout, rank, MeshAxis::data);
  return neighbours(layout, rank, layout.data.shard);
}

std::vector<int> replicate_group(const Layout& layout, int rank) {
  if (layout.data.sharding != Sharding::hsdp) return {rank};
  return in_other_groups(layout, rank, layout.data.shard);
}

std::vector<int> inside_group(const Layout& layout, int rank) {
  return neighbours(layout, rank, inside_shards(layout.data));
}

std::vector<int> across_group(const Layout& layout, int rank) {
  return in_other_groups(layout, rank, inside_shards(layout.data));
}

std::string describe(const Layout& layout) {
  const auto abbreviation = [](MeshAxis axis) {
    switch (axis) {
      case MeshAxis::tensor:
        return "tp";
      case MeshAxis::context:
        return "cp";
      case MeshAxis::expert:
        return "ep";
      case MeshAxis::data:
        return "dp";
      case MeshAxis::pipeline:
        return "pp";
    }
    return "";
  };
  constexpr std::array<MeshAxis, 5> shown = {MeshAxis::pipeline, MeshAxis::tensor, MeshAxis::context, MeshAxis::expert,
                                             MeshAxis::data};
  std::string text;
  for (const MeshAxis axis : shown) {
    if (degree(layout, axis) == 1) continue;
    if (!text.empty()) text += "·";
    text += abbreviation(axis);
    if (axis == MeshAxis::data && has_stage_data(layout)) {
      for (const int degree : layout.stage_data) text += (text.back() == 'p' ? "" : "-") + std::to_string(degree);
    } else {
      text += std::to_string(degree(layout, axis));
    }
    if (axis == MeshAxis::tensor) text += kind_and_depth(layout.tensor);
  }
  if (layout.vocabulary_barriers > 0) text += "·vocabulary" + std::to_string(layout.vocabulary_barriers);
  if (state_shards(layout) > 1) text += "·" + name_of(layout.data.sharding);
  if (state_shards(layout) > 1 && layout.data.sharding == Sharding::hsdp) {
    text += std::to_string(layout.data.shard) + "x" + std::to_string(layout.data.replicate);
  }
  text += zero_plus_plus(layout.data);
  return text.empty() ? "single" : text;
}

}  // namespace plumb

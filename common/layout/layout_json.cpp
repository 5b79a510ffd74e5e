#include "common/layout/layout_json.hpp"

#include "common/base/document/json_fields.hpp"

namespace plumb {

static std::vector<std::string> enum_names(MeshAxis) { return {"tensor", "context", "expert", "data", "pipeline"}; }
static std::vector<std::string> enum_names(TensorKind) { return tensor_kind_names(); }
static std::vector<std::string> enum_names(Sharding) { return sharding_names(); }

template <class Archive>
static void fields(Archive& archive, TensorLayout& x) {
  archive("degree", x.degree);
  archive("kind", x.kind);
  archive("depth", x.depth);
  archive("sequence_parallel", x.sequence_parallel);
  archive("asynchronous", x.asynchronous);
}

// A key that only such plans have.
template <class Archive>
static void only_where_true(Archive& archive, const char* key, bool& value) {
  std::optional<bool> there;
  if (value) there = true;
  archive(key, there);
  value = there.value_or(false);
}

template <class Archive>
static void fields(Archive& archive, DataLayout& x) {
  archive("degree", x.degree);
  archive("sharding", x.sharding);
  archive("shard", x.shard);
  archive("replicate", x.replicate);
  only_where_true(archive, "reshard_after_forward", x.reshard_after_forward);
  only_where_true(archive, "reduces_each_microbatch", x.reduces_each_microbatch);
}

template <class Archive>
static void fields(Archive& archive, Layout& x) {
  archive("order", x.order);
  archive("pipeline", x.pipeline);
  archive("tensor", x.tensor);
  archive("data", x.data);
  archive("context", x.context);
  archive("expert", x.expert);
  std::optional<std::vector<int>> by_stage;  // a key that only such plans have
  if (has_stage_data(x)) by_stage = x.stage_data;
  archive("data_by_stage", by_stage);
  if (by_stage) x.stage_data = *by_stage;
}

Json to_json(const Layout& layout) { return write_fields(layout); }

Layout layout_from_json(const JsonValue& value) {
  Layout layout = read_fields<Layout>(value);
  try {
    require_consistent(layout);
  } catch (const InputError& error) {
    value.fail(error.problem());
  }
  return layout;
}

}  // namespace plumb

#include "common/layout/layout_json.hpp"

#include "common/base/document/json_fields.hpp"
#include "common/base/document/json_lister.hpp"

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
  archive.unless_usual("reshard_after_forward", x.reshard_after_forward);
}

template <class Archive>
static void fields(Archive& archive, DataLayout& x) {
  archive("degree", x.degree);
  archive("sharding", x.sharding);
  archive("shard", x.shard);
  archive("replicate", x.replicate);
  archive.unless_usual("reshard_after_forward", x.reshard_after_forward);
  archive.unless_usual("prefetch", x.prefetch, 1);
  archive.unless_usual("layers_per_unit", x.layers_per_unit, 1);
  archive.unless_usual("reduces_each_microbatch", x.reduces_each_microbatch);
  archive.unless_usual("quantized_weights", x.quantized_weights);
  archive.unless_usual("secondary_shard", x.secondary_shard);
  archive.unless_usual("quantized_gradients", x.quantized_gradients);
}

template <class Archive>
static void fields(Archive& archive, Layout& x) {
  archive("order", x.order);
  archive("pipeline", x.pipeline);
  archive("tensor", x.tensor);
  archive("data", x.data);
  archive("context", x.context);
  archive("expert", x.expert);
  archive.unless_usual("data_by_stage", x.stage_data);
  archive.unless_usual("vocabulary_barriers", x.vocabulary_barriers);
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

std::vector<JsonTable> layout_tables() { return list_fields<Layout>("layout"); }

}  // namespace plumb

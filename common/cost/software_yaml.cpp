#include "common/cost/software_yaml.hpp"

namespace plumb {

const std::vector<std::string>& software_names() {
  static const std::vector<std::string> names = {"megatron-2021", "megatron-2022",   "zero-bubble-2023",
                                                 "megatron-2024", "torchtitan-2025", "plumb"};
  return names;
}

const std::vector<std::string>& exchange_names() {
  static const std::vector<std::string> names = {"asynchronous", "synchronous"};
  return names;
}

const std::vector<std::string>& recompute_unit_names() {
  static const std::vector<std::string> names = {"stage", "layer"};
  return names;
}

static GradientBucket read_bucket(const YamlValue& block) {
  GradientBucket bucket{.bytes = {}};
  if (const auto bytes = block.find("bytes")) bucket.bytes = bytes->bytes();
  if (const auto count = block.find("parameters")) bucket.parameters = count->integer();
  if (const auto count = block.find("parameters_per_rank")) bucket.parameters_per_rank = count->integer();
  if (const auto first = block.find("first_stage_only")) bucket.first_stage_only = first->boolean();
  const bool counted = bucket.parameters > 0 || bucket.parameters_per_rank > 0;
  if (counted == (bucket.bytes > Bytes{})) {
    block.fail(block.path() + ": expected either bytes, or parameters and parameters_per_rank",
               "data_bucket: {bytes: 25 MiB}, or {parameters: 40000000, parameters_per_rank: 1000000}");
  }
  return bucket;
}

Software read_software(const YamlValue& block) {
  check_fields(software_block(), block);
  return read_software(
      block, {.name = block.require("name").text(), .source = block.require("source").text(), .composed = false});
}

Software read_software(const YamlValue& block, Software base) {
  Software software = std::move(base);
  InputErrors errors;
  check_fields({BlockShape{.block = &software_block(), .partial = true}}, block, errors);
  errors.throw_if_any();
  if (const auto name = block.find("name")) software.name = name->text();
  if (const auto source = block.find("source")) software.source = source->text();
  const auto flag = [&](const char* key, bool& value) {
    if (const auto given = block.find(key)) value = given->boolean();
  };
  flag("composed", software.composed);
  flag("eager", software.eager);
  flag("eager_norms", software.eager_norms);
  flag("dropout", software.dropout);
  flag("fused_projections", software.fused_projections);
  flag("fused_weight_gradient", software.fused_weight_gradient);
  flag("tensor_overlap", software.tensor_overlap);
  flag("scattered_messages", software.scattered_messages);
  flag("data_overlap", software.data_overlap);
  flag("copies_overlap", software.copies_overlap);
  flag("post_validation", software.post_validation);
  if (const auto bucket = block.find("data_bucket")) software.data_bucket = read_bucket(*bucket);
  if (const auto attention = block.find("attention")) {
    software.flash_attention = attention->choice({"flash", "unfused"}) == 0;
  }
  if (const auto gradients = block.find("gradients")) {
    software.gradients = static_cast<ElementType>(gradients->choice(training_precision_names()));
  }
  if (const auto exchange = block.find("exchange")) {
    software.exchange = static_cast<PipelineExchange>(exchange->choice(exchange_names()));
  }
  if (const auto unit = block.find("recompute_unit")) {
    software.recompute_unit = static_cast<RecomputeUnit>(unit->choice(recompute_unit_names()));
  }
  if (const auto bytes = block.find("optimizer_bytes")) software.optimizer_bytes = bytes->number();
  if (const auto hidden = block.find("hidden_in_pairs")) software.hidden_in_pairs = hidden->number();
  if (const auto overhead = block.find("step_overhead")) software.step_overhead = overhead->seconds();
  return software;
}

}  // namespace plumb

// Weights from files that transformers has written, element by element, and what is refused of altered ones.
#include "exec/data/pretrained_weights.hpp"

#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "common/base/error.hpp"
#include "common/model/files/config_json.hpp"
#include "exec/data/safetensors.hpp"
#include "exec/stage/primitives/block_parameters.hpp"
#include "tests/catch.hpp"
#include "tests/exec/temporary_folder.hpp"

using namespace plumb;
using namespace plumb::exec;
using nlohmann::json;

namespace {

namespace fs = std::filesystem;

fs::path checkpoint(const std::string& name) { return fs::path(PLUMB_SOURCE_DIR) / "tests/data/hugging_face" / name; }

Model model_of(const std::string& name) { return read_config_json(checkpoint(name) / "config.json"); }

Parameter parameter_of(const Model& model, const std::string& name) {
  const std::vector<Parameter> all = all_parameters(model, std::nullopt);
  return *std::find_if(all.begin(), all.end(), [&](const Parameter& each) { return each.name == name; });
}

std::vector<float> values(const PretrainedWeights& weights, const Parameter& parameter,
                          const std::vector<IndexRange>& ranges) {
  std::size_t count = 0;
  for (const IndexRange& range : ranges) count += static_cast<std::size_t>(range.end - range.begin);
  std::vector<float> read(count);
  weights.read(parameter, ranges, read);
  return read;
}

// By the format's own description alone.
std::vector<float> tensor(const fs::path& file, const std::string& name) {
  const std::string bytes = read_file(file);
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  const json entry = json::parse(bytes.substr(8, length)).at(name);
  const std::size_t begin = entry.at("data_offsets").at(0);
  const std::size_t end = entry.at("data_offsets").at(1);
  std::vector<float> floats((end - begin) / sizeof(float));
  std::memcpy(floats.data(), bytes.data() + 8 + length + begin, end - begin);
  return floats;
}

std::vector<NamedTensor> tensors_of(const fs::path& path) {
  const SafetensorsFile file(path);
  std::vector<NamedTensor> all;
  for (const auto& [name, stored] : file.tensors()) {
    all.push_back({name, stored.shape, std::vector<float>(static_cast<std::size_t>(stored.elements))});
    file.read(stored, 0, all.back().values);
  }
  return all;
}

NamedTensor& named(std::vector<NamedTensor>& tensors, const std::string& name) {
  return *std::find_if(tensors.begin(), tensors.end(), [&](const NamedTensor& each) { return each.name == name; });
}

std::string refusal(const fs::path& path, const Model& model) {
  try {
    const PretrainedWeights weights(path, model);
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

// Of GPT-2's tensors once `edit` has changed them.
std::string refusal_of_edited(const std::function<void(std::vector<NamedTensor>&)>& edit) {
  const TemporaryFolder folder;
  std::vector<NamedTensor> tensors = tensors_of(checkpoint("gpt2") / "model.safetensors");
  edit(tensors);
  return refusal(folder.write("edited.safetensors", to_safetensors(std::move(tensors), ElementType::fp32, {})),
                 model_of("gpt2"));
}

}  // namespace

TEST_CASE("ranges of a transposed and fused matrix come in the parameter's order") {
  const Model model = model_of("gpt2");
  const PretrainedWeights weights(checkpoint("gpt2"), model);
  const std::int64_t hidden = model.hidden;
  const std::vector<float> fused =
      tensor(checkpoint("gpt2") / "model.safetensors", "transformer.h.1.attn.c_attn.weight");
  // Of [hidden, 3 · hidden]: row of k's matrix r, column c.
  const auto element = [&](std::int64_t index) {
    const std::int64_t row = index / hidden;
    const std::int64_t column = index % hidden;
    return fused[static_cast<std::size_t>(column * 3 * hidden + hidden + row)];
  };
  const Parameter key = parameter_of(model, "layers.1.attention.k.weight");
  for (const std::vector<IndexRange>& ranges :
       {std::vector<IndexRange>{{0, hidden * hidden}}, std::vector<IndexRange>{{5, 20}, {100, 131}, {131, 132}},
        std::vector<IndexRange>{{hidden - 1, hidden}}, std::vector<IndexRange>{}}) {
    std::vector<float> expected;
    for (const IndexRange& range : ranges) {
      for (std::int64_t index = range.begin; index < range.end; ++index) expected.push_back(element(index));
    }
    CHECK(values(weights, key, ranges) == expected);
  }
  // A part of the columns of every row, as a tensor group has it.
  std::vector<IndexRange> columns;
  std::vector<float> expected;
  for (std::int64_t row = 0; row < hidden; ++row) {
    columns.push_back({row * hidden + 4, row * hidden + 8});
    for (std::int64_t index = columns.back().begin; index < columns.back().end; ++index) {
      expected.push_back(element(index));
    }
  }
  CHECK(values(weights, key, columns) == expected);
}

TEST_CASE("experts lie in a tensor each, a range may reach over several") {
  const Model model = model_of("mixtral");
  const PretrainedWeights weights(checkpoint("mixtral"), model);
  const Parameter down = parameter_of(model, "layers.1.mlp.experts.down.weight");
  const std::int64_t each = down.shape[1] * down.shape[2];
  std::vector<float> all;
  for (std::int64_t expert = 0; expert < down.shape[0]; ++expert) {
    const std::vector<float> one = tensor(checkpoint("mixtral") / "model.safetensors",
                                          checkpoint_pieces(model, down)[static_cast<std::size_t>(expert)].tensor);
    REQUIRE(static_cast<std::int64_t>(one.size()) == each);
    all.insert(all.end(), one.begin(), one.end());
  }
  CHECK(values(weights, down, {{0, elements(down)}}) == all);
  const std::vector<float> across(all.begin() + each - 3, all.begin() + 2 * each + 5);
  CHECK(values(weights, down, {{each - 3, 2 * each + 5}}) == across);
}

TEST_CASE("an index leads to the file of each tensor") {
  const Model model = model_of("mistral");
  const PretrainedWeights weights(checkpoint("mistral"), model);
  CHECK(weights.files().size() > 1);
  const json index = json::parse(read_file(checkpoint("mistral") / "model.safetensors.index.json"));
  for (const char* const layer : {"0", "1"}) {
    const std::string name = std::string("model.layers.") + layer + ".mlp.up_proj.weight";
    const Parameter up = parameter_of(model, std::string("layers.") + layer + ".mlp.up.weight");
    CHECK(values(weights, up, {{0, elements(up)}}) ==
          tensor(checkpoint("mistral") / index.at("weight_map").at(name).get<std::string>(), name));
  }
}

TEST_CASE("a whole file goes before an index, as in transformers, and files that are read are named") {
  const TemporaryFolder folder;
  std::vector<NamedTensor> tensors;
  for (const auto& entry : fs::directory_iterator(checkpoint("mistral"))) {
    fs::copy(entry.path(), folder / entry.path().filename().string());
    if (entry.path().extension() != ".safetensors") continue;
    for (NamedTensor& each : tensors_of(entry.path())) tensors.push_back(std::move(each));
  }
  const Model model = model_of("mistral");
  const auto named_files = [&] {
    std::set<std::string> names;
    for (const std::string& file : PretrainedWeights(folder / "", model).files()) {
      names.insert(fs::path(file).filename().string());
    }
    return names;
  };
  CHECK(named_files().contains("config.json"));
  CHECK(named_files().contains("model.safetensors.index.json"));
  named(tensors, "model.norm.weight").values.front() = 17;
  (void)folder.write("model.safetensors", to_safetensors(std::move(tensors), ElementType::fp32, {}));
  CHECK(named_files() == std::set<std::string>{"config.json", "model.safetensors"});
  const PretrainedWeights weights(folder / "", model);
  CHECK(values(weights, parameter_of(model, "final_norm.weight"), {{0, 1}}) == std::vector<float>{17});
}

TEST_CASE("an index that does not hold is refused by its tensor or file") {
  const TemporaryFolder folder;
  for (const auto& entry : fs::directory_iterator(checkpoint("mistral"))) {
    fs::copy(entry.path(), folder / entry.path().filename().string());
  }
  const Model model = model_of("mistral");
  const std::string path = folder / "model.safetensors.index.json";
  const json whole = json::parse(read_file(path));
  const auto with_file = [&](const std::string& tensor_name, const std::string& file) {
    json index = whole;
    index["weight_map"][tensor_name] = file;
    write_file(path, index.dump());
    return refusal(folder / "", model);
  };
  const std::string norm = "model.norm.weight";
  const std::string home = whole.at("weight_map").at(norm);
  CHECK(with_file(norm, home) == "no error");
  CHECK_THAT(with_file("model.other.weight", home), ContainsSubstring("'model.other.weight', which is not there"));
  CHECK_THAT(with_file(norm, "../" + home), ContainsSubstring("no file beside it"));
  for (const std::string name : {"", ".", "..", "/etc/passwd", ".hidden"}) {
    CHECK_THAT(with_file(norm, name), ContainsSubstring("names '" + name + "', which is no file beside it"));
  }
  CHECK_THAT(with_file(norm, "gone.safetensors"), ContainsSubstring("gone.safetensors"));
  write_file(path, R"({"weight_map": 3})");
  CHECK_THAT(refusal(folder / "", model), ContainsSubstring("weight_map"));
}

TEST_CASE("a checkpoint of the model without its head has no prefix, and buffers are passed over") {
  const std::string error = refusal_of_edited([](std::vector<NamedTensor>& tensors) {
    for (NamedTensor& each : tensors) each.name = each.name.substr(std::string("transformer.").size());
    tensors.push_back({"h.0.attn.bias", {1, 1, 2, 2}, {1, 0, 1, 1}});
  });
  CHECK(error == "no error");
}

TEST_CASE("a tensor that is missing, of another shape or type, or nobody's is named") {
  CHECK(refusal_of_edited([](std::vector<NamedTensor>&) {}) == "no error");
  CHECK_THAT(refusal_of_edited([](std::vector<NamedTensor>& tensors) {
               named(tensors, "transformer.h.1.ln_2.bias").name = "transformer.h.1.ln_3.bias";
             }),
             ContainsSubstring("has no tensor 'transformer.h.1.ln_2.bias' (layers.1.norm_2.bias of the model)"));
  CHECK_THAT(refusal_of_edited([](std::vector<NamedTensor>& tensors) {
               std::vector<std::int64_t>& shape = named(tensors, "transformer.h.0.mlp.c_fc.weight").shape;
               std::swap(shape[0], shape[1]);
             }),
             ContainsSubstring("tensor 'transformer.h.0.mlp.c_fc.weight'") &&
                 ContainsSubstring("has the shape [64, 16], expected [16, 64]"));
  CHECK_THAT(
      refusal_of_edited([](std::vector<NamedTensor>& tensors) {
        tensors.push_back({"transformer.h.0.attn.extra.bias", {1}, {0}});
      }),
      ContainsSubstring("tensor 'transformer.h.0.attn.extra.bias'") && ContainsSubstring("belongs to no parameter"));
  const TemporaryFolder folder;
  std::string file = read_file(checkpoint("gpt2") / "model.safetensors");
  const std::size_t type = file.find("F32", file.find("wpe.weight"));
  const std::string whole = file;
  CHECK_THAT(refusal(folder.write("integers.safetensors", file.replace(type, 1, "I")), model_of("gpt2")),
             ContainsSubstring("wpe.weight") && ContainsSubstring("of the type I32"));
  CHECK_THAT(refusal(folder.write("cut.safetensors", whole.substr(0, whole.size() - 7)), model_of("gpt2")),
             ContainsSubstring("cut.safetensors"));
  CHECK_THAT(refusal(folder / "", model_of("gpt2")), ContainsSubstring("has neither model.safetensors nor"));
  CHECK_THAT(refusal(folder / "none.safetensors", model_of("gpt2")), ContainsSubstring("none.safetensors"));
}

TEST_CASE("a value that is no number, or infinite, is named by its file, tensor and element where it is read") {
  const TemporaryFolder folder;
  const Model model = model_of("gpt2");
  const Parameter key = parameter_of(model, "layers.1.attention.k.weight");
  for (const float lost : {std::nanf(""), -std::numeric_limits<float>::infinity()}) {
    std::vector<NamedTensor> tensors = tensors_of(checkpoint("gpt2") / "model.safetensors");
    // Of q, k and v in one, transposed: k's first column.
    const auto element = static_cast<std::size_t>(2 * 3 * model.hidden + model.hidden);
    named(tensors, "transformer.h.1.attn.c_attn.weight").values[element] = lost;
    const PretrainedWeights weights(
        folder.write("lost.safetensors", to_safetensors(std::move(tensors), ElementType::fp32, {})), model);
    CHECK_THROWS_WITH(
        values(weights, key, {{0, elements(key)}}),
        ContainsSubstring("lost.safetensors: tensor 'transformer.h.1.attn.c_attn.weight'") &&
            ContainsSubstring((std::isnan(lost) ? "is no number at element " : "is infinite at element ") +
                              std::to_string(element)));
    CHECK_NOTHROW(values(weights, parameter_of(model, "layers.0.attention.k.weight"), {{0, elements(key)}}));
  }
}

TEST_CASE("files by plumb's own names are read by these") {
  const TemporaryFolder folder;
  const Model model = model_of("llama");
  std::vector<NamedTensor> tensors;
  for (const Parameter& parameter : all_parameters(model, std::nullopt)) {
    tensors.push_back(
        {parameter.name, parameter.shape, std::vector<float>(static_cast<std::size_t>(elements(parameter)))});
    for (std::size_t i = 0; i < tensors.back().values.size(); ++i) tensors.back().values[i] = static_cast<float>(i);
  }
  Model block = model;
  block.hugging_face.reset();
  const std::string path = folder.write("own.safetensors", to_safetensors(tensors, ElementType::fp32, {}));
  const PretrainedWeights weights(path, block);
  CHECK(values(weights, parameter_of(block, "layers.1.mlp.down.weight"), {{2, 5}, {7, 8}}) ==
        std::vector<float>{2, 3, 4, 7});
  const auto refused = [&](const std::vector<NamedTensor>& without) {
    return refusal(folder.write("less.safetensors", to_safetensors(without, ElementType::fp32, {})), block);
  };
  NamedTensor head = std::move(tensors.back());
  tensors.pop_back();
  CHECK_THAT(refused(tensors),
             ContainsSubstring("has no tensor 'head.weight'") && ContainsSubstring("a checkpoint without a head"));
  tensors.back() = std::move(head);  // instead of the norm before it
  CHECK_THAT(refused(tensors),
             ContainsSubstring("has no tensor 'final_norm.weight'") && !ContainsSubstring("without a head"));
  CHECK_THAT(refusal(checkpoint("llama"), block), ContainsSubstring("was read from no config.json"));
}

TEST_CASE("the config.json beside the weights must describe the plan's model") {
  const fs::path folder = checkpoint("llama");
  Model block = model_of("llama");
  const std::optional<HuggingFaceConfig> config = block.hugging_face;
  block.hugging_face.reset();
  block.name = "ours";
  block.max_positions = 17;  // of no parameter's shape here
  CHECK(model_in_checkpoint(block, folder).hugging_face == config);
  CHECK(model_in_checkpoint(block, folder / "model.safetensors").hugging_face == config);
  CHECK(model_in_checkpoint(block, folder).name == "ours");
  const auto refused = [&](const Model& model) {
    try {
      (void)model_in_checkpoint(model, folder);
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  Model wider = block;
  std::get<DenseMlp>(wider.layers[1].mlp).width = 25;
  CHECK_THAT(refused(wider), ContainsSubstring("layers/1/mlp/width is 24, in the plan 25"));
  Model other_epsilon = block;
  other_epsilon.arithmetic.norm_epsilon.reset();
  CHECK_THAT(refused(other_epsilon), ContainsSubstring("norm_epsilon is 0.02, in the plan not there"));
  const TemporaryFolder empty;
  CHECK_FALSE(model_in_checkpoint(block, empty / "weights.safetensors").hugging_face);
}

#include "exec/data/pretrained_weights.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "common/base/digest.hpp"
#include "common/base/document/json.hpp"
#include "common/base/error.hpp"
#include "common/base/excerpt.hpp"
#include "common/base/files.hpp"
#include "common/base/plain_name.hpp"
#include "common/model/files/config_json.hpp"
#include "common/model/files/model_json.hpp"
#include "exec/data/safetensors.hpp"
#include "exec/stage/primitives/block_parameters.hpp"

namespace plumb::exec {
namespace {

namespace fs = std::filesystem;

bool is_there(const fs::path& path) {
  std::error_code none;
  return fs::exists(path, none);
}

bool is_folder(const fs::path& path) {
  std::error_code none;
  return fs::is_directory(path, none);
}

fs::path config_beside(const fs::path& path) { return (is_folder(path) ? path : path.parent_path()) / "config.json"; }

void require_same(const Model& plan, const Model& checkpoint, const fs::path& config) {
  const Json difference = Json::diff(arithmetic_json(plan), arithmetic_json(checkpoint));
  if (difference.empty()) return;
  const std::string where = difference.front().at("path").get<std::string>();
  const auto value = [&](const Model& model) {
    const Json all = arithmetic_json(model);
    const Json::json_pointer pointer(where);
    return all.contains(pointer) ? excerpt(all.at(pointer).dump()) : "not there";
  };
  throw InputError(config.string(),
                   "describes another model than the plan's: " + where.substr(1) + " is " + value(checkpoint) +
                       ", in the plan " + value(plan),
                   "plan with model: " + config.string());
}

TensorPiece own_piece(const Parameter& parameter) {
  return {.tensor = parameter.name,
          .shape = parameter.shape,
          .rows = 1,
          .columns = elements(parameter),
          .row_step = elements(parameter)};
}

std::int64_t rounded_up(std::int64_t value, std::int64_t by) { return (value + by - 1) / by; }

// Ranges of a parameter's elements, and where the values of each begin in a list of all.
struct Wanted {
  std::span<const IndexRange> ranges;
  std::vector<std::int64_t> begins = {};
};

// Of each range what lies in the piece: elements [begin, end) counted in it, to where in the list.
template <class Take>
void for_each_part(const TensorPiece& piece, const Wanted& wanted, const Take& take) {
  for (std::size_t i = 0; i < wanted.ranges.size(); ++i) {
    const IndexRange& range = wanted.ranges[i];
    const std::int64_t begin = std::max(range.begin, piece.first);
    const std::int64_t end = std::min(range.end, piece.first + piece.rows * piece.columns);
    if (begin < end) take(begin - piece.first, end - piece.first, wanted.begins[i] + begin - range.begin);
  }
}

// Rows behind each other in a column of the file: of every column the rows between the first and the last that any
// range wants are read at once.
template <class Read>
void take_transposed(const TensorPiece& piece, const Wanted& wanted, std::span<float> values, const Read& read) {
  std::vector<float> run;
  for (std::int64_t column = 0; column < piece.columns; ++column) {
    const auto row_from = [&](std::int64_t element) {
      return rounded_up(std::max<std::int64_t>(element - column, 0), piece.columns);
    };
    std::int64_t first = piece.rows;
    std::int64_t last = 0;
    for_each_part(piece, wanted, [&](std::int64_t begin, std::int64_t end, std::int64_t) {
      if (row_from(begin) >= row_from(end)) return;
      first = std::min(first, row_from(begin));
      last = std::max(last, row_from(end));
    });
    if (first >= last) continue;
    run.resize(static_cast<std::size_t>(last - first));
    read(piece.offset + column * piece.column_step + first, std::span(run));
    for_each_part(piece, wanted, [&](std::int64_t begin, std::int64_t end, std::int64_t to) {
      for (std::int64_t row = row_from(begin); row < row_from(end); ++row) {
        values[static_cast<std::size_t>(to + row * piece.columns + column - begin)] =
            run[static_cast<std::size_t>(row - first)];
      }
    });
  }
}

template <class Read>
void take(const TensorPiece& piece, const Wanted& wanted, std::span<float> values, const Read& read) {
  const bool in_order = piece.column_step == 1 && (piece.rows == 1 || piece.row_step == piece.columns);
  if (!in_order && piece.row_step != 1) {
    throw RunError("tensor " + piece.tensor, "lies in neither order of its elements");
  }
  if (!in_order) return take_transposed(piece, wanted, values, read);
  for_each_part(piece, wanted, [&](std::int64_t begin, std::int64_t end, std::int64_t to) {
    read(piece.offset + begin, values.subspan(static_cast<std::size_t>(to), static_cast<std::size_t>(end - begin)));
  });
}

}  // namespace

Model model_in_checkpoint(const Model& model, const fs::path& path) {
  const fs::path config = config_beside(path);
  Model known = model;
  if (is_there(config)) {
    const Model checkpoint = read_config_json(config);
    require_same(model, checkpoint, config);
    known.hugging_face = checkpoint.hugging_face;
  }
  if (known.hugging_face) {
    require_computed(*known.hugging_face, is_there(config) ? config.string() : "config.json of model " + model.name);
  }
  return known;
}

PretrainedWeights::PretrainedWeights(const fs::path& path, const Model& model) : model_(model), path_(path.string()) {
  open(path);
  if (const fs::path config = config_beside(path); is_there(config)) beside_.push_back(config.string());
  const std::vector<Parameter> parameters = all_parameters(model, std::nullopt);
  own_names_ = tensors_.contains(parameters.front().name);
  if (!own_names_) {
    const std::string prefix = checkpoint_prefix(model);
    const bool has_prefix =
        std::ranges::any_of(tensors_, [&](const auto& each) { return each.first.starts_with(prefix); });
    if (!has_prefix) left_out_prefix_ = prefix;
  }
  require_all_there(parameters);
  require_no_others(parameters);
  std::string all;
  for (const auto& [name, place] : tensors_) {
    all += name + place.tensor->type + shape_text(place.tensor->shape) + std::to_string(place.tensor->begin) + "\n";
  }
  digest_ = plumb::digest(all);
}

void PretrainedWeights::open(const fs::path& path) {
  if (!is_folder(path)) return path.extension() == ".json" ? open_index(path) : add(path);
  // In transformers' order.
  if (is_there(path / weights_file)) return add(path / weights_file);
  if (is_there(path / weights_index_file)) return open_index(path / weights_index_file);
  throw InputError(path.string(), std::string("has neither ") + weights_file + " nor " + weights_index_file,
                   is_there(path / "pytorch_model.bin") ? "save it as safetensors: model.save_pretrained(FOLDER)" : "");
}

void PretrainedWeights::open_index(const fs::path& path) {
  beside_.push_back(path.string());
  const std::string text = read_file(path);
  const Json json = parse_json(text, path.string());
  const JsonValue map = JsonValue(json, path.string(), "", text).at("weight_map");
  if (!map.raw().is_object()) map.fail("is no object of tensors and their files");
  std::set<std::string> names;
  for (const auto& [tensor, file] : map.raw().items()) names.insert(map.at(tensor).text());
  for (const std::string& name : names) {
    if (!is_plain_name(name)) map.fail("names '" + excerpt(name) + "', which is no file beside it");
    add(path.parent_path() / name);
  }
  for (const auto& [tensor, file] : map.raw().items()) {
    const auto found = tensors_.find(tensor);
    if (found != tensors_.end() && found->second.file->path().filename() == map.at(tensor).text()) continue;
    throw InputError(path.string(), "says that " + map.at(tensor).text() + " has the tensor '" + excerpt(tensor) +
                                        "', which is not there");
  }
}

void PretrainedWeights::add(const fs::path& path) {
  const auto& file = files_.emplace_back(std::make_unique<SafetensorsFile>(path));
  for (const auto& [name, tensor] : file->tensors()) {
    if (tensors_.emplace(name, Place{.file = file.get(), .tensor = &tensor}).second) continue;
    throw InputError(path.string(), "has the tensor '" + excerpt(name) + "', and so has another file of " + path_);
  }
}

std::string PretrainedWeights::name_here(const std::string& tensor) const {
  return tensor.starts_with(left_out_prefix_) ? tensor.substr(left_out_prefix_.size()) : tensor;
}

std::vector<TensorPiece> PretrainedWeights::pieces(const Parameter& parameter) const {
  if (own_names_) return {own_piece(parameter)};
  std::vector<TensorPiece> all = checkpoint_pieces(model_, parameter);
  for (TensorPiece& piece : all) piece.tensor = name_here(piece.tensor);
  return all;
}

void PretrainedWeights::require_all_there(const std::vector<Parameter>& parameters) const {
  const std::vector<Parameter> head = head_parameters(model_);
  for (const Parameter& parameter : parameters) {
    for (const TensorPiece& piece : pieces(parameter)) {
      const auto found = tensors_.find(piece.tensor);
      if (found == tensors_.end()) {
        throw InputError(path_, "has no tensor '" + piece.tensor + "' (" + parameter.name + " of the model)",
                         std::ranges::find(head, parameter.name, &Parameter::name) != head.end()
                             ? "a checkpoint without a head cannot be trained: save it with one"
                             : "");
      }
      const StoredTensor& tensor = *found->second.tensor;
      const std::string where = found->second.file->path().string() + ": tensor '" + piece.tensor + "'";
      if (tensor.shape != piece.shape) {
        throw InputError(where, "has the shape " + shape_text(tensor.shape) + ", expected " + shape_text(piece.shape));
      }
      if (tensor.type == "F32" || tensor.type == "BF16" || tensor.type == "F16") continue;
      throw InputError(where, "is of the type " + tensor.type + ", expected F32, BF16 or F16");
    }
  }
}

void PretrainedWeights::require_no_others(const std::vector<Parameter>& parameters) const {
  std::set<std::string> known;
  for (const Parameter& parameter : parameters) {
    for (const TensorPiece& piece : pieces(parameter)) known.insert(piece.tensor);
  }
  for (const auto& [name, place] : tensors_) {
    if (known.contains(name) || (!own_names_ && is_beside_parameters(model_, name))) continue;
    throw InputError(place.file->path().string() + ": tensor '" + excerpt(name) + "'",
                     "belongs to no parameter of model " + model_.name,
                     "a bias, a norm or a layer more: is it the plan's model?");
  }
}

void PretrainedWeights::read(const Parameter& parameter, std::span<const IndexRange> ranges,
                             std::span<float> values) const {
  Wanted wanted{.ranges = ranges};
  std::int64_t count = 0;
  for (const IndexRange& range : ranges) {
    wanted.begins.push_back(count);
    count += range.end - range.begin;
  }
  if (count != static_cast<std::int64_t>(values.size())) {
    throw RunError("parameter " + parameter.name,
                   "room for " + std::to_string(values.size()) + " values of " + std::to_string(count));
  }
  for (const TensorPiece& piece : pieces(parameter)) {
    const Place& place = tensors_.at(piece.tensor);
    take(piece, wanted, values, [&](std::int64_t first, std::span<float> out) {
      place.file->read(*place.tensor, first, out);
      place.file->require_finite(*place.tensor, first, out, "is it damaged, or was its training lost?");
    });
  }
}

std::vector<std::string> PretrainedWeights::files() const {
  std::vector<std::string> names = beside_;
  for (const auto& file : files_) names.push_back(file->path().string());
  return names;
}

}  // namespace plumb::exec

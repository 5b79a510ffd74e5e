#include "exec/checkpoint/checkpoint_index.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>

#include "common/base/digest.hpp"
#include "common/base/document/json.hpp"
#include "common/base/error.hpp"
#include "common/base/excerpt.hpp"
#include "common/base/plain_name.hpp"
#include "common/model/files/model_json.hpp"
#include "common/model/parameters.hpp"
#include "common/plan/parts_json.hpp"
#include "exec/checkpoint/crc32c.hpp"
#include "exec/stage/primitives/block_parameters.hpp"

namespace plumb::exec {
namespace {

constexpr std::string_view format_name = "plumb checkpoint";
constexpr std::size_t hex_digits = 8;
constexpr std::int64_t largest = std::numeric_limits<std::int64_t>::max();
// More than any training makes; so many steps of the largest batch are counted in 64 bits.
constexpr std::int64_t most_steps = 1'000'000'000;
constexpr std::int64_t most_updates = most_steps * 1'000'000;  // a step has one, or one for some of its microbatches

std::string hex(std::uint32_t value) { return fmt::format("{:08x}", value); }

std::int64_t count_from(const JsonValue& value, std::int64_t most) {
  const std::int64_t count = value.integer();
  if (count > most) value.fail(fmt::format("is {}, expected at most {}", count, most));
  return count;
}

std::uint32_t from_hex(std::string_view text, const JsonValue& where) {
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  if (!whole || text.size() != hex_digits) where.fail("is '" + excerpt(text) + "', expected 8 hexadecimal digits");
  return value;
}

// A line for each key, and one for each tensor and file: shorter than one for each number, and still to be read.
std::string in_lines(const Json& json) {
  std::string text = "{";
  for (const auto& [key, value] : json.items()) {
    text += (text.size() > 1 ? ",\n " : "\n ") + to_line(key) + ": ";
    const bool is_list = value.is_array() && !value.empty() && value.front().is_object();
    if (!is_list) {
      text += to_line(value);
      continue;
    }
    for (std::size_t i = 0; i < value.size(); ++i) text += (i == 0 ? "[\n  " : ",\n  ") + to_line(value[i]);
    text += "]";
  }
  return text + "\n}\n";
}

std::uint32_t checksum_of(const Json& json) {
  const std::string line = to_line(json);
  return crc32c(std::as_bytes(std::span(line)));
}

Json piece_json(const CheckpointPiece& piece) {
  Json runs = Json::array();
  for (const IndexRun& run : piece.runs) {
    Json numbers{run.begin, run.size};
    if (run.count > 1) numbers.insert(numbers.end(), {run.stride, run.count});
    runs.push_back(std::move(numbers));
  }
  std::string checksums;  // one text: of a large tensor there are thousands
  for (const std::uint32_t checksum : piece.checksums) checksums += hex(checksum);
  return {{"weight", piece.weight},
          {"state", name_of(piece.kind)},
          {"type", name_of(piece.type)},
          {"runs", std::move(runs)},
          {"crc32c", std::move(checksums)}};
}

Json file_json(const CheckpointFile& file) {
  Json pieces = Json::array();
  for (const CheckpointPiece& piece : file.pieces) pieces.push_back(piece_json(piece));
  return {{"name", file.name}, {"bytes", file.bytes}, {"pieces", std::move(pieces)}};
}

StateKind kind_from(const JsonValue& value) {
  const std::string name = value.text();
  for (const StateKind kind : {StateKind::weight, StateKind::first_moment, StateKind::second_moment}) {
    if (name_of(kind) == name) return kind;
  }
  value.fail("is '" + excerpt(name) + "'", did_you_mean(name, {"weight", "exp_avg", "exp_avg_sq"}));
}

ElementType type_from(const JsonValue& value) {
  const std::string name = value.text();
  if (name == name_of(ElementType::fp32)) return ElementType::fp32;
  if (name == name_of(ElementType::bf16)) return ElementType::bf16;
  value.fail("is '" + excerpt(name) + "'", did_you_mean(name, {"fp32", "bf16"}));
}

IndexRun run_from(const JsonValue& value) {
  const std::size_t numbers = value.size();
  if (numbers != 2 && numbers != 4) {
    value.fail("expected begin and size of a range, or with stride and count of ranges");
  }
  IndexRun run{.begin = value[0].integer(), .size = value[1].integer(1), .stride = 0, .count = 1};
  run.stride = numbers == 4 ? value[2].integer(1) : run.size;
  if (numbers == 4) run.count = value[3].integer(1);
  if (!is_within(run, largest)) value.fail("is no range of elements, or ranges that overlap");
  return run;
}

CheckpointPiece piece_from(const JsonValue& value) {
  value.require_only({"weight", "state", "type", "runs", "crc32c"});
  CheckpointPiece piece{
      .weight = value.at("weight").text(), .kind = kind_from(value.at("state")), .type = type_from(value.at("type"))};
  const JsonValue runs = value.at("runs");
  std::int64_t all = 0;
  std::int64_t end = 0;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const IndexRun run = run_from(runs[i]);
    if (run.begin < end) runs[i].fail("begins before the ranges ahead of it end");
    end = run.begin + (run.count - 1) * run.stride + run.size;
    all += run.count * run.size;  // at most `end`
    piece.runs.push_back(run);
  }
  if (all == 0) runs.fail("is empty");
  const JsonValue checksums = value.at("crc32c");
  const std::string text = checksums.text();
  const auto blocks = static_cast<std::size_t>((all - 1) / block_elements + 1);
  if (text.size() != blocks * hex_digits) {
    checksums.fail(fmt::format("has {} digits, expected {} of each of {} blocks", text.size(), hex_digits, blocks));
  }
  for (std::size_t at = 0; at < text.size(); at += hex_digits) {
    piece.checksums.push_back(from_hex(std::string_view(text).substr(at, hex_digits), checksums));
  }
  return piece;
}

// Nothing that leads out of the folder.
std::string file_name_from(const JsonValue& value) {
  const std::string name = value.text();
  if (!is_plain_name(name)) {
    value.fail("is '" + excerpt(name) + "', expected the name of a file in the checkpoint's folder");
  }
  return name;
}

CheckpointFile file_from(const JsonValue& value) {
  value.require_only({"name", "bytes", "pieces"});
  CheckpointFile file{.name = file_name_from(value.at("name")), .bytes = value.at("bytes").integer(), .pieces = {}};
  const JsonValue pieces = value.at("pieces");
  for (std::size_t i = 0; i < pieces.size(); ++i) file.pieces.push_back(piece_from(pieces[i]));
  return file;
}

std::map<std::string, CheckpointTensor> tensors_from(const JsonValue& value) {
  std::map<std::string, CheckpointTensor> tensors;
  for (std::size_t i = 0; i < value.size(); ++i) {
    const JsonValue each = value[i];
    each.require_only({"name", "shape", "frozen"});
    CheckpointTensor tensor{.shape = {}, .frozen = each.at("frozen").boolean()};
    const JsonValue shape = each.at("shape");
    std::int64_t all = 1;
    for (std::size_t dim = 0; dim < shape.size(); ++dim) {
      tensor.shape.push_back(shape[dim].integer(1));
      if (tensor.shape.back() > largest / all) shape.fail("has more elements than any tensor");
      all *= tensor.shape.back();
    }
    if (!tensors.emplace(each.at("name").text(), std::move(tensor)).second) each.fail("stands twice");
  }
  return tensors;
}

}  // namespace

std::int64_t elements(const CheckpointPiece& piece) {
  std::int64_t all = 0;
  for (const IndexRun& run : piece.runs) all += run.count * run.size;
  return all;
}

std::string tensor_name(const CheckpointPiece& piece) {
  return piece.kind == StateKind::weight ? piece.weight : fmt::format("{}.{}", piece.weight, name_of(piece.kind));
}

std::vector<StateKind> kinds_of(const CheckpointTensor& tensor, Optimizer optimizer) {
  if (tensor.frozen || optimizer != Optimizer::adam) return {StateKind::weight};
  return {StateKind::weight, StateKind::first_moment, StateKind::second_moment};
}

PiecePlaces places_of_pieces(const CheckpointIndex& index) {
  PiecePlaces places;
  for (std::size_t file = 0; file < index.files.size(); ++file) {
    const std::vector<CheckpointPiece>& pieces = index.files[file].pieces;
    for (std::size_t number = 0; number < pieces.size(); ++number) {
      places[{pieces[number].weight, pieces[number].kind}].emplace_back(file, number);
    }
  }
  return places;
}

void require_whole(const CheckpointIndex& index, const std::string& file) {
  const PiecePlaces places = places_of_pieces(index);
  std::size_t expected = 0;
  for (const auto& [name, tensor] : index.tensors) {
    const std::int64_t size = elements_of_shape(tensor.shape);
    for (const StateKind kind : kinds_of(tensor, index.training.optimizer)) {
      const std::string what = fmt::format("{} of {}", name_of(kind), excerpt(name));
      ++expected;
      const auto found = places.find({name, kind});
      if (found == places.end()) throw InputError(file, "no file has " + what);
      IndexRanges all;
      for (const auto& [of_file, number] : found->second) {
        const CheckpointPiece& piece = index.files[of_file].pieces[number];
        for (const IndexRun& run : piece.runs) {
          if (is_within(run, size)) continue;
          throw InputError(file, fmt::format("has elements of {} that it does not have", what));
        }
        const IndexRanges own = ranges_of(piece.runs);
        all.insert(all.end(), own.begin(), own.end());
      }
      std::ranges::sort(all, {}, &IndexRange::begin);
      std::int64_t end = 0;
      for (const IndexRange& range : all) {
        if (range.begin != end) {
          throw InputError(file, fmt::format("{} of element {} of {}", range.begin < end ? "has two" : "has none",
                                             std::min(range.begin, end), what));
        }
        end = range.end;
      }
      if (end != size) throw InputError(file, fmt::format("has none of element {} of {}", end, what));
    }
  }
  if (places.size() == expected) return;
  for (const auto& [state, where] : places) {
    const auto tensor = index.tensors.find(state.first);
    if (tensor != index.tensors.end() &&
        std::ranges::count(kinds_of(tensor->second, index.training.optimizer), state.second) > 0) {
      continue;
    }
    throw InputError(file, fmt::format("has {} of {}, which is not among its tensors' states", name_of(state.second),
                                       excerpt(state.first)));
  }
}

std::string training_id(const Model& model, const Training& training, const std::string& data_digest) {
  return digest(to_line(Json{arithmetic_json(model), to_json(training), data_digest}));
}

CheckpointIndex index_of(const Plan& plan, const std::string& data_digest) {
  CheckpointIndex index{.model = plan.model,
                        .training = plan.training,
                        .data_digest = data_digest,
                        .training_id = training_id(plan.model, plan.training, data_digest),
                        .layout = describe(plan.layout),
                        .schedule = plan.schedule.name,
                        .split = plan.split.layers};
  for (const Parameter& parameter : all_parameters(plan.model, plan.training.lora)) {
    index.tensors.emplace(parameter.name, CheckpointTensor{.shape = parameter.shape, .frozen = parameter.frozen});
  }
  return index;
}

std::string to_json(const CheckpointIndex& index) {
  Json json{{"format", format_name},
            {"version", checkpoint_version},
            {"step", index.step},
            {"updates", index.updates},
            {"sequences", index.sequences},
            {"data_digest", index.data_digest},
            {"training_id", index.training_id},
            {"layout", index.layout},
            {"split", index.split},
            {"schedule", index.schedule},
            {"training", to_json(index.training)},
            {"model", to_json(index.model)},
            {"tensors", Json::array()},
            {"files", Json::array()}};
  for (const auto& [name, tensor] : index.tensors) {
    json["tensors"].push_back({{"name", name}, {"shape", tensor.shape}, {"frozen", tensor.frozen}});
  }
  for (const CheckpointFile& file : index.files) json["files"].push_back(file_json(file));
  json["crc32c"] = hex(checksum_of(json));
  return in_lines(json);
}

CheckpointIndex parse_index(std::string_view text, const std::string& file) {
  const std::string hint = hint_without(std::filesystem::path(file).parent_path());
  Json json = [&] {
    try {
      return parse_json(text, file);
    } catch (const InputError& error) {
      throw InputError(error.where(), error.problem(), hint);
    }
  }();
  const JsonValue all(json, file, "", text);
  if (const auto format = all.find("format"); !format || format->text() != format_name) {
    throw InputError(file, "is no index of a checkpoint", hint);
  }
  if (const std::int64_t version = all.at("version").integer(); version != checkpoint_version) {
    all.at("version").fail(fmt::format("is {}, and this program reads {}", version, checkpoint_version));
  }
  const std::uint32_t said = from_hex(all.at("crc32c").text(), all.at("crc32c"));
  Json without = json;
  without.erase("crc32c");
  if (said != checksum_of(without)) {
    throw InputError(file, "has been changed or damaged: its checksum is another", hint);
  }
  CheckpointIndex index{.step = count_from(all.at("step"), most_steps),
                        .updates = count_from(all.at("updates"), most_updates),
                        .model = model_from_json(all.at("model")),
                        .training = training_from_json(all.at("training")),
                        .data_digest = all.at("data_digest").text(),
                        .sequences = all.at("sequences").integer(),
                        .layout = all.at("layout").text(),
                        .schedule = all.at("schedule").text(),
                        .split = {},
                        .tensors = tensors_from(all.at("tensors")),
                        .files = {}};
  const auto id = all.find("training_id");  // the first ones have none
  index.training_id = id ? id->text() : training_id(index.model, index.training, index.data_digest);
  const JsonValue split = all.at("split");
  for (std::size_t i = 0; i < split.size(); ++i) index.split.push_back(split[i].small_integer());
  const JsonValue files = all.at("files");
  for (std::size_t i = 0; i < files.size(); ++i) index.files.push_back(file_from(files[i]));
  return index;
}

Bytes bytes_of_states(const CheckpointIndex& index) {
  Bytes all;
  for (const auto& [name, tensor] : index.tensors) {
    const ElementType type = tensor.frozen ? index.training.precision : ElementType::fp32;
    const auto states = static_cast<std::int64_t>(kinds_of(tensor, index.training.optimizer).size());
    all += Bytes{elements_of_shape(tensor.shape) * states * element_bytes(type)};
  }
  return all;
}

std::string hint_without(const std::filesystem::path& checkpoint) {
  return fmt::format("remove or rename {}: the newest before it is then what --resume takes", checkpoint.string());
}

std::string to_json(const CheckpointFile& file) { return to_line(file_json(file)); }

CheckpointFile parse_checkpoint_file(std::string_view text, const std::string& where) {
  const Json json = parse_json(text, where);
  return file_from({json, where, "", text});
}

}  // namespace plumb::exec

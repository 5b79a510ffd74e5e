#include "common/study/file_kinds.hpp"

#include <algorithm>

#include "common/base/error.hpp"
#include "common/base/synonyms.hpp"
#include "common/cluster/machine_yaml.hpp"
#include "common/cost/software_yaml.hpp"
#include "common/model/files/model_block.hpp"
#include "common/scenario_file/fields.hpp"
#include "common/study/published.hpp"
#include "common/study/what_if_fields.hpp"

namespace plumb {

const std::vector<FileKind>& file_kinds() {
  static const std::vector<FileKind> kinds = {
      {"scenario", "A model, a cluster, and how to train the one on the other.", shapes::block(scenario_block()),
       &scenario_block()},
      {"machine", "One machine: its devices, and the links between them.", shapes::block(machine_block()),
       &machine_block()},
      {"software", "What a training system fuses, overlaps and exchanges.", shapes::block(software_block()),
       &software_block()},
      {"model", "Sizes of a model, and its layers in order.",
       shapes::any_of({shapes::block(model_block()), shapes::block(model_file_block()), shapes::block(config_block())}),
       &model_block()},
      {"what-if", "Variants of a plan: `plumb simulate PLAN --what-if FILE`.",
       shapes::list(shapes::block(variant_block())), &variant_block()},
      {"table", "Published measurements, which `plumb validate` and `plumb fit` read.", shapes::block(table_block()),
       &table_block()}};
  return kinds;
}

const FileKind& file_kind(const std::string& name) {
  std::vector<std::string> names;
  for (const FileKind& kind : file_kinds()) names.push_back(kind.name);
  const auto found = std::ranges::find(names, name);
  if (found == names.end()) {
    throw InputError("schema", "there is no kind of file '" + name + "'", did_you_mean(name, names));
  }
  return file_kinds()[static_cast<std::size_t>(found - names.begin())];
}

std::vector<const FieldBlock*> blocks_of(const FieldShape& shape) {
  if (const auto* block = std::get_if<BlockShape>(&shape.form)) return {block->block};
  if (const auto* list = std::get_if<ListShape>(&shape.form)) return blocks_of(list->of.front());
  std::vector<const FieldBlock*> blocks;
  if (const auto* one_of = std::get_if<OneOfShape>(&shape.form)) {
    for (const FieldShape& one : one_of->shapes) {
      for (const FieldBlock* block : blocks_of(one)) {
        if (std::ranges::find(blocks, block) == blocks.end()) blocks.push_back(block);
      }
    }
  }
  return blocks;
}

namespace {

// A kind's own fields: `taken` are blocks of kinds before it.
std::vector<FieldPlace> own_fields(const FileKind& kind, std::vector<const FieldBlock*>& taken) {
  struct Open {
    std::string path;
    const FieldBlock* block;
  };
  const auto contains = [](const std::vector<const FieldBlock*>& blocks, const FieldBlock* block) {
    return std::ranges::find(blocks, block) != blocks.end();
  };
  std::vector<Open> open = {{"", kind.block}};
  std::vector<const FieldBlock*> own;
  std::vector<FieldPlace> places = {{&kind, "", kind.block, nullptr}};
  for (std::size_t i = 0; i < open.size(); ++i) {
    const Open at = open[i];
    own.push_back(at.block);
    for (const Field& field : at.block->fields) {
      // A row of a table repeats the keys of a scenario.
      const bool repeated =
          kind.name == "table" && !at.path.empty() && find_field(scenario_block(), field.key) != nullptr;
      if (repeated) continue;
      const std::string path = (at.path.empty() ? "" : at.path + ".") + field.key;
      places.push_back({&kind, path, at.block, &field});
      for (const FieldBlock* block : blocks_of(field.shape)) {
        const bool file = std::ranges::find(file_kinds(), block, &FileKind::block) != file_kinds().end();
        if (!file && !contains(taken, block)) open.push_back({path, block});
      }
    }
  }
  taken.insert(taken.end(), own.begin(), own.end());
  return places;
}

}  // namespace

std::vector<FieldPlace> fields_of(const FileKind& kind) {
  std::vector<const FieldBlock*> taken;
  for (const FileKind& one : file_kinds()) {
    std::vector<FieldPlace> places = own_fields(one, taken);
    if (&one == &kind) return places;
  }
  return {};
}

std::vector<FieldPlace> find_fields(const std::string& key) {
  std::vector<FieldPlace> found;
  std::vector<FieldPlace> exact;
  for (const FileKind& kind : file_kinds()) {
    for (const FieldPlace& place : fields_of(kind)) {
      const std::string full = place.path.empty() ? kind.name : kind.name + "." + place.path;
      if (full == key || place.path == key) exact.push_back(place);
      if (full == key || full.ends_with("." + key)) found.push_back(place);
    }
  }
  // A path of several keys is meant as it is.
  return key.find('.') != std::string::npos && !exact.empty() ? exact : found;
}

std::vector<std::string> all_keys() {
  std::vector<std::string> keys;
  for (const FileKind& kind : file_kinds()) {
    for (const FieldPlace& place : fields_of(kind)) {
      const std::string key = place.field == nullptr ? kind.name : place.field->key;
      if (std::ranges::find(keys, key) == keys.end()) keys.push_back(key);
    }
  }
  return keys;
}

std::string key_of_others(const std::string& word) { return key_meant(word, all_keys()); }

}  // namespace plumb

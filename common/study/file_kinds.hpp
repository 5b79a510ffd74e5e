// The files that plumb reads, by their tables of fields.
#pragma once

#include <string>
#include <vector>

#include "common/base/document/field.hpp"

namespace plumb {

struct FileKind {
  std::string name;         // "scenario", as `plumb schema` calls it
  std::string description;  // one sentence
  FieldShape shape;         // shape of the whole file
  const FieldBlock* block;  // its outermost block
};
// Every kind: scenario, machine, software, model, what-if, table.
[[nodiscard]] const std::vector<FileKind>& file_kinds();
// Throws InputError with the nearest name for an unknown one.
[[nodiscard]] const FileKind& file_kind(const std::string& name);

// A field and where it is written.
struct FieldPlace {
  const FileKind* kind = nullptr;
  std::string path;                   // "training.recompute"
  const FieldBlock* block = nullptr;  // that has the field; of a whole file its outermost block
  const Field* field = nullptr;       // nullptr of a whole file
};
// Every field of the kind, the file itself first; a block of another kind before it in the list is left to that one.
[[nodiscard]] std::vector<FieldPlace> fields_of(const FileKind& kind);
// Fields whose path ends with `key`, and a kind of that name. Empty if there is none.
[[nodiscard]] std::vector<FieldPlace> find_fields(const std::string& key);
// The key of plumb that others call `word`; empty if there is none.
[[nodiscard]] std::string key_of_others(const std::string& word);
// Every key once.
[[nodiscard]] std::vector<std::string> all_keys();

// Blocks that a value of this shape may be.
[[nodiscard]] std::vector<const FieldBlock*> blocks_of(const FieldShape& shape);

}  // namespace plumb

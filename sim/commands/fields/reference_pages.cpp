#include "sim/commands/fields/reference_pages.hpp"

#include "common/base/document/field_page.hpp"
#include "common/plan/plan_tables.hpp"
#include "common/study/file_kinds.hpp"

namespace plumb::sim {
namespace {

constexpr const char* remark = "<!-- Written by `plumb reference docs/reference`. Do not edit. -->\n";

// Blocks of other kinds of files, with their place on the page of that kind.
std::vector<std::pair<const FieldBlock*, std::string>> other_pages(const FileKind& own) {
  std::vector<std::pair<const FieldBlock*, std::string>> pages;
  for (const FileKind& kind : file_kinds()) {
    if (&kind != &own) pages.emplace_back(kind.block, kind.name + ".md");
  }
  for (const FileKind& kind : file_kinds()) {
    if (&kind == &own) break;
    for (const FieldPlace& place : fields_of(kind)) {
      if (place.field == nullptr) continue;
      for (const FieldBlock* block : blocks_of(place.field->shape)) {
        pages.emplace_back(block, kind.name + ".md#" + heading_anchor(place.path));
      }
    }
  }
  return pages;
}

std::string page_of(const std::string& name, const std::string& title, const std::string& more) {
  const FileKind& kind = file_kind(name);
  return remark + ("\n# " + title + "\n\n") + kind.block->description + "\n" + more +
         tables_of({.block = *kind.block, .pages = other_pages(kind)});
}

std::string scenario_page() {
  return page_of("scenario", "Keys of a scenario",
                 R"(
A scenario is YAML or JSON. Every key with a default may be left out. `plumb explain KEY` prints an entry of these
tables; `plumb schema scenario` prints the JSON Schema for an editor.

- A quantity is a number and its unit: `80 GiB`, `25 GB/s`, `200 Gbit/s`, `5 us`, `312 TFLOP/s`.
- A count of tokens may end with k (1024) or M (1024²): `64k`, `1M`.
- Names of PyTorch, Megatron-LM, DeepSpeed and Hugging Face are read for values (`bfloat16`, `silu`, `ZBVZeroBubble`).
  Their keys (`tensor_model_parallel_size`) are answered with the key of plumb.
- A file may be named where a block may stand. It is looked for beside the scenario, then among the shipped files.
- `auto` or a list leaves a choice to `plumb plan` and `plumb simulate`.
)");
}

std::string machine_page() {
  return page_of("machine", "Keys of a machine",
                 R"(
The shipped machines are in `scenarios/machines`. A machine of your own is a file, or a block in `cluster: {machine: …}`.
With `like` it has all numbers of another machine that it does not state itself, key by key. A number that is stated
replaces value, source and uncertainty together.

Some keys with a default are required by some scenarios: GPUs need `matmul_depth`, `multiprocessors`, `kernel_gap`,
`launch_time` and `framework_memory`; tensor and data parallelism need the three `collective_` numbers. `plumb show`
names what is missing.
)");
}

std::string software_page() {
  return page_of("software", "Keys of a software",
                 R"(
The shipped ones are in `scenarios/software`. A block that begins with `like` changes another one:
`software: {like: megatron-2024, data_overlap: false}`.
)");
}

std::string model_page() {
  return page_of("model", "Keys of a model",
                 R"(
A model is a block in a scenario, a YAML file with these keys, or a Hugging Face `config.json`. All layers of one kind
have the same sizes. A count ends nowhere with k or M but where tokens are counted.
)");
}

std::string what_if_page() {
  return page_of("what-if", "Keys of a what-if file",
                 R"(
The file is a list of variants. `plumb simulate PLAN --what-if FILE` predicts each of them.
)");
}

std::string table_page() { return page_of("table", "Keys of a published table", ""); }

// "memory_bandwidth_bytes_per_s": "memory_bandwidth"
std::string without_unit(const std::string& key) {
  for (const std::string unit : {"_flops_per_s", "_bytes_per_s", "_bytes", "_fraction", "_s"}) {
    if (key.ends_with(unit)) return key.substr(0, key.size() - unit.size());
  }
  return key;
}

// The description of the same key in a file that a plan is made from.
std::string description_in_files(const std::string& path, const std::string& key) {
  const std::string part = path.substr(0, path.find('.'));
  const std::string first = path.starts_with("cluster.machine")     ? "machine"
                            : part == "software" || part == "model" ? part
                                                                    : "scenario";
  for (const FieldPlace& place : find_fields(without_unit(key))) {
    if (place.field != nullptr && place.kind->name == first) return place.field->description;
  }
  return "";
}

std::string plan_page() {
  std::string text = remark + std::string(R"(
# Keys of a plan

`plumb plan SCENARIO -o plan.json` writes a plan. It is complete: a run needs no other file but its data. Times and
bandwidths in `costs` may be edited; for anything else, write the plan again. A key with a unit ends with it: `_s`,
`_bytes`, `_bytes_per_s`, `_flops_per_s`, `_fraction`. "Optional" keys are left out at their usual value.
)");
  for (const JsonTable& table : plan_tables()) {
    if (!table.path.empty()) text += "\n## `" + table.path + "`\n";
    text += "\n| key | type | meaning |\n| --- | --- | --- |\n";
    for (const JsonRow& row : table.rows) {
      const std::string meaning = row.description.empty() ? description_in_files(table.path, row.key) : row.description;
      text += "| `" + row.key + "` | " + row.type + (row.optional ? ", optional" : "") + " | " + meaning + " |\n";
    }
  }
  return text;
}

}  // namespace

const std::vector<ReferencePage>& reference_pages() {
  static const std::vector<ReferencePage> pages = {{"scenario.md", scenario_page}, {"machine.md", machine_page},
                                                   {"software.md", software_page}, {"model.md", model_page},
                                                   {"what-if.md", what_if_page},   {"table.md", table_page},
                                                   {"plan.md", plan_page}};
  return pages;
}

}  // namespace plumb::sim

#include "common/schedule/registry.hpp"

#include <algorithm>
#include <array>

#include "common/base/error.hpp"
#include "common/schedule/generators.hpp"

namespace plumb {
namespace {

// Names that are settled and have no generator yet.
constexpr std::array<std::string_view, 11> planned_names = {"eager-1f1b", "breadth-first",  "zb-h2",        "zb-v",
                                                            "zb-auto",    "interleaved-zb", "dualpipe-v",   "hanayo",
                                                            "seq-1f1b",   "pipedream",      "pipedream-2bw"};

}  // namespace

const std::vector<ScheduleEntry>& schedule_entries() {
  static const std::vector<ScheduleEntry> entries = {
      {.name = "gpipe",
       .title = "GPipe",
       .source = "arXiv 1811.06965, section 2.3",
       .requirement = "any number of ranks and microbatches, one chunk",
       .generate = generate_gpipe},
      {.name = "1f1b",
       .title = "1F1B",
       .source = "arXiv 2007.01045, section 3; arXiv 2006.09503",
       .requirement = "any number of ranks and microbatches, one chunk",
       .generate = generate_one_f_one_b},
      {.name = "interleaved-1f1b",
       .title = "Interleaved 1F1B",
       .source = "arXiv 2104.04473, section 2.2",
       .requirement = "microbatches divisible by max(1, floor(microbatches / ranks)); any number of chunks",
       .uses_chunks = true,
       .uses_group = true,
       .generate = generate_interleaved_1f1b},
      {.name = "zb-h1",
       .title = "ZB-H1",
       .source = "arXiv 2401.10241, section 2.1",
       .requirement = "any number of ranks and microbatches, one chunk",
       .splits_backward = true,
       .generate = generate_zb_h1},
      {.name = "v-half",
       .title = "V-Half",
       .source = "arXiv 2405.15362, section 3",
       .requirement = "any number of ranks and microbatches, two chunks",
       .splits_backward = true,
       .uses_chunks = true,
       .fixed_chunks = 2,
       .generate = generate_v_half},
      {.name = "v-min",
       .title = "V-Min",
       .source = "arXiv 2405.15362, section 3",
       .requirement = "any number of ranks and microbatches, two chunks",
       .splits_backward = true,
       .uses_chunks = true,
       .fixed_chunks = 2,
       .generate = generate_v_min},
      {.name = "dualpipe",
       .title = "DualPipe",
       .source = "arXiv 2412.19437, section 3.2.1; github.com/deepseek-ai/DualPipe, dualpipe.py",
       .requirement = "an even number of ranks, an even number of microbatches, at least two per rank; one chunk",
       .splits_backward = true,
       .generate = generate_dualpipe},
      {.name = "chimera",
       .title = "Chimera",
       .source = "arXiv 2107.06925, section 3",
       .requirement = "an even number of ranks, which divides the microbatches; one chunk",
       .generate = generate_chimera},
      {.name = "bpipe",
       .title = "BPipe",
       .source = "ICML 2023 (kim23l), section 3",
       .requirement = "any number of ranks and microbatches, one chunk",
       .generate = generate_bpipe},
  };
  return entries;
}

std::string schedules_with_chunks() {
  std::string names;
  for (const ScheduleEntry& entry : schedule_entries()) {
    if (entry.uses_chunks) names += (names.empty() ? "" : ", ") + entry.name;
  }
  return names;
}

const ScheduleEntry& find_schedule(std::string_view name) {
  const auto& entries = schedule_entries();
  const auto found = std::ranges::find(entries, name, &ScheduleEntry::name);
  if (found != entries.end()) return *found;
  std::vector<std::string> names;
  names.reserve(entries.size());
  for (const ScheduleEntry& entry : entries) names.push_back(entry.name);
  if (std::ranges::find(planned_names, name) != planned_names.end()) {
    std::string list;
    for (const std::string& built : names) list += (list.empty() ? "built: " : ", ") + built;
    throw InputError("schedule", "'" + std::string(name) + "' is planned and not built yet", list);
  }
  throw InputError("schedule", "unknown schedule '" + std::string(name) + "'", did_you_mean(name, names));
}

Schedule generate_schedule(std::string_view name, const ScheduleShape& shape) {
  return find_schedule(name).generate(shape);
}

}  // namespace plumb

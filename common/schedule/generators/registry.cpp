#include "common/schedule/generators/registry.hpp"

#include <algorithm>

#include "common/base/error.hpp"
#include "common/base/excerpt.hpp"
#include "common/base/synonyms.hpp"
#include "common/schedule/generators/generators.hpp"
#include "common/schedule/generators/interleaved_table.hpp"

namespace plumb {
namespace {

constexpr const char* interleaved_requirement =
    "microbatches divisible by max(1, ⌊microbatches/ranks⌋), or a group ≥ ranks whose remainder is 0 or ≥ ranks; any "
    "number of chunks";

// "Memory" of the generators.
int all_microbatches(const ScheduleShape& shape, int) { return shape.microbatches; }
int up_to_last_rank(const ScheduleShape& shape, int rank) {
  return std::min(shape.microbatches, shape.ranks - rank + shape.vocabulary_barriers);
}

int one_microbatch(const ScheduleShape&) { return 1; }

// Whole groups, of more microbatches than ranks.
int one_group(const ScheduleShape& shape) {
  if (shape.microbatches <= shape.ranks) return 0;
  try {
    const int group = interleaved_table("interleaved-1f1b", shape).group;
    return shape.microbatches % group == 0 ? group : 0;
  } catch (const InputError&) {
    return 0;  // said when it is generated
  }
}

}  // namespace

// NOLINTNEXTLINE(readability-function-size): a table, one entry a schedule
const std::vector<ScheduleEntry>& schedule_entries() {
  static const std::vector<ScheduleEntry> entries = {
      {.name = "gpipe",
       .title = "GPipe",
       .source = "arXiv 1811.06965, section 2.3",
       .requirement = "any number of ranks and microbatches, one chunk",
       .bubble = "(p−1)(F+B)",
       .memory = "m",
       .most_held = all_microbatches,
       .steady_turn = one_microbatch,
       .has_warm_up = false,
       .generate = generate_gpipe},
      {.name = "1f1b",
       .title = "1F1B",
       .source = "arXiv 2007.01045, section 3; arXiv 2006.09503",
       .requirement = "any number of ranks and microbatches, one chunk",
       .bubble = "(p−1)(F+B)",
       .memory = "min(m, p)",
       .divided_bubble = "(p−1)(F+B), less min(w, B) with one barrier, for F = B/2",
       .divided_memory = "min(m, p+b)",
       .divides_vocabulary = true,
       .most_held = up_to_last_rank,
       .steady_turn = one_microbatch,
       .generate = generate_one_f_one_b},
      {.name = "eager-1f1b",
       .title = "Eager 1F1B",
       .source = "arXiv 2211.05322, section 4",
       .requirement = "any number of ranks and microbatches, one chunk",
       .bubble = "(p−1)(F+B); hides message latency",
       .memory = "min(m, 2p−1)",
       .steady_turn = one_microbatch,
       .generate = generate_eager_1f1b},
      {.name = "interleaved-1f1b",
       .title = "Interleaved 1F1B",
       .source = "arXiv 2104.04473, section 2.2",
       .requirement = interleaved_requirement,
       .bubble = "(p−1)(F+B)/v",
       .memory = "min(m, p + (p−1)/v)",
       .uses_chunks = true,
       .uses_group = true,
       .uses_overlap = true,
       .steady_turn = one_group,
       .generate = generate_interleaved_1f1b},
      {.name = "breadth-first",
       .title = "Breadth-first",
       .source = "arXiv 2211.05953, section 4.1",
       .requirement = "any number of ranks, microbatches and chunks",
       .bubble = "(p−1)(F+B)/v",
       .memory = "m",
       .uses_chunks = true,
       .generate = generate_breadth_first},
      {.name = "zb-h1",
       .title = "ZB-H1",
       .source = "arXiv 2401.10241, section 2.1",
       .requirement = "any number of ranks and microbatches, one chunk",
       .bubble = "(p−1)(F+I−W)",
       .memory = "min(m, p)",
       .divided_memory = "min(m, p+b)",
       .splits_backward = true,
       .divides_vocabulary = true,
       .most_held = up_to_last_rank,
       .steady_turn = one_microbatch,
       .generate = generate_zb_h1},
      {.name = "zb-h2",
       .title = "ZB-H2",
       .source = "arXiv 2401.10241, section 2.2",
       .requirement = "any number of ranks and microbatches, one chunk",
       .bubble = "(p−1)·max(F, F+I−2W); span (p−1)(F+I−2W)",
       .memory = "min(m, 2p−1)",
       .splits_backward = true,
       .generate = generate_zb_h2},
      {.name = "zb-v",
       .title = "ZB-V",
       .source = "arXiv 2401.10241, section 6",
       .requirement = "any number of ranks and microbatches, two chunks",
       .bubble = "(p−1)·max(I, 2(I−W))/2; span (p−1)(I−W)",
       .memory = "min(m, p)",
       .splits_backward = true,
       .uses_chunks = true,
       .fixed_chunks = 2,
       .generate = generate_zb_v},
      {.name = "zb-auto",
       .title = "ZB auto",
       .source = "after arXiv 2401.10241, section 3",
       .requirement = "any number of ranks, microbatches and chunks",
       .bubble = "searched for: the least that it finds within a limit of memory",
       .memory = "within the limit: p unless asked otherwise",
       .splits_backward = true,
       .uses_chunks = true,
       .uses_times = true,
       .generate = generate_zb_auto},
      {.name = "interleaved-zb",
       .title = "Interleaved zero bubble",
       .source = "arXiv 2401.10241, section 2.1, on the chunks of arXiv 2104.04473",
       .requirement = interleaved_requirement,
       .bubble = "(p−1)(F+I−W)/v",
       .memory = "min(m, p)",
       .splits_backward = true,
       .uses_chunks = true,
       .uses_group = true,
       .generate = generate_interleaved_zb},
      {.name = "v-half",
       .title = "V-Half",
       .source = "arXiv 2405.15362, section 3",
       .requirement = "any number of ranks and microbatches, two chunks",
       .bubble = "(6⌊(p−1)/2⌋−1)F/2 for F = I = W, p ≥ 3",
       .memory = "min(m, ⌊(p+2)/2⌋)",
       .splits_backward = true,
       .uses_chunks = true,
       .fixed_chunks = 2,
       .generate = generate_v_half},
      {.name = "v-min",
       .title = "V-Min",
       .source = "arXiv 2405.15362, section 3",
       .requirement = "any number of ranks and microbatches, two chunks",
       .bubble = "(4p−5)F/2, or (4p−7)F/2 if 3 divides p, for F = I = W",
       .memory = "min(m, ⌊(p+4)/3⌋)",
       .splits_backward = true,
       .uses_chunks = true,
       .fixed_chunks = 2,
       .generate = generate_v_min},
      {.name = "dualpipe",
       .title = "DualPipe",
       .source = "arXiv 2412.19437, section 3.2.1; github.com/deepseek-ai/DualPipe, dualpipe.py",
       .requirement = "an even number of ranks, an even number of microbatches, at least two per rank; one chunk",
       .bubble = "(p/2−1)(F&B + B − 3W) for F = I ≥ W",
       .memory = "p+1; parameters ×2",
       .splits_backward = true,
       .trains_replicas = true,
       .generate = generate_dualpipe},
      {.name = "dualpipe-v",
       .title = "DualPipeV",
       .source = "github.com/deepseek-ai/DualPipe, dualpipev.py",
       .requirement = "at least two microbatches per rank, two chunks",
       .bubble = "(p−1)(F&B + B − 3W)/2 for F = I ≥ W",
       .memory = "p + 1/2",
       .splits_backward = true,
       .uses_chunks = true,
       .fixed_chunks = 2,
       .generate = generate_dualpipe_v},
      {.name = "chimera",
       .title = "Chimera",
       .source = "arXiv 2107.06925, section 3",
       .requirement = "an even number of ranks, which divides the microbatches; one chunk",
       .bubble = "(p−2)[max(F, B) + (m/p−1)·abs(F−B)]",
       .memory = "p; parameters ×2",
       .trains_replicas = true,
       .generate = generate_chimera},
      {.name = "hanayo",
       .title = "Hanayo",
       .source = "arXiv 2308.15762, section 3",
       .requirement = "any number of ranks and microbatches, two chunks per wave",
       .bubble = "2(p−1)[min(F, B) + (m/p)·abs(F−B)]/v",
       .memory = "min(m, p)",
       .uses_chunks = true,
       .chunk_multiple = 2,
       .generate = generate_hanayo},
      {.name = "seq-1f1b",
       .title = "Seq1F1B",
       .source = "arXiv 2406.03488, section 3",
       .requirement = "any number of ranks, microbatches and slices, one chunk",
       .bubble = "(p−1)(F+B)/n",
       .memory = "min(m, (p−1)/n + 1)",
       .uses_slices = true,
       .generate = generate_seq_1f1b},
      {.name = "bpipe",
       .title = "BPipe",
       .source = "ICML 2023 (kim23l), section 3",
       .requirement = "any number of ranks and microbatches, one chunk",
       .bubble = "(p−1)(F+B)",
       .memory = "min(m, ⌈(p+2)/2⌉)",
       .generate = generate_bpipe},
      {.name = "pipedream",
       .title = "PipeDream",
       .source = "arXiv 1806.03377, section 3",
       .requirement = "any number of ranks and microbatches, one chunk",
       .bubble = "(p−1)(F+B) at both ends of a run, none between",
       .memory = "min(m, p); p versions of the weights",
       .updates_within = true,
       .generate = generate_pipedream},
      {.name = "pipedream-2bw",
       .title = "PipeDream-2BW",
       .source = "arXiv 2006.09503, section 3.1",
       .requirement = "an update every e microbatches (e = ranks by default), e at least the ranks and dividing the "
                      "microbatches; one chunk",
       .bubble = "(p−1)(F+B) at both ends of a run, none between",
       .memory = "min(m, p); 2 versions of the weights",
       .updates_within = true,
       .generate = generate_pipedream_2bw},
  };
  return entries;
}

std::string schedules_with(bool ScheduleEntry::*use) {
  std::string names;
  for (const ScheduleEntry& entry : schedule_entries()) {
    if (entry.*use) names += (names.empty() ? "" : ", ") + entry.name;
  }
  return names;
}

const ScheduleEntry& find_schedule(std::string_view name) {
  const auto& entries = schedule_entries();
  std::vector<std::string> names;
  names.reserve(entries.size());
  for (const ScheduleEntry& entry : entries) names.push_back(entry.name);
  if (const auto found = find_name(name, names)) return entries[*found];
  const std::string problem = "unknown schedule '" + excerpt(name) + "'";
  // A list of YAML ends its elements at commas.
  for (const auto& [part, schedule] : {std::pair{" chunks", "interleaved-1f1b"}, {" slices", "seq-1f1b"}}) {
    if (!name.ends_with(part)) continue;
    throw InputError(
        "schedule", problem,
        "in quotes it belongs to the name before it: \"" + std::string(schedule) + ", " + excerpt(name) + "\"");
  }
  throw InputError("schedule", problem, did_you_mean(name, names));
}

Schedule generate_schedule(std::string_view name, const ScheduleShape& shape) {
  return find_schedule(name).generate(shape);
}

}  // namespace plumb

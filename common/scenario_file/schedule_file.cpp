#include <fmt/format.h>

#include <algorithm>

#include "common/base/excerpt.hpp"
#include "common/base/files.hpp"
#include "common/scenario_file/blocks.hpp"
#include "common/scenario_file/shipped.hpp"
#include "common/schedule/interchange/schedule_file.hpp"
#include "common/schedule/validate/validate.hpp"

namespace plumb {
namespace {

std::optional<CsvAlphabet> read_alphabet(const YamlValue& value) {
  const std::optional<YamlValue> given = value.find("alphabet");
  if (!given) return std::nullopt;
  return given->choice({"today", "2024"}) == 0 ? CsvAlphabet::today : CsvAlphabet::of_2024;
}

void require_agreement(const YamlValue& place, const Schedule& schedule, const ScheduleBounds& bounds) {
  const std::string& name = schedule.name;
  try {
    require_valid(schedule);
  } catch (const InputError& error) {
    place.fail(name + ": " + error.problem(), "plumb schedule check lists all problems");
  }
  const std::vector<bool> recomputed = recomputed_stages(schedule);
  if (std::ranges::find(recomputed, true) != recomputed.end()) {
    place.fail(name + " has R, but a scenario says itself what is recomputed",
               "leave R out of the file; training.recompute: full adds it");
  }
  if (bounds.open) return;
  if (schedule.ranks != bounds.pipeline) {
    place.fail(fmt::format("{} is for {} ranks, the layout's pipeline has {}", name, schedule.ranks, bounds.pipeline),
               fmt::format("layout: {{pipeline: {}}}", schedule.ranks));
  }
  const int own = whole_microbatches(schedule);
  if (std::ranges::find(bounds.microbatches, own) != bounds.microbatches.end()) return;
  std::string counts;
  for (const std::int64_t count : bounds.microbatches) counts += (counts.empty() ? "" : " or ") + std::to_string(count);
  place.fail(fmt::format("{} has {} microbatches, the batch makes {}", name, own, counts),
             fmt::format("global_batch: {}", own * bounds.sequences_per_microbatch));
}

}  // namespace

ScheduleChoice read_schedule_choice(const YamlValue& value, const ScheduleBounds& bounds) {
  const YamlValue place = value.require("file");
  const std::filesystem::path path = find_file(place);
  Schedule schedule =
      without_messages(read_schedule_text(read_file(path), path.string(), read_alphabet(value)).schedule);
  schedule.name = std::string(schedule_from_file) + path.filename().string();
  require_agreement(place, schedule, bounds);
  return choice_of(schedule);
}

}  // namespace plumb

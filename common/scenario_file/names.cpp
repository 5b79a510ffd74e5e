#include "common/scenario_file/names.hpp"

#include <utility>

#include "common/scenario_file/shipped.hpp"
#include "common/schedule/generators/registry.hpp"

namespace plumb {
namespace {

std::vector<CompletedWord> shipped_words(ShippedKind kind) {
  std::vector<CompletedWord> words;
  for (const ShippedFile& shipped : shipped_files(kind)) {
    words.push_back({shipped.name, first_sentence(comment_on_top(shipped.file))});
  }
  return words;
}

}  // namespace

NamesOfValue names_of_values() {
  NamesOfValue names;
  for (const auto& [value, kind] : {std::pair{"SCENARIO", ShippedKind::scenario},
                                    {"MODEL", ShippedKind::model},
                                    {"MACHINE", ShippedKind::machine},
                                    {"SOFTWARE", ShippedKind::software}}) {
    names[value] = [kind = kind] { return shipped_words(kind); };
  }
  names["NAME"] = [] {
    std::vector<CompletedWord> words;
    for (const ScheduleEntry& entry : schedule_entries()) words.push_back({entry.name, entry.source});
    return words;
  };
  return names;
}

}  // namespace plumb

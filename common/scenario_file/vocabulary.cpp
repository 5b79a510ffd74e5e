// `vocabulary` of a layout: whether the pipeline's ranks divide it, and with how many barriers, each of which may be
// left open.
#include <algorithm>

#include "common/base/excerpt.hpp"
#include "common/scenario_file/blocks.hpp"
#include "common/scenario_file/fields.hpp"

namespace plumb {
namespace {

// Of `over`, in the order of auto; a tensor layout divides its ranks' vocabulary by itself.
enum class Over : std::uint8_t { none, pipeline };
// Each once.
template <class Value, class Read>
std::vector<Value> read_once(const YamlValue& value, std::vector<Value> all, const Read& read) {
  const auto given = auto_or_values(value);
  if (!given) return all;
  std::vector<Value> values;
  for (const YamlValue& item : *given) {
    const Value one = read(item);
    if (std::ranges::find(values, one) != values.end()) item.fail("'" + excerpt(item.text()) + "' stands twice");
    values.push_back(one);
  }
  return values;
}

}  // namespace

VocabularyChoices read_vocabulary(const YamlValue& block) {
  if (is_auto(block)) return {.barriers = {0, 1, 2}, .place = block};
  std::vector<Over> over = {Over::pipeline};
  if (const auto given = block.find("over")) {
    over = read_once<Over>(*given, {Over::none, Over::pipeline}, [](const YamlValue& item) {
      return static_cast<Over>(item.choice(vocabulary_over_names()));
    });
  }
  std::vector<int> barriers = {1};
  if (const auto given = block.find("barriers")) {
    barriers = read_once<int>(*given, {1, 2}, [](const YamlValue& item) { return item.small_integer(); });
    if (std::ranges::find(over, Over::pipeline) == over.end()) {
      given->fail("a vocabulary that is whole has no barriers", "over: pipeline, or [none, pipeline], or no barriers");
    }
  }
  VocabularyChoices choices{.barriers = {}, .place = block};
  for (const Over one : over) {
    if (one == Over::none) choices.barriers.push_back(0);
    if (one == Over::pipeline) choices.barriers.insert(choices.barriers.end(), barriers.begin(), barriers.end());
  }
  return choices;
}

}  // namespace plumb

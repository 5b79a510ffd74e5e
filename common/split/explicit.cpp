#include "common/base/error.hpp"
#include "common/split/megatron_layout.hpp"
#include "common/split/split.hpp"

namespace plumb {
namespace {

void require_counts(const Split& split, int layers, int stages) {
  const std::string text = describe(split);
  if (static_cast<int>(split.layers.size()) != stages) {
    throw InputError("split", text + " is for " + std::to_string(split.layers.size()) + " stages, but there are " +
                                  std::to_string(stages) + " (pipeline × chunks)");
  }
  std::int64_t sum = 0;
  for (std::size_t stage = 0; stage < split.layers.size(); ++stage) {
    const int count = split.layers[stage];
    const bool inner = stage > 0 && stage + 1 < split.layers.size();
    if (count < 0 || (count == 0 && inner)) {
      throw InputError("split", text + ": stage " + std::to_string(stage) + " has " + std::to_string(count) +
                                    " layers; only the first and the last stage may have none");
    }
    sum += count;
  }
  if (sum != layers) {
    throw InputError("split",
                     text + " sums to " + std::to_string(sum) + " layers, but the model has " + std::to_string(layers),
                     "every layer belongs to exactly one stage");
  }
}

}  // namespace

Split explicit_split(const std::vector<int>& counts, int layers, int stages) {
  Split split{counts};
  require_counts(split, layers, stages);
  return split;
}

Split megatron_split(std::string_view text, int layers, int stages) {
  const MegatronLayout layout = parse_megatron_layout(text);
  if (layout.mtp_stage >= 0 && layout.mtp_stage + 1 != static_cast<int>(layout.layers.size())) {
    throw InputError(Place{"split", 1, static_cast<int>(text.find('m')) + 1},
                     "an MTP module on another stage than the loss is not supported yet");
  }
  Split split{layout.layers};
  require_counts(split, layers, stages);
  return split;
}

}  // namespace plumb

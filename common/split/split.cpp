#include "common/split/split.hpp"

#include "common/base/error.hpp"

namespace plumb {

BlockRange blocks_of_stage(const Split& split, int stage) {
  if (stage < 0 || stage >= static_cast<int>(split.layers.size())) {
    throw InputError("split", describe(split) + " has no stage " + std::to_string(stage));
  }
  int before = 0;
  for (int earlier = 0; earlier < stage; ++earlier) before += split.layers[static_cast<std::size_t>(earlier)];
  const int own = split.layers[static_cast<std::size_t>(stage)];
  const bool last = stage + 1 == static_cast<int>(split.layers.size());
  // Block 0 is the embedding; the one behind the layers is the head.
  return {.first = stage == 0 ? 0 : 1 + before, .last = 1 + before + own + (last ? 1 : 0)};
}

std::string describe(const Split& split) {
  std::string text = "[";
  for (const int count : split.layers) text += (text.size() > 1 ? ", " : "") + std::to_string(count);
  return text + "]";
}

void require_stages(int layers, int stages) {
  if (stages < 1) throw InputError("split", std::to_string(stages) + " stages: expected at least 1");
  if (stages > layers && stages > 1) {
    throw InputError("split",
                     std::to_string(stages) + " stages are more than the model's " + std::to_string(layers) + " layers",
                     "take at most " + std::to_string(layers < 1 ? 1 : layers) + " stages (pipeline × chunks)");
  }
}

}  // namespace plumb

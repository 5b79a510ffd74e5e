#include "common/split/split.hpp"

namespace plumb {

Split uniform_split(int layers, int stages) {
  require_stages(layers, stages);
  Split split;
  for (int stage = 0; stage < stages; ++stage) {
    split.layers.push_back(layers / stages + (stage < layers % stages ? 1 : 0));
  }
  return split;
}

}  // namespace plumb

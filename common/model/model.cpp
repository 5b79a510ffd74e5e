#include "common/model/model.hpp"

#include <algorithm>

namespace plumb {

std::int64_t tokens(const Vision& vision) {
  const std::int64_t side = vision.image_size / vision.patch_size;
  return side * side + 1;
}

std::int64_t default_sequence(const Model& model) {
  constexpr std::int64_t usual = 4096;
  if (model.vision) return tokens(*model.vision);
  return model.max_positions > 0 ? std::min(model.max_positions, usual) : usual;
}

}  // namespace plumb

#include "common/model/divided_vocabulary.hpp"

namespace plumb {

Model without_vocabulary(Model model) {
  model.part = ModelPart::without_vocabulary;
  model.tied_embeddings = false;
  return model;
}

Model part_of_vocabulary(Model model, ModelPart part, int parts) {
  model.part = part;
  model.vocabulary /= parts;
  model.layers.clear();
  return model;
}

}  // namespace plumb

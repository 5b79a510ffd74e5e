#include "exec/stage/batch.hpp"

#include <ATen/ATen.h>

#include <algorithm>

#include "exec/data/images.hpp"

namespace plumb::exec {

at::Tensor token_ids(const Corpus& corpus, const Training& training, const TokenRange& range, std::int64_t shift) {
  at::Tensor ids = at::empty({training.microbatch, range.count}, at::kLong);
  auto* out = ids.mutable_data_ptr<std::int64_t>();
  for (std::int64_t row = 0; row < training.microbatch; ++row) {
    const auto window = corpus.window(range.sequence + row, training.sequence);
    out = std::copy_n(window.begin() + range.first + shift, range.count, out);
  }
  return ids;
}

at::Tensor image_patches(const Vision& vision, const Training& training, std::int64_t first, at::ScalarType type) {
  constexpr double half = 128;  // of the values of a byte
  const std::int64_t patches = tokens(vision) - 1;
  const std::int64_t pixels = vision.channels * vision.patch_size * vision.patch_size;
  at::Tensor images = at::empty({training.microbatch, patches, pixels}, at::kByte);
  auto* const data = images.mutable_data_ptr<unsigned char>();
  for (std::int64_t row = 0; row < training.microbatch; ++row) {
    const auto size = static_cast<std::size_t>(patches * pixels);
    draw_image(vision, training.seed, first + row, {data + static_cast<std::size_t>(row) * size, size});
  }
  return images.to(type).sub_(half).div_(half);
}

at::Tensor image_labels(const Vision& vision, const Training& training, std::int64_t first) {
  at::Tensor labels = at::empty({training.microbatch}, at::kLong);
  auto* const data = labels.mutable_data_ptr<std::int64_t>();
  for (std::int64_t row = 0; row < training.microbatch; ++row) {
    data[row] = image_label(vision, training.seed, first + row);
  }
  return labels;
}

at::Tensor batch_inputs(const Corpus& corpus, const Model& model, const Training& training, const TokenRange& range,
                        at::ScalarType type) {
  return model.vision ? image_patches(*model.vision, training, range.sequence, type)
                      : token_ids(corpus, training, range, 0);
}

at::Tensor batch_targets(const Corpus& corpus, const Model& model, const Training& training, const TokenRange& range) {
  return model.vision ? image_labels(*model.vision, training, range.sequence) : token_ids(corpus, training, range, 1);
}

}  // namespace plumb::exec

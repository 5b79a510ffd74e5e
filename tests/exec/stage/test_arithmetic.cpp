// Loss and every gradient of stages against the same model in plain autograd: exactly in fp64, as well as it in fp32.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/AutogradState.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <thread>

#include "exec/data/data.hpp"
#include "exec/data/images.hpp"
#include "exec/stage/factory.hpp"
#include "exec/stage/torch_stage.hpp"
#include "tests/catch.hpp"
#include "tests/exec/stage/models.hpp"
#include "tests/exec/stage/plain_model.hpp"
#include "tests/exec/stage/single_stage.hpp"

using namespace plumb;
using namespace plumb::exec;

namespace {

using test::fp64;
using test::sequences;

struct PlainBatch {
  at::Tensor inputs;
  at::Tensor targets;
};

PlainBatch text(const Corpus& corpus, std::int64_t sequence, std::int64_t first) {
  at::Tensor ids = at::empty({2, sequence + 1}, at::kLong);
  for (std::int64_t row = 0; row < 2; ++row) {
    const auto window = corpus.window(first + row, sequence);
    for (std::int64_t place = 0; place <= sequence; ++place) {
      ids[row][place] = static_cast<std::int64_t>(window[static_cast<std::size_t>(place)]);
    }
  }
  return {.inputs = ids.slice(1, 0, sequence), .targets = ids.slice(1, 1)};
}

// Drawn as one patch, an image is [channels, rows, columns].
PlainBatch images(Vision vision, std::int64_t first, at::ScalarType type) {
  vision.patch_size = vision.image_size;
  at::Tensor bytes = at::empty({2, vision.channels, vision.image_size, vision.image_size}, at::kByte);
  at::Tensor labels = at::empty({2}, at::kLong);
  for (std::int64_t row = 0; row < 2; ++row) {
    const at::Tensor image = bytes[row];
    draw_image(vision, 1, first + row,
               {image.mutable_data_ptr<unsigned char>(), static_cast<std::size_t>(image.numel())});
    labels[row] = image_label(vision, 1, first + row);
  }
  return {.inputs = (bytes.to(type) - 128) / 128, .targets = labels};
}

struct PlainResult {
  plain::Parameters parameters;
  double loss = 0;
};

PlainResult train_plainly(const Model& model, std::int64_t sequence, const Corpus& corpus, at::ScalarType type) {
  PlainResult result{.parameters = plain::draw(model, 1, type)};
  for (int microbatch = 0; microbatch < sequences; ++microbatch) {
    const PlainBatch batch =
        model.vision ? images(*model.vision, 2 * microbatch, type) : text(corpus, sequence, 2 * microbatch);
    const at::Tensor loss =
        plain::loss(model, result.parameters, batch.inputs, batch.targets) / static_cast<double>(sequences);
    loss.backward();
    result.loss += loss.item<double>();
  }
  return result;
}

double distance(const at::Tensor& a, const at::Tensor& b) {
  return at::linalg_vector_norm(a.to(at::kDouble) - b.to(at::kDouble)).item<double>();
}

void require_same_arithmetic(const Model& model, std::int64_t sequence) {
  INFO("model " << model.name << ", sequence " << sequence);
  const auto corpus = test::some_text();
  TorchStage exact(test::whole(model, sequence, fp64), corpus);
  TorchStage single(test::whole(model, sequence, Numerics{}), corpus);
  const double exact_loss = test::train_step(exact);
  const double single_loss = test::train_step(single);
  const PlainResult exact_plain = train_plainly(model, sequence, *corpus, at::kDouble);
  const PlainResult single_plain = train_plainly(model, sequence, *corpus, at::kFloat);
  CHECK(exact_loss == Approx(exact_plain.loss).epsilon(1e-12));
  CHECK(single_loss == Approx(exact_plain.loss).epsilon(1e-6));
  REQUIRE(exact.weights().size() == exact_plain.parameters.size());
  double total = 0;  // a key's bias has the gradient zero: only its distance beside all others' size says something
  for (const auto& entry : exact_plain.parameters) {
    total = std::hypot(total, at::linalg_vector_norm(entry.second.grad()).item<double>());
  }
  for (std::size_t index = 0; index < exact.weights().size(); ++index) {
    const Weight& weight = *exact.weights()[index];
    INFO(weight.name);
    const at::Tensor truth = exact_plain.parameters.at(weight.name).grad();
    const double size = at::linalg_vector_norm(truth).item<double>();
    CHECK(distance(weight.gradient, truth) <= 1e-9 * size + 1e-15 * total);
    const double plain_error = distance(single_plain.parameters.at(weight.name).grad(), truth);
    // The recurrence over single steps is another algorithm than the chunked one: its errors differ more.
    const double factor = weight.name.find("linear.") == std::string::npos ? 1.5 : 3.0;
    CHECK(distance(single.weights()[index]->gradient, truth) <=
          std::max(factor * plain_error, 0x1p-23 * (8 * size + total)));
  }
}

}  // namespace

TEST_CASE("Every executed model has the gradients of plain autograd") {
  at::set_num_threads(1);
  SECTION("llama: grouped-query attention and SwiGLU") { require_same_arithmetic(test::llama(2), 24); }
  SECTION("gpt2: learned positions, LayerNorm, biases, GELU, tied") {
    require_same_arithmetic(test::gpt2(2, true), 24);
  }
  SECTION("mingpt: untied") { require_same_arithmetic(test::gpt2(1, false), 24); }
  SECTION("mixtral: top-2 of 4 experts") { require_same_arithmetic(test::mixtral(2), 24); }
  SECTION("hybrid: sequences of several chunks, the last not full") { require_same_arithmetic(test::hybrid(), 150); }
  SECTION("hybrid: a sequence shorter than a chunk") { require_same_arithmetic(test::hybrid(), 40); }
  SECTION("gptj: one norm for both, pairs of neighbours rotated, a head with a bias") {
    require_same_arithmetic(test::gptj(2), 24);
  }
  SECTION("a part of each head rotated, by halves") {
    Model model = test::llama(1);
    std::get<SoftmaxAttention>(model.layers[0].mixer).rotary = Rotary{.dim = 6};
    require_same_arithmetic(model, 24);
  }
  SECTION("a tied head with a bias") {
    Model model = test::gpt2(1, true);
    model.head_bias = true;
    require_same_arithmetic(model, 24);
  }
  SECTION("vit: patches, class token, attention both ways, class head") { require_same_arithmetic(test::vit(2), 17); }
  SECTION("gated attention") {
    SoftmaxAttention gated = test::attention(4, 2, 8);
    gated.output_gate = true;
    require_same_arithmetic(test::model("gated", {test::layer(gated, test::swiglu_mlp)}), 24);
  }
}

// On a GPU another thread would compute the check's backward otherwise, with LibTorch's state of another thread.
TEST_CASE("a thread that computes as ranks do has its backwards on itself") {
  bool before = false;
  bool behind = true;
  std::thread([&] {
    before = c10::AutogradState::get_tls_state().get_multithreading_enabled();
    compute_on_one_thread();
    behind = c10::AutogradState::get_tls_state().get_multithreading_enabled();
  }).join();
  CHECK(before);
  CHECK_FALSE(behind);
}

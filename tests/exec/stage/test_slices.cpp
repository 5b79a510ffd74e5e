// Sequences in slices: each slice knows of those before it just what the whole sequence would.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "common/base/error.hpp"
#include "exec/host/memory.hpp"
#include "exec/stage/torch_stage.hpp"
#include "tests/catch.hpp"
#include "tests/exec/stage/models.hpp"
#include "tests/exec/stage/single_stage.hpp"

using namespace plumb;
using namespace plumb::exec;

namespace {

double size_of(const at::Tensor& x) { return at::linalg_vector_norm(x).item<double>(); }

// In fp64, so that what is left is the order of sums. A key's bias has the gradient zero: only its distance beside all
// others' size says something.
void require_like_whole(const TorchStageSettings& settings) {
  const std::int64_t sequence = settings.training.sequence;
  const int slices = settings.slices;
  INFO("model " << settings.model.name << ", sequence " << sequence << ", slices " << slices);
  const auto corpus = test::some_text();
  TorchStage expected(test::whole(settings.model, sequence, test::fp64), corpus);
  TorchStage sliced(settings, corpus);
  CHECK(test::train_step(sliced, slices) == Approx(test::train_step(expected)).epsilon(1e-12));
  for (int microbatch = 0; microbatch < test::sequences; ++microbatch) {
    double mean = 0;
    for (int slice = 0; slice < slices; ++slice) {
      const double share = settings.slice_tokens.empty()
                               ? 1.0 / slices
                               : static_cast<double>(settings.slice_tokens[static_cast<std::size_t>(slice)]) /
                                     static_cast<double>(sequence);
      mean += sliced.losses()[static_cast<std::size_t>(microbatch * slices + slice)] * share;
    }
    CHECK(mean == Approx(expected.losses()[static_cast<std::size_t>(microbatch)]).epsilon(1e-12));
  }
  double total = 0;
  for (const WeightPtr& weight : expected.weights()) total = std::hypot(total, size_of(weight->gradient));
  REQUIRE(total > 0);
  for (std::size_t index = 0; index < expected.weights().size(); ++index) {
    const Weight& weight = *expected.weights()[index];
    INFO(weight.name);
    const double distance = size_of(sliced.weights()[index]->gradient - weight.gradient);
    CHECK(distance <= 1e-10 * size_of(weight.gradient) + 1e-15 * total);
  }
}

void require_like_whole(const Model& model, std::int64_t sequence, int slices) {
  require_like_whole(test::whole(model, sequence, test::fp64, slices));
}

void require_like_whole(const Model& model, const std::vector<std::int64_t>& tokens) {
  const auto sequence = std::accumulate(tokens.begin(), tokens.end(), std::int64_t{0});
  require_like_whole(test::in_slices(test::whole(model, sequence, test::fp64), tokens));
}

Model only(const std::string& name, Mixer mixer) {
  return test::model(name, {test::layer(mixer, test::swiglu_mlp), test::layer(std::move(mixer), test::swiglu_mlp)});
}

Model delta_of_chunk(std::int64_t chunk) {
  GatedDelta delta = test::delta;
  delta.chunk = chunk;
  return only("delta", delta);
}

}  // namespace

TEST_CASE("Slices of a sequence have the losses and gradients of the whole") {
  at::set_num_threads(1);
  const int slices = GENERATE(2, 4);
  SECTION("grouped-query attention") { require_like_whole(test::llama(2), 32, slices); }
  SECTION("a window that reaches over several slices") {
    require_like_whole(only("wide", test::sliding(16)), 32, slices);
  }
  SECTION("a window that begins and ends within a slice") {
    require_like_whole(only("odd", test::sliding(11)), 32, slices);
    require_like_whole(only("narrow", test::sliding(3)), 32, slices);
  }
  SECTION("windows of one token, and of more than the sequence") {
    require_like_whole(only("one", test::sliding(1)), 32, slices);
    require_like_whole(only("all", test::sliding(100)), 32, slices);
  }
  SECTION("gated delta rule: slices of whole chunks") { require_like_whole(delta_of_chunk(8), 64, slices); }
  SECTION("gated delta rule: the last chunk of a slice not full") { require_like_whole(delta_of_chunk(7), 64, slices); }
  SECTION("gated delta rule: slices shorter than a chunk") { require_like_whole(delta_of_chunk(64), 64, slices); }
  SECTION("gated delta rule: slices shorter than the convolution") { require_like_whole(delta_of_chunk(4), 8, slices); }
  SECTION("gated delta rule: a convolution of one tap") {
    GatedDelta delta = test::delta;
    delta.conv_kernel = 1;
    require_like_whole(only("pointwise", delta), 32, slices);
  }
  SECTION("learned positions, LayerNorm, biases, a tied table") { require_like_whole(test::gpt2(2, true), 32, slices); }
  SECTION("untied") { require_like_whole(test::gpt2(2, false), 32, slices); }
  SECTION("mixture of experts") { require_like_whole(test::mixtral(2), 32, slices); }
  SECTION("parallel layers, a part of each head rotated") { require_like_whole(test::gptj(2), 32, slices); }
  SECTION("gated attention") {
    SoftmaxAttention gated = test::attention(4, 2, 8);
    gated.output_gate = true;
    require_like_whole(only("gated", gated), 32, slices);
  }
  SECTION("all kinds of layers") { require_like_whole(test::hybrid(), 64, slices); }
}

TEST_CASE("Slices of different lengths have the losses and gradients of the whole") {
  at::set_num_threads(1);
  const std::vector<std::int64_t> tokens = GENERATE(std::vector<std::int64_t>{13, 9, 7, 3},   // shorter and shorter
                                                    std::vector<std::int64_t>{1, 20, 2, 9},   // one token alone
                                                    std::vector<std::int64_t>{3, 4, 5, 20});  // and longer
  SECTION("grouped-query attention") { require_like_whole(test::llama(2), tokens); }
  SECTION("windows that begin and end anywhere") {
    for (const int window : {1, 3, 11, 16, 100}) require_like_whole(only("sliding", test::sliding(window)), tokens);
  }
  SECTION("gated delta rule") {
    for (const std::int64_t chunk : {4, 7, 64}) require_like_whole(delta_of_chunk(chunk), tokens);
  }
  SECTION("learned positions, LayerNorm, biases, a tied table") { require_like_whole(test::gpt2(2, true), tokens); }
  SECTION("parallel layers, a part of each head rotated") { require_like_whole(test::gptj(2), tokens); }
  SECTION("all kinds of layers") { require_like_whole(test::hybrid(), tokens); }
}

TEST_CASE("A stage expects of each slice its own bytes") {
  TorchStageSettings settings = test::in_slices(test::whole(test::llama(2), 32, Numerics{}), {24, 8});
  settings.blocks.first = 2;
  TorchStage stage(settings, test::some_text());
  stage.begin_step(0);
  const auto message = [&](std::int64_t tokens) {
    return to_payload(at::zeros({2, tokens, settings.model.hidden}, at::kFloat));
  };
  CHECK_THROWS_WITH(stage.forward(0, message(16)), ContainsSubstring("bytes of activations"));
  (void)stage.forward(0, message(24));
  CHECK_THROWS_WITH(stage.forward(1, message(24)), ContainsSubstring("bytes of activations"));
  (void)stage.forward(1, message(8));
}

TEST_CASE("In bf16 slices are as near to fp64 as the whole sequence is") {
  const Model model = GENERATE(test::llama(2), only("sliding", test::sliding(11)), delta_of_chunk(16));
  INFO(model.name);
  const int slices = 4;
  const auto corpus = test::some_text();
  const Numerics bf16 = numerics_of(ElementType::bf16);
  TorchStage exact(test::whole(model, 64, numerics_of(ElementType::fp64), 1), corpus);
  TorchStage whole(test::whole(model, 64, bf16), corpus);
  TorchStage sliced(test::whole(model, 64, bf16, slices), corpus);
  for (std::size_t index = 0; index < exact.weights().size(); ++index) {
    exact.weights()[index]->value.copy_(whole.weights()[index]->value);
  }
  (void)test::train_step(exact);
  (void)test::train_step(whole);
  (void)test::train_step(sliced, slices);
  for (std::size_t index = 0; index < exact.weights().size(); ++index) {
    const Weight& weight = *exact.weights()[index];
    INFO(weight.name);
    const auto error = [&](const TorchStage& of) { return size_of(of.weights()[index]->gradient - weight.gradient); };
    CHECK(error(sliced) <= 1.5 * error(whole) + 0x1p-7 * size_of(weight.gradient));
  }
}

TEST_CASE("A recomputed stage has the same bits with slices, too") {
  const int slices = 4;
  const auto corpus = test::some_text();
  TorchStageSettings settings = test::whole(test::hybrid(), 32, Numerics{}, slices);
  TorchStage kept(settings, corpus);
  settings.recomputed = true;
  TorchStage redone(settings, corpus);
  CHECK(test::train_step(redone, slices, true) == test::train_step(kept, slices));
  for (std::size_t index = 0; index < kept.weights().size(); ++index) {
    INFO(kept.weights()[index]->name);
    CHECK(at::equal(redone.weights()[index]->gradient, kept.weights()[index]->gradient));
  }
}

TEST_CASE("Slices out of order are refused") {
  TorchStage stage(test::whole(test::llama(1), 32, Numerics{}, 2), test::some_text());
  stage.begin_step(0);
  CHECK_THROWS_WITH(stage.forward(1, {}), ContainsSubstring("without what slice 0 carries"));
  (void)stage.forward(0, {});
  (void)stage.forward(1, {});
  CHECK_THROWS_WITH(stage.input_gradient(0, {}), ContainsSubstring("still to come"));
}

TEST_CASE("The activations of all slices take the memory of the whole sequence's") {
  constexpr int rank = 903;  // that no other test uses
  const auto kept_by = [](const Model& model, int slices) {
    Bytes kept;
    std::thread([&] {
      track_memory_of_thread(rank);
      TorchStage stage(test::whole(model, 256, Numerics{}, slices), test::some_text());
      stage.begin_step(0);
      const Bytes before = current_memory(rank);
      for (int slice = 0; slice < slices; ++slice) (void)stage.forward(slice, {});
      kept = current_memory(rank) - before;
    }).join();
    return static_cast<double>(kept.value);
  };
  // Keys and values of all earlier slices once more in each of 8 would be 3.5 times theirs, a mask per layer more.
  for (const Model& model : {test::llama(2), only("sliding", test::sliding(40))}) {
    CHECK(kept_by(model, 8) <= 1.01 * kept_by(model, 1));
  }
  // States and the convolution's last inputs come on top, once a slice.
  for (const std::int64_t chunk : {16, 64}) {
    CHECK(kept_by(delta_of_chunk(chunk), 8) <= 1.15 * kept_by(delta_of_chunk(chunk), 1));
  }
}

// What is not executed yet is refused by name; texts that do not do are refused with their sizes.
#include "exec/stage/supported.hpp"

#include <filesystem>
#include <fstream>

#include "common/base/error.hpp"
#include "exec/data.hpp"
#include "tests/catch.hpp"
#include "tests/exec/stage/models.hpp"

using namespace plumb;
using namespace plumb::exec;

namespace {

Training training_of(std::int64_t sequence) {
  Training training;
  training.sequence = sequence;
  return training;
}

std::string refusal(const Model& model, const Training& training = training_of(32)) {
  try {
    require_executed(model, training);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

Model with_mixer(Mixer mixer) {
  Model model = test::llama(3);
  model.layers[1].mixer = std::move(mixer);
  return model;
}

}  // namespace

TEST_CASE("Executed kinds are not refused") {
  CHECK(refusal(test::llama(1)).empty());
  CHECK(refusal(test::gpt2(2, true)).empty());
  CHECK(refusal(test::mixtral(2)).empty());
  CHECK(refusal(test::hybrid()).empty());
}

TEST_CASE("Kinds that are not executed yet are refused with their layer") {
  for (const Mixer& mixer : {Mixer(LatentAttention{.heads = 4}), Mixer(ChannelGatedDelta{.heads = 4}),
                             Mixer(Lightning{.heads = 4}), Mixer(Mamba{.inner = 4}), Mixer(Mamba2{.heads = 4})}) {
    const std::string text = refusal(with_mixer(mixer));
    CHECK_THAT(text, ContainsSubstring("layer 1"));
    CHECK_THAT(text, ContainsSubstring("is not executed yet"));
  }
  SoftmaxAttention other = test::attention(4, 2, 8);
  other.sinks = true;
  CHECK_THAT(refusal(with_mixer(other)), ContainsSubstring("sinks"));
  other = test::attention(4, 2, 8);
  other.causal = false;
  CHECK_THAT(refusal(with_mixer(other)), ContainsSubstring("bidirectional"));
  other = test::attention(4, 2, 8);
  other.value_dim = 16;
  CHECK_THAT(refusal(with_mixer(other)), ContainsSubstring("values"));

  Model model = test::llama(1);
  model.layers[0].mlp = DenseMlp{.width = 8, .activation = Activation::relu2};
  CHECK_THAT(refusal(model), ContainsSubstring("activation"));
  model = test::mixtral(1);
  std::get<MoeMlp>(model.layers[0].mlp).router_bias = true;
  CHECK_THAT(refusal(model), ContainsSubstring("biases"));
  model = test::llama(1);
  model.layers[0].norms = 4;
  CHECK_THAT(refusal(model), ContainsSubstring("4 norms"));
  model = test::llama(1);
  model.layers[0].parallel = true;
  CHECK_THAT(refusal(model), ContainsSubstring("same norm"));
  model = test::llama(1);
  model.mtp_modules = 1;
  CHECK_THAT(refusal(model), ContainsSubstring("multi-token"));
  model = test::llama(1);
  model.head_bias = true;
  CHECK_THAT(refusal(model), ContainsSubstring("head"));
}

TEST_CASE("Training settings that are not executed yet are refused") {
  CHECK_THAT(refusal(test::gpt2(1, true), training_of(129)), ContainsSubstring("128"));
  Training training = training_of(32);
  training.precision = ElementType::fp16;
  CHECK_THAT(refusal(test::llama(1), training), ContainsSubstring("fp16") || ContainsSubstring("bf16"));
  training = training_of(32);
  training.recompute.mode = RecomputeMode::selective;
  CHECK_THAT(refusal(test::llama(1), training), ContainsSubstring("recompute"));
}

TEST_CASE("A text is a ring of bytes, one window a sequence") {
  const Corpus corpus("abcdefghij");
  const auto text = [&](std::int64_t index, std::int64_t length) {
    const auto window = corpus.window(index, length);
    return std::string(window.begin(), window.end());
  };
  CHECK(text(0, 3) == "abcd");
  CHECK(text(1, 3) == "defg");  // the target of one sequence's last token is the first token of the next
  CHECK(text(2, 3) == "ghij");
  CHECK(text(1000000007, 9) == "abcdefghij");
  for (std::int64_t index = 0; index < 50; ++index) CHECK(text(index, 4).size() == 5);
}

TEST_CASE("A text shorter than one sequence is refused with both sizes") {
  const std::filesystem::path path = std::filesystem::temp_directory_path() / "plumb-short-text";
  std::ofstream(path) << std::string(32, 'x');
  const Model model = test::llama(1);
  CHECK_THROWS_WITH(load_corpus(path, model, 32), ContainsSubstring("33") && ContainsSubstring("found 32"));
  CHECK(load_corpus(path, model, 31)->size() == 32);
  std::filesystem::remove(path);
  CHECK_THROWS_AS(load_corpus(path, model, 31), InputError);
  CHECK_THROWS_AS(load_corpus(std::filesystem::temp_directory_path(), model, 31), InputError);
  Model narrow = model;
  narrow.vocabulary = 255;
  CHECK_THROWS_WITH(load_corpus({}, narrow, 31), ContainsSubstring("256"));
  CHECK(load_corpus({}, model, 1024)->size() > 10000);
}

// What is not executed yet is refused by name; texts that do not do are refused with their sizes.
#include "exec/stage/supported.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <vector>

#include "common/base/error.hpp"
#include "common/model/files/read_model.hpp"
#include "common/schedule/generators/registry.hpp"
#include "exec/data/data.hpp"
#include "exec/data/images.hpp"
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
  CHECK(refusal(test::gptj(2)).empty());
  CHECK(refusal(test::vit(2), training_of(17)).empty());
}

TEST_CASE("The small models that plumb ships are executed") {
  for (const std::string name : {"tiny-gpt-j", "tiny-hybrid", "tiny-vit"}) {
    const Model model = read_model(std::filesystem::path(PLUMB_SOURCE_DIR) / "scenarios/models" / (name + ".yaml"));
    CHECK(refusal(model, training_of(default_sequence(model))).empty());
  }
}

TEST_CASE("Kinds that are not executed yet are refused with their layer") {
  for (const Mixer& mixer : {Mixer(LatentAttention{.heads = 4}), Mixer(ChannelGatedDelta{.heads = 4}),
                             Mixer(Lightning{.heads = 4}), Mixer(Mamba{.inner = 4}), Mixer(Mamba2{.heads = 4})}) {
    const std::string text = refusal(with_mixer(mixer));
    CHECK_THAT(text, ContainsSubstring("layer 1"));
    CHECK_THAT(text, ContainsSubstring("is not executed yet"));
    CHECK_THAT(text, ContainsSubstring("executed: full, sliding and linear attention"));
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
  CHECK_THAT(refusal(model), ContainsSubstring("the activation relu2"));
  model.layers[0].mlp = DenseMlp{.width = 8, .activation = Activation::geglu};
  const std::string geglu = refusal(model);
  CHECK_THAT(geglu, ContainsSubstring("the activation geglu is not executed yet") &&
                        ContainsSubstring("executed: the activations swiglu, gelu and gelu_erf"));
  CHECK_THAT(geglu, !ContainsSubstring("linear attention"));
  model = test::mixtral(1);
  std::get<MoeMlp>(model.layers[0].mlp).router_bias = true;
  CHECK_THAT(refusal(model), ContainsSubstring("biases"));
  model = test::llama(1);
  model.layers[0].norms = 4;
  CHECK_THAT(refusal(model), ContainsSubstring("4 norms"));
  model = test::llama(1);
  model.layers[0].parallel = true;
  CHECK_THAT(refusal(model), ContainsSubstring("2 norms"));
  model = test::llama(1);
  model.mtp_modules = 1;
  CHECK_THAT(refusal(model), ContainsSubstring("multi-token") && ContainsSubstring("mtp: 0"));
  model = test::vit(1);
  model.positions = Positions::rope;
  CHECK_THAT(refusal(model, training_of(17)), ContainsSubstring("images"));
}

TEST_CASE("Training settings that are not executed yet are refused") {
  CHECK_THAT(refusal(test::gpt2(1, true), training_of(129)), ContainsSubstring("128"));
  CHECK_THAT(refusal(test::vit(1), training_of(16)), ContainsSubstring("expected 17"));
  Training training = training_of(32);
  training.precision = ElementType::fp16;
  CHECK_THAT(refusal(test::llama(1), training), ContainsSubstring("fp16") || ContainsSubstring("bf16"));
  training = training_of(32);
  training.recompute.mode = RecomputeMode::selective;
  CHECK(refusal(test::llama(1), training).empty());
  training.recompute = {.mode = RecomputeMode::first_layers, .layers = 1};
  CHECK_THAT(refusal(test::llama(1), training),
             ContainsSubstring("training") && ContainsSubstring("recompute: {layers: n} is not executed yet"));
}

TEST_CASE("Slices are refused where a slice would need later ones, or is no whole number of tokens") {
  const auto refusal_of = [](const Model& model, std::int64_t sequence, const Schedule& schedule) -> std::string {
    try {
      require_slices_executed(model, training_of(sequence), schedule);
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  };
  const Schedule sliced = generate_schedule("seq-1f1b", {.ranks = 2, .microbatches = 2, .slices = 4});
  CHECK(refusal_of(test::hybrid(), 32, sliced).empty());
  CHECK(refusal_of(test::vit(2), 17, generate_schedule("1f1b", {.ranks = 2, .microbatches = 2})).empty());
  CHECK_THAT(refusal_of(test::vit(2), 20, sliced), ContainsSubstring("image"));
  SoftmaxAttention both_ways = test::attention(4, 2, 8);
  both_ways.causal = false;
  CHECK_THAT(refusal_of(with_mixer(both_ways), 32, sliced),
             ContainsSubstring("layer 1") && ContainsSubstring("causal"));
  CHECK_THAT(refusal_of(test::llama(1), 30, sliced), ContainsSubstring("multiple of the 4 slices"));
  Schedule updated = sliced;
  updated.update_every = 4;
  CHECK_THAT(refusal_of(test::llama(1), 32, updated), ContainsSubstring("updates weights within a step"));
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
  CHECK(load_corpus({}, model, 1024)->size() > 10000);
  CHECK(load_corpus({}, test::vit(1), 17)->size() == 0);
  CHECK_THROWS_WITH(load_corpus(path, test::vit(1), 17), ContainsSubstring("training.seed"));
}

TEST_CASE("a vocabulary below 256 counts the bytes of the text in their order, as minGPT does") {
  const std::filesystem::path path = std::filesystem::temp_directory_path() / "plumb-few-characters";
  std::ofstream(path) << "banana nab";
  Model narrow = test::llama(1);
  narrow.vocabulary = 4;  // ' ', 'a', 'b', 'n'
  const auto corpus = load_corpus(path, narrow, 4);
  const auto window = corpus->window(0, 9);
  CHECK(std::vector<int>(window.begin(), window.end()) == std::vector<int>{2, 1, 3, 1, 3, 1, 0, 3, 1, 2});
  narrow.vocabulary = 3;
  CHECK_THROWS_WITH(load_corpus(path, narrow, 4),
                    ContainsSubstring("has 4 different bytes, the model's vocabulary is 3"));
  std::filesystem::remove(path);
  narrow.vocabulary = 65;  // minGPT's character model
  const auto licences = load_corpus({}, narrow, 1024);
  CHECK(std::ranges::all_of(licences->text(), [](unsigned char id) { return id < 65; }));
  CHECK(licences->size() > 10000);
}

TEST_CASE("An image is drawn from the seed and its number, and is the same in other patches") {
  const Vision small{.image_size = 8, .patch_size = 2, .channels = 3, .classes = 5};
  const auto drawn = [](const Vision& vision, std::uint64_t seed, std::int64_t number) {
    std::vector<unsigned char> bytes(static_cast<std::size_t>(vision.channels * vision.image_size * vision.image_size));
    draw_image(vision, seed, number, bytes);
    return bytes;
  };
  CHECK(drawn(small, 1, 7) == drawn(small, 1, 7));
  CHECK(drawn(small, 1, 7) != drawn(small, 1, 8));
  CHECK(drawn(small, 1, 7) != drawn(small, 2, 7));
  Vision whole = small;
  whole.patch_size = 8;
  const auto image = drawn(whole, 1, 7);  // one patch: channels, rows, columns
  const auto patches = drawn(small, 1, 7);
  for (std::size_t patch = 0; patch < 16; ++patch) {
    for (std::size_t channel = 0; channel < 3; ++channel) {
      for (std::size_t pixel = 0; pixel < 4; ++pixel) {
        const std::size_t row = patch / 4 * 2 + pixel / 2;
        const std::size_t column = patch % 4 * 2 + pixel % 2;
        CHECK(patches[(patch * 3 + channel) * 4 + pixel] == image[(channel * 8 + row) * 8 + column]);
      }
    }
  }
}

TEST_CASE("Labels are spread over the classes, and an image is nearest to the others of its class") {
  const Vision vision{.image_size = 16, .patch_size = 4, .channels = 3, .classes = 4};
  std::vector<int> seen(4, 0);
  std::vector<std::vector<unsigned char>> images;
  constexpr std::int64_t count = 40;
  for (std::int64_t number = 0; number < count; ++number) {
    ++seen.at(static_cast<std::size_t>(image_label(vision, 3, number)));
    images.emplace_back(3 * 16 * 16);
    draw_image(vision, 3, number, images.back());
  }
  for (const int times : seen) CHECK(times > 2);
  const auto distance = [&](std::size_t a, std::size_t b) {
    double sum = 0;
    for (std::size_t i = 0; i < images[a].size(); ++i) {
      const double difference = static_cast<double>(images[a][i]) - static_cast<double>(images[b][i]);
      sum += difference * difference;
    }
    return sum;
  };
  for (std::size_t a = 0; a < count; ++a) {
    std::size_t nearest = a == 0 ? 1 : 0;
    for (std::size_t b = 0; b < count; ++b) {
      if (b != a && distance(a, b) < distance(a, nearest)) nearest = b;
    }
    CHECK(image_label(vision, 3, static_cast<std::int64_t>(a)) ==
          image_label(vision, 3, static_cast<std::int64_t>(nearest)));
  }
}

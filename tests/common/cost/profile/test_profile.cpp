// A profile survives its file, blocks are keyed by shape, and what is wrong in a file is named by line.
#include "common/cost/profile/profile.hpp"

#include <cstdlib>
#include <filesystem>
#include <limits>

#include <unistd.h>

#include "common/base/error.hpp"
#include "common/base/files.hpp"
#include "tests/catch.hpp"

using namespace plumb;

namespace {

Layer layer_of(std::int64_t width, std::optional<std::int64_t> window = std::nullopt) {
  return {.mixer = SoftmaxAttention{.heads = 4, .kv_heads = 2, .head_dim = 16, .value_dim = 16, .window = window},
          .mlp = DenseMlp{.width = width}};
}

Model small_model() {
  return {.name = "small",
          .vocabulary = 100,
          .hidden = 64,
          .layers = {layer_of(128), layer_of(128), layer_of(256), layer_of(128, 8)}};
}

MeasuredBlock block_of(const std::string& name, double forward) {
  return {.block = name,
          .cost = {.forward = {forward},
                   .input_gradient = {0.1 + forward},
                   .weight_gradient = {1.0 / 3},
                   .optimizer = {1e-5},
                   .parameters = 12345,
                   .parameter_bytes = {49380},
                   .gradient_bytes = {49380},
                   .optimizer_bytes = {98760},
                   .kept_bytes = {1 << 20},
                   .kept_for_weight_bytes = {0},
                   .forward_workspace_bytes = {7},
                   .input_gradient_workspace_bytes = {8},
                   .weight_gradient_workspace_bytes = {9}},
          .spread_fraction = 0.0123,
          .count = 1};
}

Profile profile_of(const Model& model, double forward) {
  Profile profile{.machine = "a \"quoted\" host: x86, 2 cores",
                  .versions = "LibTorch 2.13",
                  .busy_ranks = 2,
                  .samples = 15,
                  .rejected = 2,
                  .shapes = {.model = model.name,
                             .model_digest = model_digest(model),
                             .sequence = 128,
                             .microbatch = 2,
                             .precision = ElementType::bf16},
                  .blocks = {},
                  .transfer = {.latency = {1.1e-5}, .bandwidth = {3.3e9}},
                  .transport = "local"};
  for (const int block : {0, 1, 3, 4, 5}) profile.blocks.push_back(block_of(block_key(model, block), forward));
  profile.blocks[1].count = 2;  // layers 1 and 2 are alike
  return profile;
}

// A file of the test's own that goes away with it.
struct TemporaryFile {
  explicit TemporaryFile(const std::string& content) { write_file(path, content); }
  ~TemporaryFile() { std::filesystem::remove(path); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  std::filesystem::path path =
      std::filesystem::path(PLUMB_BINARY_DIR) / ("profile" + std::to_string(::getpid()) + ".yaml");
};

std::string message_for(const std::string& content) {
  const TemporaryFile file(content);
  try {
    (void)read_profile(file.path);
  } catch (const InputError& error) {
    std::string text = error.what();
    return text.substr(text.find(".yaml") + 5);
  }
  return "no error";
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("a profile is read back equal, whatever its texts and numbers") {
  Profile profile = profile_of(small_model(), 0.001234567890123);
  {
    const TemporaryFile file(to_yaml(profile));
    CHECK(read_profile(file.path) == profile);
  }
  profile.transfer.bandwidth = {std::numeric_limits<double>::infinity()};  // one rank: nothing was measured
  const TemporaryFile file(to_yaml(profile));
  CHECK(read_profile(file.path) == profile);
}

TEST_CASE("rates of GPUs are read back, and what is wrong in one is named by line") {
  Profile profile = profile_of(small_model(), 0.5);
  profile.transport = "nccl";
  profile.rates = {{.operation = "copy",
                    .ranks = 1,
                    .cost = {.latency = {0}, .bandwidth = {2.1e12}},
                    .samples = {{{4096}, {2e-6}}, {{67108864}, {3.2e-5}}}},
                   {.operation = "all-reduce",
                    .ranks = 8,
                    .cost = {.latency = {1.7e-5}, .bandwidth = {2.3e11}},
                    .samples = {{{4096}, {1.8e-5}}}}};
  const std::string yaml = to_yaml(profile);
  const TemporaryFile file(yaml);
  CHECK(read_profile(file.path) == profile);
  CHECK_THAT(message_for(replaced(yaml, "[4096,2e-06]", "[4096]")), ContainsSubstring("expected bytes and seconds"));
  CHECK_THAT(message_for(replaced(yaml, "ranks: 8", "ranks: 0")), ContainsSubstring("ranks"));
  CHECK_THAT(message_for(replaced(yaml, "ranks: 8", "rank: 8")), ContainsSubstring("rank"));
}

TEST_CASE("texts that are not UTF-8 do not stop a profile from being written") {
  Profile profile = profile_of(small_model(), 0.5);
  profile.machine = "host \xff";
  const TemporaryFile file(to_yaml(profile));
  CHECK(read_profile(file.path).machine == "host \xef\xbf\xbd");
}

TEST_CASE("blocks of equal shape have one key, of different shape different ones") {
  const Model model = small_model();
  CHECK(block_key(model, 0) == "embedding");
  CHECK(block_key(model, 5) == "head");
  CHECK(block_key(model, 1) == block_key(model, 2));
  CHECK(block_key(model, 1) != block_key(model, 3));  // MLP width
  CHECK(block_key(model, 1) != block_key(model, 4));  // window
  Model wider = model;
  wider.hidden = 128;
  CHECK(block_key(wider, 1) != block_key(model, 1));
  CHECK_THAT(block_key(model, 1), ContainsSubstring("full/dense hidden=64"));
}

TEST_CASE("a model's digest depends on every shape and not on its name") {
  const Model model = small_model();
  Model renamed = model;
  renamed.name = "other";
  CHECK(model_digest(renamed) == model_digest(model));
  CHECK(model_digest(model).size() == 16);

  std::vector<Model> changed(5, model);
  changed[0].vocabulary += 1;
  changed[1].tied_embeddings = true;
  changed[2].layers.pop_back();
  std::swap(changed[3].layers[0], changed[3].layers[2]);
  std::get<SoftmaxAttention>(changed[4].layers[1].mixer).qk_norm = true;
  for (const Model& other : changed) CHECK(model_digest(other) != model_digest(model));
}

TEST_CASE("how far the machine moved: |change| over all blocks, by how often they occur") {
  const Model model = small_model();
  const Profile before = profile_of(model, 0.5);
  CHECK(moved_fraction(before, before) == 0);
  Profile after = before;
  after.blocks[1].cost.forward += Seconds{0.1};  // of layers 1 and 2
  after.blocks[2].cost.forward -= Seconds{0.1};  // of layer 3: adds up, does not cancel
  const double block_time = 0.5 + 0.6 + 1.0 / 3;
  CHECK(moved_fraction(before, after) == Approx(3 * 0.1 / (6 * block_time)));

  after.blocks.pop_back();
  CHECK_THROWS_WITH(moved_fraction(before, after), ContainsSubstring("has no block 'head'"));
  after.shapes.sequence *= 2;
  CHECK_THROWS_WITH(moved_fraction(before, after), ContainsSubstring("not of the same shapes"));
}

TEST_CASE("faults of a profile are reported with their line") {
  const std::string good = to_yaml(profile_of(small_model(), 0.25));
  CHECK_THAT(message_for(replaced(good, "version: 2", "version: 7")),
             ContainsSubstring(":2:10: this is a profile of version 7, expected 2"));
  CHECK_THAT(message_for(replaced(good, "samples:", "sample:")), ContainsSubstring("did you mean 'samples'?"));
  CHECK_THAT(message_for(replaced(good, "forward_s: 0.25", "forward_s: -1")), ContainsSubstring(":23:16: "));
  CHECK_THAT(message_for(replaced(good, "forward_s: 0.25", "forward_s: .nan")), ContainsSubstring(":23:16: "));
  CHECK_THAT(message_for(replaced(good, "parameters: 12345", "parameters: 1e300")), ContainsSubstring(":29:17: "));
  CHECK_THAT(message_for(replaced(good, "precision: \"bf16\"", "precision: \"bff16\"")),
             ContainsSubstring("did you mean 'bf16'?"));
  CHECK_THAT(message_for(replaced(good, "block: \"head\"", "block: \"embedding\"")), ContainsSubstring("stands twice"));
  for (std::size_t length = 0; length + 1 < good.size(); length += 61) {
    std::string cut = good.substr(0, length);
    cut.erase(cut.find_last_not_of(" \n") + 1);
    const bool between_blocks = cut.ends_with("weight_gradient_workspace_bytes: 9");
    if (between_blocks) continue;  // a file cut there is whole; whoever needs the block then says that it is missing
    INFO("cut after:\n" << good.substr(0, length));
    CHECK(message_for(good.substr(0, length)) != "no error");
  }
}

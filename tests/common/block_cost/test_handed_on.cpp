// What slices of a sequence hand to each other, by hand: keys and values, states, and the gradients that come back.
#include "common/block_cost/handed_on.hpp"

#include <string>

#include "common/block_cost/block_costs.hpp"
#include "tests/catch.hpp"
#include "tests/common/plan/scenarios.hpp"

using namespace plumb;
using namespace plumb::testing;

namespace {

constexpr std::int64_t sequence = 4096;
constexpr std::int64_t microbatch = 2;
constexpr std::int64_t element = 2;  // bf16

// Software without `composed` runs kernels.
Scenario scenario_of(const std::string& layer, const std::string& software = "megatron-2022") {
  Scenario scenario = read_text(
      "model: {vocabulary: 1024, hidden: 2048, heads: 16, kv_heads: 4, ffn: 8192, window: 512, layers: \"" + layer +
      "*2\"}\ncluster: {machine: dgx-a100, ranks: 1}\ntraining: {sequence: " + std::to_string(sequence) +
      ", microbatch: 2, precision: bf16, global_batch: 8}\nschedule: 1f1b\nsoftware: " + software + "\n");
  return scenario;
}

Scenario with_mixer(Mixer mixer) {
  Scenario scenario = scenario_of("none/dense");
  for (Layer& layer : scenario.model.layers) {
    layer.mixer = mixer;
    layer.norms = 2;
  }
  return scenario;
}

const GatedDelta delta{.key_heads = 16, .value_heads = 32, .key_dim = 128, .value_dim = 96, .conv_kernel = 4};

// Elements of a state, channels of a convolution with 4 taps.
struct Recurrence {
  Mixer mixer;
  std::int64_t state;
  std::int64_t channels;
};

const std::vector<std::vector<Slice>> cuts{equal_slices(sequence, 2), equal_slices(sequence, 8),
                                           slices_of(std::vector<std::int64_t>{1536, 1024, 896, 640})};

}  // namespace

// Heads × key width × value width in fp32, and three tokens of the convolution's inputs.
TEST_CASE(
    "a recurrence hands its state and its convolution's last inputs to the next slice, and their gradients back") {
  const std::vector<Recurrence> all{
      {delta, 32 * 128 * 96, 2 * 16 * 128 + 32 * 96},
      {ChannelGatedDelta{.heads = 16, .head_dim = 128}, 16 * 128 * 128, 3 * 16 * 128},
      {Lightning{.heads = 16, .head_dim = 64}, 16 * 64 * 64, 0},
      {Mamba{.inner = 4096, .state = 16, .dt_rank = 128}, 4096 * 16, 4096},
      {Mamba2{.heads = 64, .head_dim = 64, .groups = 8, .state = 128}, 64 * 64 * 128, 64 * 64 + 2 * 8 * 128}};
  for (const Recurrence& of : all) {
    const Scenario scenario = with_mixer(of.mixer);
    for (const std::vector<Slice>& slices : cuts) {
      CAPTURE(kind_name(scenario.model.layers[0]), slices.size());
      const std::vector<HandedOn> handed = handed_on(scenario, 1, slices);
      REQUIRE(handed.size() == slices.size());
      const std::int64_t state = microbatch * 4 * of.state;
      const std::int64_t inputs = microbatch * element * 3 * of.channels;
      for (std::size_t n = 0; n < slices.size(); ++n) {
        const bool last = n + 1 == slices.size();
        CHECK(handed[n].all.value == (last ? 0 : state + inputs));
        CHECK(handed[n].beside.value == (last ? 0 : state));
        CHECK(handed[n].gradients_left.value == (n == 0 ? 0 : state + inputs));
      }
    }
  }
}

// For each slice, the last one with a query that sees one of its keys, token by token.
TEST_CASE("the last slice that sees keys and values is the first to make their gradients") {
  constexpr std::int64_t per_token = microbatch * element * 2 * 4 * 128;  // keys and values of 4 heads
  for (const std::int64_t window :
       {sequence, std::int64_t{1}, std::int64_t{2}, std::int64_t{513}, std::int64_t{1300}}) {
    Scenario scenario = scenario_of("full/dense");
    for (Layer& layer : scenario.model.layers) {
      auto& attention = std::get<SoftmaxAttention>(layer.mixer);
      if (window < sequence) attention.window = window;
    }
    for (const std::vector<Slice>& slices : cuts) {
      CAPTURE(window, slices.size());
      const std::vector<HandedOn> handed = handed_on(scenario, 1, slices);
      std::vector<std::int64_t> left(slices.size(), 0);
      for (std::size_t n = 0; n < slices.size(); ++n) {
        std::int64_t seen = 0;  // its last keys, which its last one's neighbours see
        std::size_t last = n;
        for (std::size_t later = n + 1; later < slices.size(); ++later) {
          for (std::int64_t key = slices[n].before; key < slices[n].before + slices[n].tokens; ++key) {
            if (slices[later].before - key >= window) continue;
            last = later;
            if (later == n + 1) ++seen;
          }
        }
        CHECK(handed[n].all.value == per_token * seen);
        left[last] += per_token * seen;
        CHECK(handed[n].beside.value == 0);  // attention keeps its keys and values
      }
      for (std::size_t n = 0; n < slices.size(); ++n) CHECK(handed[n].gradients_left.value == left[n]);
    }
  }
}

TEST_CASE("a whole sequence hands nothing on, nor do blocks that see one token at a time") {
  const Scenario scenario = scenario_of("none/dense");
  for (const std::size_t block : {0, 1, 2, 3}) CHECK(handed_on(scenario, block, cuts[1]).empty());
  CHECK(handed_on(with_mixer(delta), 1, {Slice{.tokens = sequence}}).empty());
}

TEST_CASE("a tensor rank hands on its own heads") {
  for (Scenario scenario : {with_mixer(delta), scenario_of("full/dense")}) {
    const std::vector<HandedOn> whole = handed_on(scenario, 1, cuts[1]);
    scenario.layout.tensor = {.degree = 4, .sequence_parallel = true};
    const std::vector<HandedOn> part = handed_on(scenario, 1, cuts[1]);
    for (std::size_t n = 0; n < whole.size(); ++n) {
      CHECK(part[n].all == whole[n].all / 4);
      CHECK(part[n].beside == whole[n].beside / 4);
      CHECK(part[n].gradients_left == whole[n].gradients_left / 4);
    }
  }
}

// Composed operations keep the states of all chunks of 64 tokens: each the one that it hands on, the last slice's last
// chunk none.
TEST_CASE("the state that a slice hands on is kept once, by kernels for the next slice alone") {
  const int count = 4;
  const std::vector<Slice> slices = equal_slices(sequence, count);
  for (const char* software : {"megatron-2022", "plumb"}) {
    Scenario scenario = scenario_of("full/dense", software);
    for (Layer& layer : scenario.model.layers) layer.mixer = delta;
    const bool composed = scenario.software.composed;
    CHECK(composed == (std::string(software) == "plumb"));
    CAPTURE(software);
    const Bytes whole = block_costs(scenario, microbatch)[1].kept_bytes;
    const ComputeCost layer = block_costs(scenario, microbatch, slices)[1];
    Bytes all;
    for (int slice = 0; slice < count; ++slice) all += bytes_of(layer, slice).kept;
    const std::int64_t state = microbatch * 4 * 32 * 128 * 96;
    // The convolution has three more inputs and outputs in each slice but the first; of a chunk that begins with a
    // state, not of the first of all, its queries (keys' width) and writes (values') count in composed operations.
    const std::int64_t rows = (count - 1) * microbatch * 2 * element * 3 * (2 * 16 * 128 + 32 * 96);
    const std::int64_t states = composed ? 0 : (count - 1) * state;
    CHECK((all - whole).value == Approx(rows + states).margin(count));
    // Of all but the last slice as much is there until I ends.
    CHECK(bytes_of(layer, 0).gradients_taken == handed_on(scenario, 1, slices)[0].all);
    if (!composed) {
      CHECK((bytes_of(layer, 1).kept - bytes_of(layer, 3).kept).value == Approx(state).margin(2));
    }
  }
}

TEST_CASE("a recurrence that is redone keeps its input, its state and its convolution's last inputs") {
  Scenario scenario = with_mixer(delta);
  scenario.training.recompute = {.mode = RecomputeMode::first_layers, .layers = 1};
  for (const std::vector<Slice>& slices : cuts) {
    const ComputeCost redone = redone_in_backward(block_costs(scenario, microbatch, slices)[1]);
    for (std::size_t n = 0; n < slices.size(); ++n) {
      const std::int64_t handed =
          n + 1 == slices.size() ? 0 : microbatch * (4 * 32 * 128 * 96 + element * 3 * (2 * 16 * 128 + 32 * 96));
      CHECK(bytes_of(redone, static_cast<int>(n)).kept.value ==
            microbatch * element * 2048 * slices[n].tokens + handed);
    }
  }
}

// The 1d layout as its papers describe it, gradients that stay partial, and what is said of a move that is not
// declared.
#include "common/placement/placed_block.hpp"

#include <algorithm>

#include "common/base/error.hpp"
#include "tests/catch.hpp"
#include "tests/common/placement/all_models.hpp"

using namespace plumb;

namespace {

constexpr std::int64_t b = 2, s = 32, h = 64, a = 8, width = 256;
constexpr Tokens microbatch{.sequences = b, .sequence = s};

Model llama() {
  Model model{.name = "llama", .vocabulary = 512, .hidden = h};
  const SoftmaxAttention attention{.heads = a, .kv_heads = a, .head_dim = h / a, .value_dim = h / a, .qk_norm = true};
  model.layers = {{.mixer = attention, .mlp = DenseMlp{.width = width}}};
  return model;
}

struct Placed {
  Mesh mesh;
  PlacedBlock block;
};
Placed placed(const TensorLayout& tensor, std::size_t block = 1, const Model& model = llama()) {
  Layout layout;
  layout.tensor = tensor;
  Placed made{.mesh = mesh_of(layout), .block = {}};
  const std::vector<Site> sites = block_sites(model, block, microbatch);
  made.block = place_block(made.mesh, layout_table(made.mesh, tensor, sites), sites);
  return made;
}

std::vector<std::string> lines(const Placed& of) {
  std::vector<std::string> all;
  for (const PlacedMove& each : of.block.moves) {
    if (!each.move.collective) continue;
    all.push_back(std::string(name_of(each.phase)) + " " + each.tensor + " " + std::string(name_of(each.role)) + " " +
                  std::string(name_of(*each.move.collective)));
  }
  return all;
}

std::vector<std::string> partial_weights(const Placed& of) {
  std::vector<std::string> all;
  for (const PlacedWeight& weight : of.block.weights) {
    if (!is_empty(weight.gradient_partial)) all.push_back(weight.stored.whole.name);
  }
  std::ranges::sort(all);
  return all;
}

}  // namespace

TEST_CASE("1d: two all-reduces in F and two in I (arXiv 1909.08053, figure 4)", "[placement]") {
  CHECK(lines(placed({.degree = 4})) ==
        std::vector<std::string>{"F attention.out output all-reduce", "F mlp.down output all-reduce",
                                 "I norm_2 input gradient all-reduce", "I norm_1 input gradient all-reduce"});
}

TEST_CASE("sequence parallel: gathers and scatters in their place, and gathers again in W (arXiv 2205.05198, 4.2.2)",
          "[placement]") {
  CHECK(lines(placed({.degree = 4, .sequence_parallel = true})) ==
        std::vector<std::string>{"F norm_1 input all-gather", "F attention.out output reduce-scatter",
                                 "F norm_2 input all-gather", "F mlp.down output reduce-scatter",
                                 "I mlp.down output gradient all-gather", "I norm_2 input gradient reduce-scatter",
                                 "I attention.out output gradient all-gather", "I norm_1 input gradient reduce-scatter",
                                 "W norm_2 input all-gather", "W norm_1 input all-gather"});
}

TEST_CASE("embedding and head: partial rows are added, and three numbers of a token for the loss", "[placement]") {
  CHECK(lines(placed({.degree = 4}, 0)) == std::vector<std::string>{"F embedding output all-reduce"});
  CHECK(lines(placed({.degree = 4, .sequence_parallel = true}, 0)) ==
        std::vector<std::string>{"F embedding output reduce-scatter", "W embedding output gradient all-gather"});
  CHECK(lines(placed({.degree = 4}, 2)) ==
        std::vector<std::string>{"F loss.statistics statistics all-reduce", "I final_norm input gradient all-reduce"});
}

// Ids have no gradient: where weights are gathered again for I, the table is not.
TEST_CASE("2d: of an embedding nothing moves in I", "[placement]") {
  for (const std::string& line : lines(placed({.degree = 4, .kind = TensorKind::two_d}, 0))) {
    CHECK_FALSE(line.starts_with("I "));
  }
}

TEST_CASE("gradients that no rank has whole: norms of divided heads, and all norms where tokens are divided",
          "[placement]") {
  CHECK(partial_weights(placed({.degree = 4})) ==
        std::vector<std::string>{"attention.k_norm.weight", "attention.q_norm.weight"});
  CHECK(
      partial_weights(placed({.degree = 4, .sequence_parallel = true})) ==
      std::vector<std::string>{"attention.k_norm.weight", "attention.q_norm.weight", "norm_1.weight", "norm_2.weight"});
}

TEST_CASE("a bias behind a sum is added once: whole on every rank, and partial only where tokens are divided",
          "[placement]") {
  Model gpt{.name = "gpt", .vocabulary = 512, .hidden = h, .positions = Positions::learned, .max_positions = s};
  const SoftmaxAttention attention{
      .heads = a, .kv_heads = a, .head_dim = h / a, .value_dim = h / a, .qkv_bias = true, .out_bias = true};
  gpt.layers = {{.mixer = attention,
                 .mlp = DenseMlp{.width = width, .activation = Activation::gelu, .bias = true},
                 .norm = NormKind::layernorm}};
  const auto partial = [&](const TensorLayout& tensor) {
    std::vector<std::string> names;
    for (const PlacedWeight& weight : place_block(gpt, 1, tensor, microbatch).weights) {
      if (!is_empty(weight.gradient_partial)) names.push_back(weight.stored.whole.name);
    }
    std::ranges::sort(names);
    return names;
  };
  CHECK(partial({.degree = 4}).empty());
  CHECK(partial({.degree = 4, .sequence_parallel = true}) ==
        std::vector<std::string>{"attention.out.bias", "mlp.down.bias", "norm_1.bias", "norm_1.weight", "norm_2.bias",
                                 "norm_2.weight"});
}

TEST_CASE("sequence parallel: token ids stay where they are, rows of the table are scattered", "[placement]") {
  CHECK(lines(placed({.degree = 4, .sequence_parallel = true}, 0)) ==
        std::vector<std::string>{"F embedding output reduce-scatter", "W embedding output gradient all-gather"});
  CHECK(lines(placed({.degree = 4, .sequence_parallel = true}, 2)) ==
        std::vector<std::string>{"F final_norm input all-gather", "F loss.statistics statistics all-reduce",
                                 "I final_norm input gradient reduce-scatter", "W final_norm input all-gather"});
}

TEST_CASE("latent attention: the rotated key that all heads share is summed back over them (arXiv 2405.04434, 2.1.2)",
          "[placement]") {
  Model model{.name = "latent", .vocabulary = 512, .hidden = h};
  model.layers = {
      {.mixer = LatentAttention{.heads = a, .kv_lora_rank = 24, .nope_dim = 8, .rope_dim = 4, .value_dim = 8},
       .mlp = DenseMlp{.width = width}}};
  const PlacedBlock placed = place_block(model, 1, {.degree = 4}, microbatch);
  const PlacedMove* const sum = find_move(placed, Phase::input_gradient, Role::input_gradient, "attention.k_rope");
  REQUIRE(sum != nullptr);
  CHECK(sum->move.collective == Collective::all_reduce);
  CHECK(sum->move.elements_from == b * s * 4);
  const PlacedBlock divided = place_block(model, 1, {.degree = 4, .sequence_parallel = true}, microbatch);
  REQUIRE(find_move(divided, Phase::forward, Role::input, "attention.k_rope") != nullptr);
}

// What moves is tokens, not the rows of their experts; with the shares, whose gradient each rank has a summand of.
TEST_CASE("experts: sums go through the combination, and in I through the dispatch", "[placement]") {
  Model model = llama();
  model.layers.front().mixer = std::monostate{};
  model.layers.front().norms = 1;
  model.layers.front().mlp = MoeMlp{.experts = 4, .top_k = 2, .width = width, .shared_width = width};
  CHECK(lines(placed({.degree = 4}, 1, model)) ==
        std::vector<std::string>{"F mlp.combine output all-reduce", "F mlp.shared.down output all-reduce",
                                 "I mlp.route input gradient all-reduce", "I norm_1 input gradient all-reduce"});
  const Placed by_tokens = placed({.degree = 4, .sequence_parallel = true}, 1, model);
  CHECK(lines(by_tokens) == std::vector<std::string>{
                                "F norm_1 input all-gather", "F mlp.route input all-gather",
                                "F mlp.combine output reduce-scatter", "F mlp.shared.down output reduce-scatter",
                                "I mlp.shared.down output gradient all-gather",
                                "I mlp.combine output gradient all-gather", "I mlp.route input gradient reduce-scatter",
                                "I norm_1 input gradient reduce-scatter", "W norm_1 input all-gather"});
  CHECK(partial_weights(by_tokens) == std::vector<std::string>{"mlp.router.weight", "norm_1.weight"});
  CHECK(received_elements(by_tokens.mesh,
                          find_move(by_tokens.block, Phase::input_gradient, Role::input_gradient, "norm_1")->move) ==
        0.75 * b * s * h);
}

TEST_CASE("one rank moves nothing", "[placement]") {
  const Placed alone = placed({});
  CHECK(alone.block.moves.empty());
  CHECK(partial_weights(alone).empty());
  for (const PlacedSite& site : alone.block.sites) CHECK(site.ways == 1);
}

TEST_CASE("a move that the layout has not declared is an error that names site, tensor and collective", "[placement]") {
  Layout layout;
  layout.tensor.degree = 4;
  const Mesh mesh = mesh_of(layout);
  const std::vector<Site> sites = block_sites(llama(), 1, microbatch);
  LayoutTable table = one_d(mesh, sites, false);
  SECTION("a value that stands elsewhere than its table says") {
    table.values["norm_1"] = with_split({}, Dim::sequence, {axis_of(mesh, "tensor")});
    CHECK_THROWS_WITH(place_block(mesh, table, sites), ContainsSubstring("layout 1d, site attention.q") &&
                                                           ContainsSubstring("input norm_1") &&
                                                           ContainsSubstring("all-gather over tensor"));
  }
  SECTION("a matmul that is divided the other way round") {
    table.sites["mlp.down"] = {};
    CHECK_THROWS_WITH(place_block(mesh, table, sites),
                      ContainsSubstring("site mlp.down") && ContainsSubstring("mlp.activation"));
  }
  SECTION("a declaration that was forgotten") {
    std::erase_if(table.declared, [](const DeclaredMove& move) { return move.role == Role::input_gradient; });
    CHECK_THROWS_WITH(place_block(mesh, table, sites), ContainsSubstring("input gradient norm_2 (I)"));
  }
}

// Each would be brought about by collectives that the layout declares at other sites: with 20% and 30% more bytes.
TEST_CASE("a site of all tokens under sequence parallelism is an error that names it and what it would move",
          "[placement]") {
  Layout layout;
  layout.tensor = {.degree = 4, .sequence_parallel = true};
  const Mesh mesh = mesh_of(layout);
  const std::vector<Site> sites = block_sites(llama(), 1, microbatch);
  const auto undivided = [&](const char* site) {
    LayoutTable table = one_d(mesh, sites, true);
    table.sites[site] = {};
    return place_block(mesh, table, sites);
  };
  CHECK_THROWS_WITH(undivided("norm_2"), ContainsSubstring("layout 1d, sp, site norm_2") &&
                                             ContainsSubstring("the input residual_1 (F) needs an all-gather"));
  CHECK_THROWS_WITH(undivided("residual_1"), ContainsSubstring("layout 1d, sp, site residual_1") &&
                                                 ContainsSubstring("the input input (F) needs an all-gather"));
}

TEST_CASE("in every layout a site that is no product and whose axes are left out is an error", "[placement]") {
  for (const TensorLayout& tensor : testing::tensor_layouts()) {
    Layout layout;
    layout.tensor = tensor;
    const Mesh mesh = mesh_of(layout);
    const std::vector<Site> sites = block_sites(llama(), 1, {.sequences = 8, .sequence = 16});
    for (const Site& site : sites) {
      if (is_matmul(site.kind)) continue;
      LayoutTable table = layout_table(mesh, tensor, sites);
      if (table.sites[site.name] == Placement{}) continue;
      table.sites[site.name] = {};
      INFO(table.name << ", " << site.name);
      CHECK_THROWS_WITH(place_block(mesh, table, sites), ContainsSubstring("site "));
    }
  }
}

namespace {

Model llama_of(std::int64_t kv_heads, bool biased = false) {
  Model model = llama();
  auto& attention = std::get<SoftmaxAttention>(model.layers.front().mixer);
  attention.kv_heads = kv_heads;
  attention.qkv_bias = attention.out_bias = biased;
  return model;
}

}  // namespace

// As Megatron-LM: a rank has one head of keys and values, that of its queries; neighbours have the same.
TEST_CASE("fewer key-value heads than ranks stand on several of them, which add up their gradients once a step",
          "[placement]") {
  for (const bool by_tokens : {false, true}) {
    for (const auto& [kv, degree] : std::vector<std::pair<int, int>>{{2, 8}, {1, 4}, {2, 4}, {4, 8}}) {
      CAPTURE(by_tokens, kv, degree);
      const TensorLayout tensor{.degree = degree, .sequence_parallel = by_tokens};
      const PlacedBlock block = place_block(llama_of(kv, true), 1, tensor, microbatch);
      // What moves is what moves with as many heads as ranks.
      CHECK(lines({block.mesh, block}) ==
            lines({block.mesh, place_block(llama_of(degree, true), 1, tensor, microbatch)}));
      for (const PlacedMove& move : block.moves) {
        if (move.move.collective) CHECK(size(block.mesh, move.move.over) == degree);
      }
      const PlacedSite& core = site_of(block, "attention.core");
      CHECK(core.inputs[0].local.at(2) == Extent{Dim::heads, a / degree});
      CHECK(core.inputs[1].local.at(2) == Extent{Dim::kv_heads, 1});
      int shared = 0;
      for (const PlacedWeight& weight : block.weights) {
        const std::string& name = weight.stored.whole.name;
        const bool of_keys = name.starts_with("attention.k.") || name.starts_with("attention.v.");
        const bool of_all = name.ends_with("_norm.weight") ||
                            (by_tokens && (name.starts_with("norm_") || name == "attention.out.bias"));
        INFO(name);
        CHECK(size(block.mesh, weight.gradient_partial) == (of_keys ? degree / kv : of_all ? degree : 1));
        if (!of_keys) continue;
        ++shared;
        CHECK(ways_of(block.mesh, weight.stored) == kv);
        for (int rank = 0; rank < degree; ++rank) {  // the head that its queries read
          const std::vector<IndexRange> rows =
              owned(block.mesh, weight.stored.whole.shape.front(), weight.stored.placement, rank);
          const std::int64_t head = rank * (a / degree) / (a / kv);
          CHECK(rows == std::vector<IndexRange>{{head, head + 1}});
        }
      }
      CHECK(shared == 4);
    }
  }
}

// As `plumb show MODEL --sites 0 --tensor 8 --tensor-kind 3d` finds it without a microbatch.
TEST_CASE("sequences that a layout does not divide are an error that says what to set", "[placement]") {
  const TensorLayout cube{.degree = 8, .kind = TensorKind::three_d};
  CHECK_THROWS_WITH(place_block(llama(), 1, cube, {.sequences = 1, .sequence = s}),
                    ContainsSubstring("batch of 1 cannot be split") && ContainsSubstring("--microbatch 4"));
  CHECK_NOTHROW(place_block(llama(), 1, cube, {.sequences = 4, .sequence = s}));
  CHECK_THROWS_WITH(place_block(llama(), 1, {.degree = 4, .sequence_parallel = true}, {.sequences = 1, .sequence = 30}),
                    ContainsSubstring("--sequence, a multiple of 4"));
}

// Elements that a rank receives, derived from placements, against the closed forms of the papers over random shapes.
// Sources: 1909.08053 (1d), 2205.05198 (sequence parallel), 2104.05343 (2d), 2105.14500 (2.5d), 2105.14450 (3d),
// 2309.14509 (Ulysses), 2105.13120 (keys and values around a ring), 2006.16668 (experts), 1910.02054 (ZeRO),
// 2304.11277 (FSDP, HSDP).
#include <random>

#include "common/placement/placed_block.hpp"
#include "common/placement/weight_rule.hpp"
#include "tests/catch.hpp"
#include "tests/effort.hpp"

using namespace plumb;

namespace {

constexpr unsigned rounds = testing::cases(1250);

using Random = std::mt19937;
std::int64_t between(Random& random, std::int64_t low, std::int64_t high) {
  return low + static_cast<std::int64_t>(random() % static_cast<unsigned>(high - low + 1));
}

double real(std::int64_t value) { return static_cast<double>(value); }

// GPT's layer, whose MLP is four times as wide: 12 h² weights in four matmuls (q, k and v as one read).
struct Shapes {
  std::int64_t b = 1, s = 1, h = 1, kv = 1;
  std::int64_t heads = 1;
  [[nodiscard]] double bsh() const { return real(b * s * h); }
};

Model gpt(const Shapes& shapes) {
  Model model{.name = "gpt", .vocabulary = 64, .hidden = shapes.h, .positions = Positions::learned};
  const std::int64_t size = shapes.h / shapes.heads;
  model.layers = {
      {.mixer = SoftmaxAttention{.heads = shapes.heads, .kv_heads = shapes.kv, .head_dim = size, .value_dim = size},
       .mlp = DenseMlp{.width = 4 * shapes.h, .activation = Activation::gelu}}};
  return model;
}

// Divisible by every grid of side `q`, depth `d`.
Shapes random_shapes(Random& random, std::int64_t q, std::int64_t d = 1) {
  Shapes shapes;
  shapes.b = q * q * d * between(random, 1, 3);
  shapes.s = q * d * between(random, 1, 20);
  shapes.heads = q * q * d * between(random, 1, 4);
  shapes.kv = shapes.heads;
  shapes.h = shapes.heads * between(random, 1, 8);
  return shapes;
}

struct Volume {
  double forward = 0;
  double input_gradient = 0;
  double weight_gradient = 0;
  [[nodiscard]] double backward() const { return input_gradient + weight_gradient; }
};

// Statistics of norms, which the papers leave out (bs elements), are left out here, too.
Volume layer_volume(const TensorLayout& tensor, const Shapes& shapes) {
  Layout layout;
  layout.tensor = tensor;
  const Mesh mesh = mesh_of(layout);
  const Model model = gpt(shapes);
  const std::vector<Site> sites =
      layer_sites(model, model.layers.front(), {.sequences = shapes.b, .sequence = shapes.s});
  const LayoutTable table = layout_table(mesh, tensor, sites);
  Volume volume;
  for (const PlacedMove& each : place_block(mesh, table, sites).moves) {
    if (each.role == Role::statistics) continue;
    double& sum = each.phase == Phase::forward          ? volume.forward
                  : each.phase == Phase::input_gradient ? volume.input_gradient
                                                        : volume.weight_gradient;
    sum += received_elements(mesh, each.move);
  }
  return volume;
}

void check(double derived, double expected) { CHECK(derived == Approx(expected).epsilon(1e-12)); }

}  // namespace

TEST_CASE("1d: 8(P−1)/P·bsh a layer, sequence parallel as much, and 2(P−1)/P·bsh more in W", "[placement]") {
  Random random(5);
  for (unsigned round = 0; round < rounds; ++round) {
    const std::int64_t p = between(random, 2, 8);
    const Shapes shapes = random_shapes(random, p);
    const double each = real(p - 1) / real(p) * shapes.bsh();
    const int degree = static_cast<int>(p);
    const Volume plain = layer_volume({.degree = degree}, shapes);
    check(plain.forward, 4 * each);
    check(plain.input_gradient, 4 * each);
    check(plain.weight_gradient, 0);
    const Volume by_tokens = layer_volume({.degree = degree, .sequence_parallel = true}, shapes);
    check(by_tokens.forward, 4 * each);
    check(by_tokens.input_gradient, 4 * each);
    check(by_tokens.weight_gradient, 2 * each);
  }
}

TEST_CASE("2d: (q−1)/q²·(7bsh + 12h²) forward, twice that backward", "[placement]") {
  Random random(6);
  for (unsigned round = 0; round < rounds; ++round) {
    const std::int64_t q = between(random, 2, 5);
    const Shapes shapes = random_shapes(random, q);
    const double each = real(q - 1) / real(q * q) * (7 * shapes.bsh() + 12 * real(shapes.h * shapes.h));
    const Volume volume = layer_volume({.degree = static_cast<int>(q * q), .kind = TensorKind::two_d}, shapes);
    check(volume.forward, each);
    // q, k and v give the gradient of what they read in one sum. I multiplies with the weights and scatters what it
    // makes, W gathers what it reads and scatters the weights' gradients (algorithms 2 and 3).
    check(volume.input_gradient, each);
    check(volume.weight_gradient, each);
  }
}

TEST_CASE("2.5d: (q−1)(7bsh/(dq²) + 12h²/q²) forward, twice that backward, and the sum of dB over the depth",
          "[placement]") {
  Random random(7);
  for (unsigned round = 0; round < rounds; ++round) {
    const std::int64_t q = between(random, 2, 4);
    const std::int64_t d = between(random, 2, 3);
    const Shapes shapes = random_shapes(random, q, d);
    const double weights = 12 * real(shapes.h * shapes.h);
    const double each = real(q - 1) * (7 * shapes.bsh() / real(d * q * q) + weights / real(q * q));
    const TensorLayout tensor{
        .degree = static_cast<int>(d * q * q), .kind = TensorKind::two_and_half_d, .depth = static_cast<int>(d)};
    const Volume volume = layer_volume(tensor, shapes);
    check(volume.forward, each);
    check(volume.backward(), 2 * each);

    Layout layout;
    layout.tensor = tensor;
    const Mesh mesh = mesh_of(layout);
    const Model model = gpt(shapes);
    const std::vector<Site> sites =
        layer_sites(model, model.layers.front(), {.sequences = shapes.b, .sequence = shapes.s});
    double sums = 0;
    for (const PlacedWeight& weight : place_block(mesh, two_d(mesh, sites), sites).weights) {
      if (weight.stored.whole.shape.size() < 2) continue;
      CHECK(weight.gradient_partial == set_of(axis_of(mesh, "tensor.depth")));
      sums += received_elements(
          mesh, moves(mesh, weight.stored.whole, with_partial(weight.stored.placement, weight.gradient_partial),
                      weight.stored.placement));
    }
    check(sums, 2 * real(d - 1) / real(d) * weights / real(q * q));
  }
}

TEST_CASE(
    "3d: (q−1)/q³·(MK + KN + MN) a matmul, backward the same where gathered operands are kept, else 2MK + 2KN + MN",
    "[placement]") {
  Random random(8);
  for (unsigned round = 0; round < rounds; ++round) {
    const std::int64_t q = between(random, 2, 4);
    const Shapes shapes = random_shapes(random, q);
    const double part = real(q - 1) / real(q * q * q);
    // Reads: one of q, k and v together, and out, up of bsh, down of 4bsh; makes 3, 1, 4 and 1 of them.
    const double read = 7 * shapes.bsh();
    const double made = 9 * shapes.bsh();
    const double weights = 12 * real(shapes.h * shapes.h);
    TensorLayout tensor{.degree = static_cast<int>(q * q * q), .kind = TensorKind::three_d};
    const Volume kept = layer_volume(tensor, shapes);
    check(kept.forward, part * (read + weights + made));
    check(kept.backward(), part * (read + weights + made));
    tensor.reshard_after_forward = true;
    const Volume again = layer_volume(tensor, shapes);
    check(again.forward, part * (read + weights + made));
    check(again.backward(), part * (2 * read + 2 * weights + made));
  }
}

TEST_CASE("context parallel: all-to-alls of Ulysses, and keys and values from all", "[placement]") {
  Random random(9);
  for (unsigned round = 0; round < rounds; ++round) {
    const std::int64_t p = between(random, 2, 8);
    Shapes shapes = random_shapes(random, p);
    shapes.s *= 2;  // zigzag
    shapes.kv = shapes.heads / p > 1 && random() % 2 == 0 ? p : shapes.heads;
    const std::int64_t size = shapes.h / shapes.heads;
    const Mesh mesh{{{"context", static_cast<int>(p)}}};
    const Axis context{0};
    const auto value = [&](Dim dim, std::int64_t heads) {
      return NamedShape{"value",
                        {{Dim::batch, shapes.b}, {Dim::sequence, shapes.s}, {dim, heads}, {Dim::channels, size}}};
    };
    const NamedShape query = value(Dim::heads, shapes.heads);
    const NamedShape key = value(Dim::kv_heads, shapes.kv);
    const Placement by_tokens = with_split({}, Dim::sequence, {context});
    const double others = real(p - 1) / real(p);
    const double query_elements = shapes.bsh();
    const double key_elements = real(shapes.b * shapes.s * shapes.kv * size);
    // There with q, k and v, back with the output: of what a rank holds, all but its own part.
    const double there =
        received_elements(mesh, moves(mesh, query, by_tokens, with_split({}, Dim::heads, {context}))) +
        2 * received_elements(mesh, moves(mesh, key, by_tokens, with_split({}, Dim::kv_heads, {context})));
    const double back = received_elements(mesh, moves(mesh, query, with_split({}, Dim::heads, {context}), by_tokens));
    check(there + back, others * (2 * query_elements + 2 * key_elements) / real(p));
    check(2 * received_elements(mesh, moves(mesh, key, by_tokens, {})), 2 * others * key_elements);
    check(2 * received_elements(mesh, moves(mesh, key, with_split({}, Dim::sequence, {context}, true), {})),
          2 * others * key_elements);
  }
}

TEST_CASE("experts: dispatch and combine of T·k·h each, all but a rank's own part", "[placement]") {
  Random random(10);
  for (unsigned round = 0; round < rounds; ++round) {
    const std::int64_t p = between(random, 2, 8);
    const std::int64_t rows = p * p * between(random, 1, 50);  // of all ranks: T·k each
    const std::int64_t h = between(random, 1, 64);
    const Mesh mesh{{{"expert", static_cast<int>(p)}}};
    const NamedShape given{"rows", {{Dim::experts, p}, {Dim::rows, rows}, {Dim::hidden, h}}};
    const Placement by_token = with_split({}, Dim::rows, {Axis{0}});
    const Placement by_expert = with_split({}, Dim::experts, {Axis{0}});
    const double local = real(rows * h);  // p · (rows / p) · h
    const double volume = received_elements(mesh, moves(mesh, given, by_token, by_expert)) +
                          received_elements(mesh, moves(mesh, given, by_expert, by_token));
    check(volume, 2 * local * real(p - 1) / real(p));
  }
}

TEST_CASE("data parallel: DDP, ZeRO-1 2Ψ, ZeRO-3 3Ψ, HSDP 3(S−1)/S·Ψ inside and Ψ/S between", "[placement]") {
  Random random(11);
  for (unsigned round = 0; round < rounds; ++round) {
    const std::int64_t shard = between(random, 2, 16);
    const std::int64_t replicate = between(random, 2, 8);
    const std::int64_t psi = shard * replicate * between(random, 1, 5000);
    const auto volume = [&](Sharding sharding, const Mesh& mesh) {
      const WeightMoves made = weight_moves(mesh, weight_rule(mesh, {.sharding = sharding}), psi);
      return received_elements(mesh, made.gather) + received_elements(mesh, made.again) +
             received_elements(mesh, made.reduce) + received_elements(mesh, made.publish);
    };
    const Mesh data{{{"data", static_cast<int>(shard)}}};
    const double each = real(psi) * real(shard - 1) / real(shard);
    check(volume(Sharding::none, data), 2 * each);
    check(volume(Sharding::zero1, data), 2 * each);
    check(volume(Sharding::zero2, data), 2 * each);
    check(volume(Sharding::zero3, data), 3 * each);
    check(volume(Sharding::fsdp, data), 3 * each);
    const Mesh both{{{"shard", static_cast<int>(shard)}, {"replicate", static_cast<int>(replicate)}}};
    check(volume(Sharding::hsdp, both), 3 * each + 2 * real(psi) / real(shard) * real(replicate - 1) / real(replicate));
  }
}

// Section 4.1 of arXiv 2306.10209: of 3Ψ between machines the second gather goes, and the reduction is of what the
// first all-to-all left, 1/k of the elements for each of a machine's k ranks; all of them together receive Ψ of weights
// in F.
TEST_CASE("ZeRO++: a second copy gathers inside, and gradients are reduced inside and then across", "[placement]") {
  Random random(12);
  for (unsigned round = 0; round < rounds; ++round) {
    const std::int64_t k = between(random, 2, 8);
    const std::int64_t machines = between(random, 2, 8);
    const std::int64_t psi = k * machines * between(random, 1, 5000);
    const Mesh mesh{{{"inside", static_cast<int>(k)}, {"across", static_cast<int>(machines)}}};
    const DataLayout data{.degree = static_cast<int>(k * machines),
                          .sharding = Sharding::zero3,
                          .reshard_after_forward = true,
                          .quantized_weights = true,
                          .secondary_shard = static_cast<int>(k),
                          .quantized_gradients = static_cast<int>(k)};
    const WeightMoves made = weight_moves(mesh, weight_rule(mesh, data), psi);
    const auto goes_across = [](const Move& move) { return contains(move.over, Axis{1}); };
    check(received_elements(mesh, made.gather), real(psi) * real(k * machines - 1) / real(k * machines));
    check(received_elements(mesh, made.again), real(psi) * real(k - 1) / real(k));
    CHECK(std::ranges::none_of(made.again, goes_across));
    REQUIRE(made.reduce.size() == 2);
    CHECK_FALSE(goes_across(made.reduce[0]));
    CHECK(goes_across(made.reduce[1]));
    check(received_elements(mesh, made.reduce[0]), real(psi) * real(k - 1) / real(k));
    check(received_elements(mesh, made.reduce[1]), real(psi) / real(k) * real(machines - 1) / real(machines));
  }
}

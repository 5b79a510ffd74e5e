// The parts of actions against the sums that costs are made of.
#include "common/cost/action_parts.hpp"

#include "tests/catch.hpp"

using namespace plumb;

namespace {

constexpr std::int64_t hidden = 1024;

Model gpt() {
  return Model{.vocabulary = 1024,
               .hidden = hidden,
               .layers = {Layer{.mixer = SoftmaxAttention{.heads = 16, .kv_heads = 16, .head_dim = 64, .value_dim = 64},
                                .mlp = DenseMlp{.width = 4 * hidden}}}};
}

Machine machine() {
  Machine result{.name = "made up", .devices = 8};
  result.device.peak.value = {1e14};
  result.device.matmul_efficiency.value = 0.8;
  result.device.attention_efficiency.value = 0.5;
  result.device.memory_bandwidth.value = {1e12};
  result.device.memory_efficiency.value = 0.7;
  result.device.kernel_gap.value = {2e-6};
  result.collective_bandwidth.value = {2e10};
  result.collective_latency.value = {2e-5};
  return result;
}

std::vector<Kernel> layer(bool sequence_parallel, bool overlap) {
  const Software software{.tensor_overlap = overlap};
  const KernelContext context{.sequence = 512, .microbatch = 2, .precision = ElementType::bf16, .software = software};
  const PlacedBlock placed = place_block(gpt(), 1, {.degree = 4, .sequence_parallel = sequence_parallel},
                                         {.sequences = context.microbatch, .sequence = context.sequence});
  return block_kernels(layer_operations(gpt(), 0, operation_context(context)), context, placed);
}

}  // namespace

TEST_CASE("parts take as long as the phases whose kernels they are, hidden collectives included") {
  const GroupPlacement group{.ranks = 4, .per_machine = 4};
  for (const bool sequence_parallel : {false, true}) {
    for (const bool overlap : {false, true}) {
      const std::vector<Kernel> kernels = layer(sequence_parallel, overlap);
      const PhaseTimes times = phase_times(kernels, machine(), group);
      CollectiveTable table(machine(), group);
      const auto seconds = [&](const std::vector<Phase>& phases) {
        return time_of(action_parts(kernels, phases, table), table).value;
      };
      CHECK(seconds({Phase::forward}) == Approx(times.forward.value).epsilon(1e-12));
      CHECK(seconds({Phase::input_gradient}) == Approx(times.input_gradient.value).epsilon(1e-12));
      CHECK(seconds({Phase::weight_gradient}) == Approx(times.weight_gradient.value).epsilon(1e-12));
      const Seconds backward = times.input_gradient + times.weight_gradient - times.hidden;
      CHECK(seconds({Phase::input_gradient, Phase::weight_gradient}) == Approx(backward.value).epsilon(1e-12));
      CHECK((times.hidden.value > 0) == overlap);
    }
  }
}

TEST_CASE("a forward reduces twice, each time after computing, and adds the last branch") {
  CollectiveTable table(machine(), {.ranks = 4, .per_machine = 4});
  const std::vector<ActionPart> parts = action_parts(layer(false, false), std::vector{Phase::forward}, table);
  REQUIRE(parts.size() == 3);
  for (const ActionPart& part : parts) {
    CHECK(part.compute.value > 0);
    CHECK_FALSE(part.beside);
  }
  CHECK(parts[0].collective == 0);
  CHECK(parts[1].collective == 0);  // of the same bytes
  CHECK(parts[2].collective == -1);
}

// Two blocks of a layer: X, a collective a behind it, Y, a collective b behind it. The gradient comes from the end.
TEST_CASE("a forward goes through its kernels in their order, a backward against it") {
  const auto stream = [](Phase phase, double bytes) {
    return Kernel{.name = "", .phase = phase, .kind = KernelKind::stream, .bytes = bytes};
  };
  const auto collective = [](Phase phase, double bytes) {
    return Kernel{.name = "", .phase = phase, .kind = KernelKind::collective, .bytes = bytes};
  };
  Machine free_gaps = machine();
  free_gaps.device.kernel_gap.value = {};
  const double rate = 1e12 * 0.7;
  std::vector<Kernel> kernels;
  for (const Phase phase : {Phase::forward, Phase::input_gradient}) {
    kernels.insert(kernels.end(), {stream(phase, 1 * rate), collective(phase, 1e6), stream(phase, 2 * rate),
                                   collective(phase, 2e6), stream(phase, 4 * rate)});
  }
  const auto check = [&](Phase phase, std::vector<double> computing, std::vector<double> bytes) {
    CollectiveTable table(free_gaps, {.ranks = 4, .per_machine = 4});
    const std::vector<ActionPart> parts = action_parts(kernels, std::vector{phase}, table);
    REQUIRE(parts.size() == computing.size());
    for (std::size_t i = 0; i < parts.size(); ++i) {
      CHECK(parts[i].compute.value == Approx(computing[i]));
      CHECK(parts[i].collective == (i < bytes.size() ? static_cast<std::int32_t>(i) : -1));
      if (i < bytes.size()) CHECK(table.at(parts[i].collective).phases[0].inside == Approx(2 * 3.0 / 4 * bytes[i]));
    }
  };
  check(Phase::forward, {1, 2, 4}, {1e6, 2e6});
  check(Phase::input_gradient, {4, 2, 1}, {2e6, 1e6});
}

TEST_CASE("stretching changes what only computes, and never below zero") {
  CollectiveTable table(machine(), {.ranks = 4, .per_machine = 4});
  const std::int32_t all_reduce = table.index(Collective::all_reduce, 1e8);
  std::vector<ActionPart> parts{{.compute = {1}, .collective = all_reduce},
                                {.compute = {2}, .collective = all_reduce, .beside = true},
                                {.compute = {3}}};
  stretch(parts, {2});
  CHECK(parts[0].compute.value == Approx(1.5));
  CHECK(parts[1].compute.value == 2);
  CHECK(parts[2].compute.value == Approx(4.5));
  const std::vector<ActionPart> before = parts;
  stretch(parts, {-7});
  CHECK(parts == before);
}

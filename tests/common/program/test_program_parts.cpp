// The parts of actions against the sums that costs are made of.
#include "common/program/program_parts.hpp"

#include "common/program/block_program.hpp"
#include "common/program/program_time.hpp"
#include "tests/catch.hpp"

using namespace plumb;

namespace {

constexpr std::int64_t gpt_hidden = 1024;

Model small_gpt() {
  return Model{.vocabulary = 1024,
               .hidden = gpt_hidden,
               .layers = {Layer{.mixer = SoftmaxAttention{.heads = 16, .kv_heads = 16, .head_dim = 64, .value_dim = 64},
                                .mlp = DenseMlp{.width = 4 * gpt_hidden}}}};
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

BlockProgram layer(bool sequence_parallel, bool overlap) {
  const Software software{.tensor_overlap = overlap};
  const KernelContext context{.sequence = 512, .microbatch = 2, .precision = ElementType::bf16, .software = software};
  const PlacedBlock placed = place_block(small_gpt(), 1, {.degree = 4, .sequence_parallel = sequence_parallel},
                                         {.sequences = context.microbatch, .sequence = context.sequence});
  return block_program(layer_operations(small_gpt(), 0, operation_context(context)), context, placed);
}

}  // namespace

TEST_CASE("parts take as long as the phases whose steps they are, hidden collectives included") {
  const GroupPlacement group{.ranks = 4, .per_machine = 4};
  for (const bool sequence_parallel : {false, true}) {
    for (const bool overlap : {false, true}) {
      const BlockProgram program = layer(sequence_parallel, overlap);
      const PhaseTimes times = phase_times(program, machine(), group);
      CollectiveTable table(machine(), group);
      const auto seconds = [&](const std::vector<Phase>& phases) {
        return time_of(action_parts(program.steps, phases, table), table).value;
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
  CollectiveTable table(machine(), GroupPlacement{.ranks = 4, .per_machine = 4});
  const std::vector<ActionPart> parts = action_parts(layer(false, false).steps, std::vector{Phase::forward}, table);
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
TEST_CASE("a forward goes through its steps in their order, a backward against it") {
  const auto stream = [](Phase phase, double bytes) {
    return ProgramStep{.phase = phase, .kind = StepKind::stream, .bytes = bytes};
  };
  const auto collective = [](Phase phase, double bytes) {
    return ProgramStep{.phase = phase, .kind = StepKind::move, .move = {.bytes = bytes}};
  };
  Machine free_gaps = machine();
  free_gaps.device.kernel_gap.value = {};
  const double rate = 1e12 * 0.7;
  std::vector<ProgramStep> steps;
  for (const Phase phase : {Phase::forward, Phase::input_gradient}) {
    steps.insert(steps.end(), {stream(phase, 1 * rate), collective(phase, 1e6), stream(phase, 2 * rate),
                               collective(phase, 2e6), stream(phase, 4 * rate)});
  }
  const auto check = [&](Phase phase, std::vector<double> computing, std::vector<double> bytes) {
    CollectiveTable table(free_gaps, GroupPlacement{.ranks = 4, .per_machine = 4});
    const std::vector<ActionPart> parts = action_parts(steps, std::vector{phase}, table);
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
  CollectiveTable table(machine(), GroupPlacement{.ranks = 4, .per_machine = 4});
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

// F: 1 s, then a move of 2 s. I: 3 s, and a move of 4 s beside it and beside W's 2 s.
TEST_CASE("a tiny block by hand: what a move hides behind, alone and in a full backward") {
  Machine device = machine();
  device.device.kernel_gap.value = {};
  device.collective_latency.value = {};
  const double rate = 1e12 * 0.7;
  const double moved = 2e10 * 4 / 3.0;  // bytes that four ranks gather in a second
  const auto stream = [&](Phase phase, double seconds) {
    return ProgramStep{.phase = phase, .kind = StepKind::stream, .bytes = seconds * rate};
  };
  const auto gather = [&](Phase phase, double seconds, std::vector<std::size_t> beside) {
    return ProgramStep{.phase = phase,
                       .kind = StepKind::move,
                       .move = {.collective = Collective::all_gather, .bytes = seconds * moved},
                       .beside = std::move(beside)};
  };
  const BlockProgram block{.steps = {stream(Phase::forward, 1), gather(Phase::forward, 2, {}),
                                     gather(Phase::input_gradient, 4, {3, 4}), stream(Phase::input_gradient, 3),
                                     stream(Phase::weight_gradient, 2)}};
  const GroupPlacement group{.ranks = 4, .per_machine = 4};
  const PhaseTimes times = phase_times(block, device, group);
  CHECK(times.forward.value == Approx(3));
  CHECK(times.input_gradient.value == Approx(4));
  CHECK(times.weight_gradient.value == Approx(2));
  CHECK(times.hidden.value == Approx(1));
  CollectiveTable table(device, group);
  const std::vector<ActionPart> backward =
      action_parts(block.steps, std::vector{Phase::input_gradient, Phase::weight_gradient}, table);
  REQUIRE(backward.size() == 1);
  CHECK(backward[0].beside);
  CHECK(backward[0].compute.value == Approx(5));
  CHECK(time_of(backward, table).value == Approx(5));
}

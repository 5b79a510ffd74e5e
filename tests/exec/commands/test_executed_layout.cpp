#include "exec/commands/executed_layout.hpp"

#include "common/base/error.hpp"
#include "tests/catch.hpp"
#include "tests/exec/stage/models.hpp"
#include "tests/exec/tiny_plan.hpp"

using namespace plumb;
using namespace plumb::exec;

namespace {

std::string refusal(const Plan& plan, const SessionOptions& options = {}) {
  try {
    require_executed_layout(plan, options);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a vocabulary over the pipeline is executed on hosts, and refused by name on devices") {
  Plan plan = tiny_plan({});
  plan.layout.vocabulary_barriers = 1;
  plan.schedule.vocabulary_barriers = 1;
  for (const std::string transport : {"local", "gloo"}) {
    SessionOptions options;
    options.transport = transport;
    for (const int tensor : {1, 2}) {
      plan.layout.tensor.degree = tensor;
      CHECK(refusal(plan, options).empty());
    }
  }
  SessionOptions on_gpu;
  on_gpu.device = "cuda";
  for (const std::string transport : {"local", "nccl"}) {
    on_gpu.transport = transport;
    CHECK_THAT(refusal(plan, on_gpu), ContainsSubstring("vocabulary1") &&
                                          ContainsSubstring("on a GPU or over NCCL is not executed yet") &&
                                          ContainsSubstring("--device cpu and --transport local or gloo"));
  }
}

TEST_CASE("pipelines and plain data parallelism are executed, and what else there is says what is") {
  CHECK(refusal(tiny_plan({})).empty());
  Plan plan = tiny_plan({.data = 2});
  for (const std::string transport : {"local", "gloo"}) {
    SessionOptions options;
    options.transport = transport;
    CHECK(refusal(plan, options).empty());
  }
  SessionOptions nccl;
  nccl.transport = "nccl";
  nccl.device = "cuda";
  CHECK(refusal(plan, nccl).empty());
  nccl.transport = "local";  // ranks that share a device
  CHECK_THAT(refusal(plan, nccl), ContainsSubstring("dp2") && ContainsSubstring("share one device") &&
                                      ContainsSubstring("--transport nccl"));

  for (const Sharding sharding : {Sharding::zero1, Sharding::zero2, Sharding::zero3, Sharding::fsdp, Sharding::hsdp}) {
    Plan sharded = plan;
    sharded.layout.data.sharding = sharding;
    if (sharding == Sharding::hsdp) sharded.layout.data.shard = 2;
    CHECK(refusal(sharded).empty());
    SessionOptions devices = nccl;
    devices.transport = "nccl";
    CHECK(refusal(sharded, devices).empty());
    CHECK_THAT(refusal(sharded, nccl), ContainsSubstring("share one device"));
    sharded.training.lora = Lora{.rank = 2};
    CHECK(refusal(sharded).empty());
  }
  Plan copies = tiny_plan({.data = 4});
  copies.layout.data = {.degree = 4, .sharding = Sharding::hsdp, .shard = 2, .replicate = 2};
  copies.software.copies_overlap = true;
  CHECK(refusal(copies).empty());
  copies.software.data_overlap = true;
  CHECK_THAT(refusal(copies), ContainsSubstring("HSDP's copies that overlaps the backward is not executed yet") &&
                                  ContainsSubstring("software: {copies_overlap: false}"));
  copies.software.copies_overlap = false;
  CHECK(refusal(copies).empty());
  Plan by_stage = plan;
  by_stage.layout.stage_data = {2, 1};
  CHECK_THAT(refusal(by_stage), ContainsSubstring("data degrees by stage is not executed yet"));
  Plan experts = plan;
  experts.layout.expert = 2;
  CHECK_THAT(refusal(experts), ContainsSubstring("expert parallelism is not supported yet"));

  for (const std::string schedule : {"dualpipe", "chimera"}) {
    const Plan both_ways = tiny_plan({.schedule = schedule, .data = 2});
    CHECK_THAT(refusal(both_ways), ContainsSubstring(schedule) && ContainsSubstring("such as zb-h1"));
    CHECK(refusal(tiny_plan({.schedule = schedule})).empty());
  }
  for (const std::string schedule : {"pipedream", "pipedream-2bw"}) {
    CHECK_THAT(refusal(tiny_plan({.schedule = schedule, .data = 2})), ContainsSubstring("such as 1f1b"));
  }
}

TEST_CASE("parts of ZeRO++ are executed where they have something to be checked against, on hosts") {
  Plan plan = tiny_plan({.data = 4});
  plan.layout.data = {.degree = 4,
                      .sharding = Sharding::zero3,
                      .reshard_after_forward = true,
                      .reduces_each_microbatch = true,
                      .quantized_weights = true,
                      .secondary_shard = 2,
                      .quantized_gradients = 2};
  CHECK(refusal(plan).empty());
  SessionOptions nccl;
  nccl.transport = "nccl";
  nccl.device = "cuda";
  CHECK_THAT(refusal(plan, nccl), ContainsSubstring("ZeRO++ on a GPU or over NCCL is not executed yet"));
  Plan once = plan;
  once.layout.data.reduces_each_microbatch = false;
  CHECK_THAT(
      refusal(once),
      ContainsSubstring("dp4·zero3·qwZ·hpZ2·qgZ2: quantized_gradients of ZeRO++ with gradients reduced once a step") &&
          ContainsSubstring("reduce: each_microbatch"));
  Plan whole = plan;
  whole.layout.data.secondary_shard = 0;
  whole.layout.data.reshard_after_forward = false;
  CHECK_THAT(refusal(whole),
             ContainsSubstring("quantized_weights of ZeRO++ with weights gathered once a step is not executed yet"));
  Plan divided = plan;
  divided.layout.tensor.degree = 2;
  CHECK_THAT(refusal(divided), ContainsSubstring("quantized_weights of ZeRO++ with 1d tensor parallelism") &&
                                   ContainsSubstring("secondary_shard alone"));
  divided.layout.data.quantized_weights = false;
  divided.layout.data.quantized_gradients = 0;
  CHECK(refusal(divided).empty());
}

TEST_CASE("offload runs on hosts only, and is named") {
  SessionOptions cuda;
  cuda.device = "cuda";
  for (const auto& [offload, part] : {std::pair(Offload{.optimizer = true}, std::string("offload of optimizer states")),
                                      {Offload{.parameters = true}, "offload of parameters"},
                                      {Offload{.optimizer = true, .parameters = true}, "offload of parameters"}}) {
    Plan plan = tiny_plan({.data = 2});
    plan.layout.data = {.degree = 2, .sharding = Sharding::zero3, .reshard_after_forward = true};
    plan.training.offload = offload;
    CHECK(refusal(plan).empty());
    CHECK_THAT(refusal(plan, cuda), ContainsSubstring(part + " on a GPU or over NCCL is not executed yet") &&
                                        ContainsSubstring("--device cpu"));
  }
}

namespace {

// A plan in a tensor group of two, changed.
template <class Change>
std::string refusal_of(const Change& change, const TinyPlan& wanted = {}) {
  Plan plan = tiny_plan(wanted);
  plan.layout.tensor.degree = 2;
  change(plan);
  return refusal(plan);
}

}  // namespace

TEST_CASE("1d tensor parallelism is executed, and what else there is says what is") {
  CHECK(refusal_of([](Plan&) {}).empty());
  CHECK(refusal_of([](Plan& plan) { plan.layout.tensor.sequence_parallel = true; }).empty());
  CHECK(refusal_of([](Plan& plan) {
          plan.layout.tensor.sequence_parallel = plan.layout.tensor.asynchronous = true;
        }).empty());
  CHECK_THAT(refusal_of([](Plan& plan) { plan.training.lora = Lora{}; }), ContainsSubstring("LoRA"));
  CHECK_THAT(refusal_of([](Plan& plan) { plan.model.vision = Vision{}; }), ContainsSubstring("model of images"));
  CHECK_THAT(refusal_of([](Plan& plan) { plan.software.scattered_messages = true; }),
             ContainsSubstring("without scattered_messages"));
  CHECK_THAT(refusal_of([](Plan& plan) { plan.layout.tensor = {.degree = 1, .sequence_parallel = true}; }),
             ContainsSubstring("sequence_parallel: false"));
  for (const std::string schedule : {"dualpipe", "chimera"}) {
    CHECK_THAT(refusal_of([](Plan&) {}, {.schedule = schedule}), ContainsSubstring("such as zb-h1"));
  }
  CHECK_THAT(refusal_of([](Plan&) {}, {.schedule = "pipedream"}), ContainsSubstring("such as 1f1b"));
  CHECK_THAT(refusal_of([](Plan&) {}, {.ranks = 4, .schedule = "bpipe"}), ContainsSubstring("evicts"));
  CHECK_THAT(refusal_of([](Plan& plan) { plan.schedule.slices = 2; }), ContainsSubstring("slices"));
  SessionOptions cuda;
  cuda.device = "cuda";
  Plan plan = tiny_plan({});
  plan.layout.tensor.degree = 2;
  CHECK_THAT(refusal(plan, cuda), ContainsSubstring("where ranks share one device"));
  cuda.transport = "nccl";
  CHECK(refusal(plan, cuda).empty());
  plan.layout.tensor.sequence_parallel = plan.layout.tensor.asynchronous = true;
  CHECK_THAT(refusal(plan, cuda), ContainsSubstring("asynchronous tensor parallelism on a GPU or over NCCL") &&
                                      ContainsSubstring("asynchronous: false"));
}

TEST_CASE(
    "2d, 2.5d and 3d tensor parallelism is executed where each rank has a device, and what else there is says what "
    "is") {
  const auto of = [](TensorLayout tensor, const auto& change, const SessionOptions& options = {}) {
    Plan plan = tiny_plan({});
    plan.model = test::gpt2(2, false);
    plan.training.microbatch = 4;
    plan.layout.tensor = tensor;
    change(plan);
    return refusal(plan, options);
  };
  const TensorLayout two_d{.degree = 4, .kind = TensorKind::two_d};
  const auto nothing = [](Plan&) {};
  CHECK(of(two_d, nothing).empty());
  CHECK(of({.degree = 8, .kind = TensorKind::two_and_half_d, .depth = 2}, nothing).empty());
  CHECK(of({.degree = 8, .kind = TensorKind::three_d}, nothing).empty());
  CHECK(of(two_d, [](Plan& plan) { plan.layout.data.degree = 2; }).empty());
  SessionOptions cuda;
  cuda.device = "cuda";
  CHECK_THAT(of(two_d, nothing, cuda), ContainsSubstring("tp4") && ContainsSubstring("where ranks share one device") &&
                                           ContainsSubstring("--transport nccl") && ContainsSubstring("--device cpu"));
  cuda.transport = "nccl";
  CHECK(of(two_d, nothing, cuda).empty());
  CHECK(of(two_d, [](Plan& plan) { plan.layout.data = {.degree = 2, .sharding = Sharding::fsdp}; }).empty());
  const auto in_panels = [](Plan& plan) { plan.layout.tensor.asynchronous = true; };
  SessionOptions gloo;
  gloo.transport = "gloo";
  for (const TensorLayout& grid : {two_d, TensorLayout{.degree = 8, .kind = TensorKind::two_and_half_d, .depth = 2}}) {
    CHECK(of(grid, in_panels).empty());
    CHECK(of(grid, in_panels, gloo).empty());
  }
  CHECK_THAT(of(two_d, in_panels, cuda), ContainsSubstring("panels overlapped with matmuls on a GPU or over NCCL") &&
                                             ContainsSubstring("asynchronous: false") &&
                                             ContainsSubstring("--transport local or gloo"));
  CHECK_THAT(of(two_d, [](Plan& plan) { plan.training.lora = Lora{}; }),
             ContainsSubstring("LoRA cannot be planned yet with a 2d"));
  CHECK_THAT(of(two_d, [](Plan& plan) { plan.training.offload.optimizer = true; }),
             ContainsSubstring("offload of optimizer states with a 2d") && ContainsSubstring("offload: none"));
  CHECK_THAT(of(two_d, [](Plan& plan) { plan.schedule.slices = 2; }),
             ContainsSubstring("a schedule of slices of sequences"));
  CHECK_THAT(of(two_d, [](Plan& plan) { plan.model = test::mixtral(2); }), ContainsSubstring("a mixture of experts"));
  CHECK_THAT(of(two_d, [](Plan& plan) { plan.model = test::hybrid(); }), ContainsSubstring("gated delta rule"));
  CHECK_THAT(of(two_d, [](Plan& plan) { plan.model = test::vit(2); }), ContainsSubstring("a model of images"));
  CHECK_THAT(of(two_d, [](Plan& plan) { plan.model = test::gpt2(2, true); }),
             ContainsSubstring("a tied embedding's table"));
  CHECK_THAT(of(two_d, [](Plan& plan) { plan.training.microbatch = 3; }),
             ContainsSubstring("do not divide 3") && ContainsSubstring("microbatch: 2, or a multiple of it"));
  CHECK_THAT(of({.degree = 8, .kind = TensorKind::three_d}, [](Plan& plan) { plan.model.vocabulary = 254; }),
             ContainsSubstring("254 tokens of the vocabulary"));
}

TEST_CASE("a shape that the tensor degree does not divide is named, with the degrees that divide all") {
  const auto of = [](const auto& change, int degree = 4) {
    return refusal_of([&](Plan& plan) {
      plan.model = test::mixtral(2);
      auto& layer = plan.model.layers.front();
      std::get<SoftmaxAttention>(layer.mixer).kv_heads = 4;
      std::get<SoftmaxAttention>(plan.model.layers.back().mixer).kv_heads = 4;
      plan.layout.tensor = {.degree = degree, .sequence_parallel = true};
      plan.training.sequence = 32;
      change(plan, layer);
    });
  };
  CHECK(of([](Plan&, Layer&) {}).empty());
  // Fewer heads of keys than ranks, each on several.
  for (const int heads : {1, 2}) {
    CHECK(of([&](Plan&, Layer& layer) { std::get<SoftmaxAttention>(layer.mixer).kv_heads = heads; }).empty());
  }
  CHECK_THAT(of([](Plan&, Layer& layer) {
               std::get<SoftmaxAttention>(layer.mixer).heads = 12;
               std::get<SoftmaxAttention>(layer.mixer).kv_heads = 6;
             }),
             ContainsSubstring("neither divides 6 kv_heads nor is a multiple of them") &&
                 ContainsSubstring("tensor degrees of 1, 2"));
  CHECK_THAT(of([](Plan&, Layer& layer) { std::get<SoftmaxAttention>(layer.mixer).heads = 6; }),
             ContainsSubstring("6 heads"));
  CHECK_THAT(of([](Plan& plan, Layer&) { plan.model.hidden = 30; }), ContainsSubstring("30 hidden"));
  CHECK_THAT(of([](Plan&, Layer& layer) { std::get<MoeMlp>(layer.mlp).width = 26; }), ContainsSubstring("26 columns"));
  CHECK_THAT(of([](Plan&, Layer& layer) { std::get<MoeMlp>(layer.mlp).shared_width = 2; }),
             ContainsSubstring("2 columns of a shared expert"));
  CHECK_THAT(of([](Plan& plan, Layer&) { plan.model.vocabulary = 50257; }), ContainsSubstring("50257 tokens"));
  CHECK_THAT(of([](Plan& plan, Layer&) { plan.training.sequence = 30; }), ContainsSubstring("30 tokens of a sequence"));
}

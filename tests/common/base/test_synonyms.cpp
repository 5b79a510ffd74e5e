#include "common/base/synonyms.hpp"

#include "common/schedule/generators/registry.hpp"
#include "tests/catch.hpp"

using namespace plumb;

TEST_CASE("values are taken by the names of PyTorch, Megatron-LM and Hugging Face") {
  const std::vector<std::string> precisions = {"fp32", "bf16", "fp16"};
  for (const char* name : {"bf16", "BF16", "bfloat16", "torch.bfloat16"}) {
    INFO(name);
    CHECK(find_name(name, precisions) == 1U);
  }
  CHECK(find_name("float32", precisions) == 0U);
  CHECK(find_name("half", precisions) == 2U);
  CHECK(find_name("adam", {"sgd", "adamw"}) == 1U);
  CHECK(find_name("AdamW", {"sgd", "adamw"}) == 1U);
  CHECK(find_name("silu", {"gelu", "swiglu"}) == 1U);
  CHECK(find_name("full_attention", {"sliding", "full"}) == 1U);
  CHECK(find_name("adamw_torch_fused", {"sgd", "adamw"}) == 1U);
  CHECK(find_name("FULL_SHARD", {"none", "zero3", "fsdp"}) == 2U);
  CHECK(find_name("ddp", {"none", "zero1"}) == 0U);
  CHECK(find_name("tp", {"tensor", "data"}) == 0U);
  CHECK(find_name("DGX_H100", {"dgx-a100", "dgx-h100"}) == 1U);
}

TEST_CASE("a synonym counts only where its name stands to choose, and a name of ours stays itself") {
  CHECK_FALSE(find_name("bfloat16", {"fp32"}));
  CHECK_FALSE(find_name("bf17", {"bf16"}));
  CHECK(find_name("adam", {"adam", "adamw"}) == 0U);
  CHECK(key_meant("tp", {"tensor", "data"}) == "tensor");
  CHECK(key_meant("tp", {"data"}).empty());
  CHECK(key_meant("zz", {"tensor"}).empty());
}

TEST_CASE("schedules are found by the names of torch.distributed.pipelining") {
  CHECK(find_schedule("1F1B").name == "1f1b");
  CHECK(find_schedule("GPipe").name == "gpipe");
  CHECK(find_schedule("ScheduleGPipe").name == "gpipe");
  CHECK(find_schedule("Interleaved1F1B").name == "interleaved-1f1b");
  CHECK(find_schedule("ScheduleInterleavedZeroBubble").name == "interleaved-zb");
  CHECK(find_schedule("ZBVZeroBubble").name == "zb-v");
  CHECK(find_schedule("DualPipeV").name == "dualpipe-v");
  CHECK(find_schedule("LoopedBFS").name == "breadth-first");
  CHECK(find_schedule("PipeDream-Flush").name == "1f1b");
  CHECK(find_schedule("interleaved").name == "interleaved-1f1b");
  CHECK(find_schedule("AFAB").name == "gpipe");
}

// Every wrong scenario is refused with file, line and column, what was expected, and a hint.
#include "common/scenario_file/read_scenario.hpp"
#include "tests/catch.hpp"
#include "tests/common/plan/scenarios.hpp"

using namespace plumb;
using namespace plumb::testing;

namespace {

struct WrongScenario {
  std::string rest;                // behind the model block, whose last line is line 10
  std::vector<std::string> parts;  // of the message
};

void check(const std::vector<WrongScenario>& cases) {
  for (const auto& [rest, parts] : cases) {
    CAPTURE(rest);
    const std::string message = message_for(scenario_text(rest));
    for (const std::string& part : parts) CHECK_THAT(message, ContainsSubstring(part));
  }
}

}  // namespace

TEST_CASE("keys and values that are not known name the nearest one that is") {
  check({{"trainig: {}\n", {"scenario.yaml:11:1: ", "unknown key 'trainig'", "did you mean 'training'?"}},
         {"training: {sequenc: 32}\n", {"scenario.yaml:11:12: ", "did you mean 'sequence'?"}},
         {"schedule: 1f1d\n", {"scenario.yaml:11:11: ", "unknown schedule '1f1d'", "did you mean '1f1b'?"}},
         {"schedule: [gpipe, zb-h11]\n", {"scenario.yaml:11:19: ", "did you mean 'zb-h1'?"}},
         {"schedule: {name: interleaved-1f1b, chunk: 2}\n", {"scenario.yaml:11:36: ", "did you mean 'chunks'?"}},
         {"split: dinamic\n", {"scenario.yaml:11:8: ", "did you mean 'dynamic'?"}},
         {"cluster: {machine: dgx-h101}\n", {"scenario.yaml:11:20: ", "did you mean 'dgx-h100'?"}},
         {"training: {precision: bf17}\n", {"scenario.yaml:11:23: ", "did you mean 'bf16'?"}},
         {"training: {optimizer: adamv}\n", {"scenario.yaml:11:23: ", "did you mean 'adamw'?"}},
         {"training: {recompute: ful}\n", {"scenario.yaml:11:23: ", "did you mean 'full'?"}},
         {"layout: {order: [tensor, dato]}\n", {"scenario.yaml:11:26: ", "did you mean 'data'?"}},
         {"layout: {order: [data, data]}\n", {"scenario.yaml:11:24: ", "stands twice"}}});
}

TEST_CASE("unknown offload targets are refused, other frameworks' words are translated") {
  check({{"training: {offload: optimiser}\n", {"scenario.yaml:11:21: ", "'optimiser'", "did you mean 'optimizer'?"}},
         {"training: {offload: none+optimizer}\n", {"scenario.yaml:11:21: ", "'none' beside something else"}},
         {"training: {offload: [none, none]}\n", {"scenario.yaml:11:28: ", "stands twice"}},
         {"training: {offload: parameters+none}\n", {"scenario.yaml:11:21: ", "'none' beside something else"}},
         {"training: {offload_optimizer: cpu}\n", {"the key is 'offload' here"}},
         {"training: {cpu_offload: true}\n", {"the key is 'offload' here"}},
         {"training: {offload_param: cpu}\n", {"the key is 'offload' here"}}});
  const std::string mine =
      "cluster: {machine: {name: mine, devices: 1, device: {name: d, type: cpu, peak: {fp32: 1 TFLOP/s}, "
      "matmul_efficiency: 0.5, memory_bandwidth: 10 GB/s, memory_efficiency: 0.5, memory: 4 GiB}, "
      "inside: {latency: 1 us, bandwidth: 1 GB/s}, outside: {latency: 1 us, bandwidth: 1 GB/s}";
  check({{mine + "}}\ntraining: {offload: optimizer}\n",
          {"scenario.yaml:11:", "machine mine has no 'host', which is needed to offload to", "host: {link: {latency"}},
         {mine + "}}\ntraining: {offload: [none, optimizer]}\n", {"machine mine has no 'host'"}},
         {mine + "}}\ntraining: {offload: parameters}\nlayout: {pipeline: 1, data: {degree: 2, sharding: fsdp}}\n",
          {"machine mine has no 'host'", "host: {link: {latency"}},
         {mine + ", host: {link: {latency: 1 us}, memory: 1 GiB}}}\n",
          {"key 'memory_bandwidth' is missing in", "key 'bandwidth' is missing in"}},
         {mine + ", host: {link: {latency: 1 us, bandwidth: 1 GB/s}, memory: 1 GiB, memory_bandwith: 1 GB/s}}}\n",
          {"did you mean 'memory_bandwidth'?"}}});
  CHECK(message_for(scenario_text(mine + "}}\ntraining: {offload: none}\n")) == "no error");
}

TEST_CASE("faults of several blocks are reported at once") {
  check(
      {{"trainig: {}\ntraining: {sequenc: 32, precision: bf17, optimizer: adamv, seed: -1}\n"
        "cluster: {machine: dgx-h101, nods: 2}\nsplit: dinamic\nsoftware: megatron-2023\n",
        {"scenario.yaml:11:1: unknown key 'trainig'", "scenario.yaml:12:12: unknown key 'sequenc'",
         "scenario.yaml:12:36: training.precision: unknown 'bf17'", "unknown 'adamv'", "training.seed: expected",
         "scenario.yaml:13:30: unknown key 'nods'", "unknown machine 'dgx-h101'",
         "scenario.yaml:14:8: split: unknown 'dinamic'", "unknown software 'megatron-2023'"}},
       {"training: {precision: bf17}\nlayout: {pp: 2}\n",
        {"unknown 'bf17'", "scenario.yaml:12:10: unknown key 'pp' in layout\n  hint: the key is 'pipeline' here"}},
       {"training: {sequence: many, global_batch: -1, microbatch: [2, x]}\ncluster: {machine: dgx-h101}\n"
        "layout: {pp: 2}\nschedule: [gpipe, zb-h11]\n",
        {"training.sequence: expected", "training.global_batch: expected",
         "scenario.yaml:11:62: ", "unknown machine 'dgx-h101'", "scenario.yaml:13:10: unknown key 'pp' in layout",
         "scenario.yaml:14:19: unknown schedule 'zb-h11'"}},
       {"layout: {pipeline: 9}\nschedule: 1f1d\nsplit: dinamic\n", {"unknown schedule '1f1d'", "unknown 'dinamic'"}}});
}

TEST_CASE("a schedule's description that a list cuts at its comma") {
  check({{"schedule: [interleaved-1f1b, 4 chunks]\n",
          {"scenario.yaml:11:30: unknown schedule '4 chunks'", "hint: in quotes", "\"interleaved-1f1b, 4 chunks\""}},
         {"schedule: [seq-1f1b, 2 slices]\n", {"unknown schedule '2 slices'", "\"seq-1f1b, 2 slices\""}}});
  CHECK(message_for(scenario_text("schedule: [\"interleaved-1f1b, 4 chunks\"]\n")) == "no error");
}

TEST_CASE("numbers out of range and of another type") {
  check({{"training: {sequence: 0}\n", {"scenario.yaml:11:22: ", "a whole number from 1"}},
         {"training: {sequence: -5}\n", {"scenario.yaml:11:22: "}},
         {"training: {sequence: 1e9}\n", {"scenario.yaml:11:22: "}},
         {"training: {sequence: 99999999999999999999}\n", {"scenario.yaml:11:22: "}},
         {"training: {learning_rate: .nan}\n", {"scenario.yaml:11:27: "}},
         {"training: {global_batch: many}\n", {"scenario.yaml:11:26: "}},
         {"training: {microbatch: []}\n", {"scenario.yaml:11:24: ", "the list is empty"}},
         {"training: [1, 2]\n", {"scenario.yaml:11:11: "}},
         {"layout: {pipeline: 0}\n", {"scenario.yaml:11:20: "}},
         {"cluster: {machine: dgx-h100, memory: 80}\n", {"scenario.yaml:11:38: ", "no unit", "'80 GB'"}},
         {"cluster: {ranks: 2, cores: 0}\n", {"scenario.yaml:11:28: "}}});
}

TEST_CASE("a microbatch must divide the batch") {
  check({{"training: {global_batch: 16, microbatch: 3}\n",
          {"scenario.yaml:11:42: ", "a microbatch of 3 does not divide the global batch of 16 sequences",
           "microbatch: 2 or 4"}},
         {"training: {global_batch: 16, microbatch: [2, 5]}\n", {"scenario.yaml:11:46: ", "microbatch: 4 or 8"}},
         {"training: {global_batch: 16, microbatch: 17}\n", {"scenario.yaml:11:42: ", "microbatch: 16"}}});
}

TEST_CASE("microbatches on all data-parallel ranks must divide a given batch, and the default one they do") {
  check({{"training: {global_batch: 4}\ncluster: {machine: dgx-a100, nodes: 1}\nlayout: {pipeline: 1, data: {degree: "
          "8}}\n",
          {"scenario.yaml:11:26: ", "a microbatch of 1 on each of 8 data-parallel ranks does not divide the batch of 4",
           "global_batch: 8"}},
         {"training: {global_batch: 20, microbatch: 2}\ncluster: {machine: dgx-a100, nodes: 1}\n"
          "layout: {pipeline: 2, data: {degree: 4}}\n",
          {"scenario.yaml:11:26: ", "a microbatch of 2 on each of 4", "global_batch: 16 or 24"}}});
}

TEST_CASE("layers, stages and explicit splits must agree") {
  const std::string thirty = R"(model:
  vocabulary: 100
  hidden: 64
  heads: 4
  ffn: 128
  layers: "full/dense*30"
layout: {pipeline: 4}
)";
  const std::string message = message_for(thirty + "split: [6, 7, 7, 8]\n");
  CHECK_THAT(message, ContainsSubstring("scenario.yaml:8:8: "));
  CHECK_THAT(message, ContainsSubstring("28") && ContainsSubstring("30"));
  CHECK_THAT(message_for(thirty + "split: [10, 10, 10]\n"), ContainsSubstring("scenario.yaml:8:8: "));
  CHECK_THAT(message_for(thirty + "split: \"Et*7|t*7|t*7|t*8L\"\n"),
             ContainsSubstring("scenario.yaml:8:8: ") && ContainsSubstring("29") && ContainsSubstring("30"));
  CHECK(message_for(thirty + "split: [8, 8, 8, 6]\n") == "no error");
  CHECK(message_for(thirty + "split: \"Et*8|t*8|t*8|t*6L\"\n") == "no error");

  check({{"layout: {pipeline: 9}\n", {"scenario.yaml:11:20: ", "9", "8"}},
         {"layout: {pipeline: 4}\nschedule: {name: interleaved-1f1b, chunks: 3}\n", {"scenario.yaml:11:20: ", "12"}}});
}

TEST_CASE("a recompute counts no more layers than the model has") {
  check(
      {{"training: {recompute: {layers: 100}}\n",
        {"scenario.yaml:11:32: ", "100 layers of each stage, but the model has 8 layers", "at most 8"}},
       {"training: {recompute: {every: 9}}\n", {"scenario.yaml:11:31: ", "every n-th layer", "the model has 8 layers"}},
       {"training: {recompute: [none, {layers: 9}]}\n", {"scenario.yaml:11:39: ", "8 layers"}},
       {"training: {recompute: {every: 0}}\n", {"scenario.yaml:11:31: ", "a whole number from 1"}},
       {"training: {recompute: {every: 2, layers: 1}}\n", {"scenario.yaml:11:23: ", "{layers: 2}, or {every: 2}"}}});
  CHECK(message_for(scenario_text("training: {recompute: {layers: 8}}\n")) == "no error");
  CHECK(message_for(scenario_text("training: {recompute: {every: 8}}\n")) == "no error");
}

TEST_CASE("ranks, devices and layout must agree") {
  check({{"cluster: {machine: dgx-h100, ranks: 9}\n", {"scenario.yaml:11:37: ", "9 ranks on 8 devices"}},
         {"cluster: {machine: dgx-h100, ranks: 4}\nlayout: {pipeline: 8}\n",
          {"scenario.yaml:12:20: ", "pp8 has 8 ranks, the cluster 4"}},
         {"cluster: {machine: local-cpu, nodes: 2}\n", {"scenario.yaml:11:38: "}},
         {"cluster: {machine: dgx-h100, cores: 2}\n", {"scenario.yaml:11:37: "}},
         {"schedule: {name: gpipe, chunks: 2}\n", {"scenario.yaml:11:33: ", "one chunk a rank"}}});
  // All devices of the nodes that it names are ranks, unless it says fewer.
  check({{"cluster: {machine: dgx-h100, nodes: 1}\nlayout: {pipeline: 4}\n",
          {"scenario.yaml:11:37: ", "pp4 has 4 ranks, the cluster 8 devices (1 × dgx-h100)", "ranks: 4"}}});
  for (const std::string few : {"", ", nodes: 1, ranks: 4", ", ranks: 4"}) {
    CHECK(message_for(scenario_text("cluster: {machine: dgx-h100" + few + "}\nlayout: {pipeline: 4}\n")) == "no error");
  }
  const std::string message = message_for(scenario_text("cluster: {machine: dgx-h100}\nlayout: {pipeline: 16}\n"));
  CHECK_THAT(message, ContainsSubstring("scenario.yaml:12:20: ") && ContainsSubstring("nodes: 2"));
}

TEST_CASE("a layout that has not the cluster's ranks is told degrees with which it has them") {
  const std::string four = "cluster: {machine: dgx-h100, nodes: 4";
  check({{four + ", ranks: 16}\nlayout: {pipeline: 4, tensor: {degree: 8}}\n",
          {"scenario.yaml:12:20: ", "32 ranks, the cluster 16", "hint: pipeline: 2, or cluster: {ranks: 32}"}},
         {four + ", ranks: 12}\nlayout: {pipeline: 4, tensor: {degree: 8}}\n", {"hint: cluster: {ranks: 32}"}},
         {"cluster: {machine: dgx-h100, ranks: 4}\nlayout: {pipeline: 12}\n",
          {"hint: pipeline: 4, or cluster: {nodes: 2, ranks: 12}"}},
         {"cluster: {machine: dgx-h100}\nlayout: {pipeline: 12}\n", {"hint: cluster: {nodes: 2, ranks: 12}"}},
         {four + "}\nlayout: {pipeline: 4, data: {degree: 2}}\n",
          {"hint: cluster: {ranks: 8} uses no more, or layout: {data: {degree: 8}}"}}});
  const std::string five = message_for(scenario_text(four + "}\nlayout: {pipeline: 5}\n"));
  CHECK_THAT(five, ContainsSubstring("cluster: {ranks: 5} uses no more") && !ContainsSubstring("data"));
}

// The model has 4 heads of attention and 2 of keys and values.
TEST_CASE("a tensor degree that a settled layout gives must divide the model") {
  const std::string eight = "cluster: {machine: dgx-h100}\n";
  check({{eight + "layout: {pipeline: 1, tensor: {degree: 3}}\n",
          {"scenario.yaml:12:40: ", "a tensor degree of 3 does not divide", "hint: a tensor degree of 2"}},
         {eight + "layout: {tensor: {degree: [8]}}\n", {"scenario.yaml:12:", "a tensor degree of 8 does not divide"}}});
  CHECK(message_for(scenario_text(eight + "layout: {pipeline: 2, tensor: {degree: 2}}\n")) == "no error");
}

TEST_CASE("a sequence whose tokens a tensor group shares out is a multiple of its degree") {
  const std::string two = "cluster: {machine: local-cpu, ranks: 2}\nlayout: {tensor: {degree: 2, sequence_parallel: ";
  check({{two + "true}}\ntraining: {sequence: 33}\n",
          {"scenario.yaml:13:22: ", "a tensor degree of 2 does not divide 33 tokens of a sequence",
           "hint: sequence: 32 or 34, or sequence_parallel: false"}},
         {two + "true}}\ntraining: {sequence: 1}\n", {"scenario.yaml:13:22: ", "hint: sequence: 2, or sequence_"}}});
  for (const std::string fine : {"false}}\ntraining: {sequence: 33}\n", "true}}\ntraining: {sequence: 34}\n",
                                 "[true, false]}}\ntraining: {sequence: 33}\n"}) {
    CHECK(message_for(scenario_text(two + fine)) == "no error");
  }
}

TEST_CASE("features that are not built yet are refused by name") {
  const std::string planned = "is not supported yet";
  check({{"training: {recompute: {layers: 0}}\n", {"scenario.yaml:11:32: ", "a whole number from 1"}},
         {"layout: {context: 2}\n",
          {"context parallelism " + planned, "hint: supported: pipeline, tensor and data parallelism"}},
         {"layout: {expert: 8}\n", {"expert parallelism " + planned}}});
}

TEST_CASE("keys that a sharding rule does not have are refused at the key") {
  const std::string eight = "cluster: {machine: dgx-h100}\n";
  const std::string of = "layout: {data: {degree: 4, sharding: ";
  check({{of + "{kind: zero1, shard: 2}}}\n",
          {"scenario.yaml:11:59: ", "degrees of hsdp", "zero1 shares out over all", "hint: kind: hsdp"}},
         {of + "hsdp}}\n", {"scenario.yaml:11:38: ", "hsdp needs shard", "replicate", "fsdp"}},
         {of + "{kind: hsdp, shard: 4, replicate: 2}}}\n",
          {"scenario.yaml:11:38: ", "shard 4 and replicate 2 is not of a data degree of 4", "hint: data: {degree: 8}"}},
         {of + "{kind: hsdp, shard: 3}}}\n", {"shard 3 does not divide a data degree of 4", "multiple"}},
         {of + "{kind: hsdp, shard: 0}}}\n", {"scenario.yaml:11:58: ", "a whole number from 1"}},
         {of + "{kind: hsdp, shards: 2}}}\n", {"did you mean 'shard'?"}},
         {of + "zero4}}\n", {"unknown 'zero4'", "did you mean 'zero"}},
         {of + "4}}\n", {"scenario.yaml:11:38: ", "unknown '4'", "one of: none, zero1"}},
         {of + "zero2, reshard_after_forward: true}}\n",
          {"scenario.yaml:11:68: ", "zero2 keeps whole weights", "fsdp, zero3 or hsdp"}},
         {of + "zero1, reduce: each_microbatch}}\n", {"zero1 keeps whole gradients", "zero2, zero3, fsdp or hsdp"}},
         {of + "fsdp, reduce: each}}\n", {"unknown 'each'", "did you mean 'each_microbatch'?"}},
         {of + "fsdp, reshard_after_forward: 1}}\n", {"scenario.yaml:11:67: ", "a whole number from 2"}},
         {eight + "layout: {pipeline: [2, 4], data: {degree: auto, sharding: {kind: hsdp, shard: 3}}}\n",
          {"scenario.yaml:12:59: ", "no layout that is left open has a data degree of shard 3"}},
         {"layout: {pipeline: 2, data: {by_stage: [2, 1], sharding: fsdp}}\n",
          {"scenario.yaml:11:40: ", "sharding fsdp cannot be planned yet with data degrees by stage"}},
         {of + "[zero1, zero9]}}\n", {"scenario.yaml:11:46: ", "unknown 'zero9'"}},
         {of + "[]}}\n", {"the list is empty"}},
         {of + "[none, zero1], reduce: each_microbatch}}\n", {"none, zero1 keeps whole gradients"}},
         {"layout: {data: {sharding: {kind: hsdp, shard: 1048576, replicate: 2}}}\n", {"2097152 ranks"}}});
}

TEST_CASE("blocks that nothing gathers ahead are refused, with the setting by which something does") {
  const std::string of = "layout: {data: {degree: 4, sharding: ";
  check({{of + "zero2, prefetch: 2}}\n", {"scenario.yaml:11:55: ", "zero2 gathers none", "hint: reshard_after"}},
         {of + "fsdp, reshard_after_forward: false, prefetch: 2}}\n", {"fsdp gathers none"}},
         {"layout: {pipeline: 2, data: {degree: 4, sharding: fsdp, prefetch: 2}}\n", {"under a pipeline fsdp"}},
         {of + "fsdp, prefetch: 1001}}\n", {"scenario.yaml:11:54: ", "from 0 to 1000"}},
         {of + "zero1, layers_per_unit: 2}}\n", {"layers_per_unit is of weights that actions gather"}},
         {of + "fsdp, backward_prefetch: 2}}\n", {"the key is 'prefetch' here"}}});
}

TEST_CASE("parts of ZeRO++ that a rule or a data degree does not have are refused, those of DeepSpeed's names named") {
  const std::string of = "layout: {data: {degree: 4, sharding: ";
  const std::string twice = "fsdp, secondary_shard: 2, ";
  check({{of + "zero2, quantized_weights: true}}\n",
          {"scenario.yaml:11:64: ", "zero2 has no part of ZeRO++", "hint: sharding: zero3 or fsdp"}},
         {of + "{kind: hsdp, shard: 2}, secondary_shard: 2}}\n", {"hsdp has no part of ZeRO++"}},
         {of + "zero2, reshard_after_forward: 2}}\n", {"scenario.yaml:11:68: ", "zero2 keeps whole weights"}},
         {of + "zero3, secondary_shard: 3}}\n", {"secondary_shard 3 does not divide a data degree of 4"}},
         {of + "zero3, quantized_gradients: 3}}\n", {"quantized_gradients 3 does not divide a data degree of 4"}},
         {of + twice + "quantized_gradients: 4}}\n", {"secondary_shard 2 and quantized_gradients 4 are not groups"}},
         {of + twice + "reshard_after_forward: false}}\n", {"scenario.yaml:11:61: ", "leave one of them out"}},
         {of + twice + "reshard_after_forward: 4}}\n", {"secondary_shard is of weights that are resharded"}},
         {of + "zero3, zero_quantized_weights: true}}\n", {"the key is 'quantized_weights' here"}},
         {of + "zero3, zero_hpz_partition_size: 2}}\n", {"the key is 'secondary_shard' here"}},
         {of + "zero3, zero_quantized_gradients: true}}\n", {"the key is 'quantized_gradients' here"}},
         {of + "zero3, secondary_shards: 2}}\n", {"did you mean 'secondary_shard'?"}}});
}

TEST_CASE("open degrees whose product cannot be the number of ranks") {
  const std::string eight = "cluster: {machine: dgx-h100}\n";
  check({{eight + "layout: {pipeline: [3, 5], data: auto}\n",
          {"scenario.yaml:12:20: ", "pipeline 3 or 5, tensor 1, data auto", "the 8 ranks of the cluster",
           "product of the degrees must be 8"}},
         {eight + "layout: {pipeline: [2, 4], data: {degree: 3}}\n", {"data 3 has the 8 ranks"}},
         {eight + "layout: {pipeline: [2, 4]}\n", {"tensor 1, data 1 has the 8 ranks"}},
         {eight + "layout: {tensor: {degree: [2, 2]}}\n", {"scenario.yaml:12:31: ", "2 stands twice"}},
         {eight + "layout: {tensor: {degree: []}}\n", {"the list is empty"}},
         {eight + "layout: {pipeline: [0, 2]}\n", {"scenario.yaml:12:21: ", "a whole number from 1"}},
         {eight + "layout: {order: any}\n", {"scenario.yaml:12:17: "}},
         {eight + "layout: {tensor: {sequence_parallel: [true, true]}}\n", {"'true' stands twice"}},
         {eight + "layout: {pipeline: 2, tensor: {degree: 1, sequence_parallel: true}}\n",
          {"a part of the tokens, and the tensor degree is 1", "hint: degree: 2 or more beside it"}},
         {eight + "training: {recompute: [full, full]}\n", {"scenario.yaml:12:30: ", "'full' stands twice"}},
         {"cluster: {machine: dgx-h100, nodes: 2, ranks: 24}\nlayout: auto\n",
          {"scenario.yaml:11:47: ", "24 ranks on 16 devices"}}});
}

TEST_CASE("software that there is not, and facts that it has not") {
  check({{"software: megatron\n", {"scenario.yaml:11:11: ", "unknown software 'megatron'", "megatron-202"}},
         {"software: {name: mine}\n", {"scenario.yaml:11:", "key 'source' is missing", "like: megatron-2024"}},
         {"software: {attention: flash}\n", {"keys 'name', 'source' are missing in software", "or begin with like: "}},
         {"software: {like: plumb, drop_out: true}\n", {"scenario.yaml:11:", "did you mean 'dropout'?"}},
         {"software: {like: plumb, exchange: sync}\n", {"exchange"}},
         {"software: {like: plumb, data_bucket: {}}\n", {"data_bucket: expected either bytes, or parameters"}},
         {"software: {like: plumb, data_bucket: {bytes: 25 MiB, parameters: 1}}\n",
          {"expected either bytes, or parameters"}},
         {"software: {like: plumb, data_bucket: {byte: 25 MiB}}\n", {"did you mean 'bytes'?"}},
         {"software: {like: plumb, step_overhead: 5}\n", {"has no unit"}},
         {"software: {like: plumb, hidden_in_pairs: 2}\n", {"hidden_in_pairs"}}});
}

TEST_CASE("files of software that are like each other are refused, and name the circle") {
  const TemporaryFolder folder;
  (void)folder.write("a.yaml", "{like: b.yaml, attention: unfused}\n");
  (void)folder.write("b.yaml", "# another\nlike: c.yaml\n");
  (void)folder.write("c.yaml", "{like: ./a.yaml}\n");
  (void)folder.write("self.yaml", "{like: self.yaml, name: x, source: y}\n");
  (void)folder.write("typo.yaml", "like: plumb\ndrop_out: true\n");
  const auto message = [&](const std::string& software) -> std::string {
    try {
      (void)read_scenario(folder.write("scenario.yaml", scenario_text("software: " + software + "\n")));
    } catch (const InputError& error) {
      return error.what();
    }
    return "no error";
  };
  for (const std::string first : {"a.yaml", "{like: a.yaml}"}) {
    CHECK_THAT(message(first),
               ContainsSubstring("c.yaml:1:8: like: a.yaml is like b.yaml is like c.yaml is like a.yaml"));
  }
  CHECK_THAT(message("b.yaml"), ContainsSubstring("a.yaml:1:8: like: b.yaml is like c.yaml is like a.yaml is like"));
  CHECK_THAT(message("self.yaml"), ContainsSubstring("self.yaml:1:8: like: self.yaml is like self.yaml"));
  CHECK_THAT(message("typo.yaml"),
             ContainsSubstring("typo.yaml:2:1: ") && ContainsSubstring("did you mean 'dropout'?"));
}

TEST_CASE("hidden states that nobody sends are refused where the scenario says their size") {
  const std::string long_sequence = "sequence: 2147483648";
  check({{"training: {" + long_sequence + ", global_batch: 4096, microbatch: 4096}\n",
          {"scenario.yaml:11:22: boundary: hidden_states (", " is larger than 16 TiB", "a shorter sequence"}},
         {"training: {global_batch: 2147483648, microbatch: 2147483648}\n",
          {"scenario.yaml:11:50: boundary: hidden_states (", "a smaller microbatch"}}});
}

TEST_CASE("one word where a block belongs") {
  check({{"layout: 4\n", {"scenario.yaml:11:9: ", "not '4'", "hint: layout: {pipeline: 4}"}},
         {"layout: {tensor: 2d}\n", {"scenario.yaml:11:18: ", "hint: tensor: {kind: 2d}"}},
         {"training: bf16\n", {"scenario.yaml:11:11: ", "there is no file 'bf16'"}},
         {"layout: {data: {by_stage: 4}}\n",
          {"scenario.yaml:11:27: ", "by_stage: expected auto or a list of whole numbers", "not '4'",
           "hint: by_stage: [2, 1]"}},
         {"layout: {data: {by_stage: atuo}}\n", {"scenario.yaml:11:27: ", "'atuo'", "did you mean 'auto'?"}},
         {"training: {recompute: every}\n", {"scenario.yaml:11:23: ", "needs a value", "hint: {every: 2}"}},
         {"training: {recompute: layers}\n", {"scenario.yaml:11:23: ", "hint: {layers: 2}"}},
         {"training: {recompute: {every: [1, 2]}}\n",
          {"scenario.yaml:11:31: training.recompute.every: expected a whole number from 1"}},
         {"training: {lora: {alpha: 0}}\n", {"scenario.yaml:11:26: ", "never change the model"}},
         {"cluster: dgx-h100\n", {"scenario.yaml:11:10: ", "hint: cluster: {machine: dgx-h100}"}},
         {"cluster: 8\n", {"scenario.yaml:11:10: ", "hint: cluster: {ranks: 8}"}}});
}

TEST_CASE("a key in the wrong block is answered with the right one, in the words of other frameworks too") {
  check({{"sequence: 32\n", {"scenario.yaml:11:1: unknown key 'sequence' in the file", "training: {sequence: …}"}},
         {"training: {pipeline: 2}\n", {"unknown key 'pipeline' in training", "layout: {pipeline: …}"}},
         {"tensor_model_parallel_size: 2\n", {"the key is 'tensor', in layout: {tensor: …}"}},
         {"layout: {micro_batch_size: 2}\n", {"the key is 'microbatch', in training: {microbatch: …}"}},
         {"training: {zero_stage: 3}\n", {"the key is 'sharding', in layout: {data: {sharding: …}}"}},
         {"cluster: {seq_length: 64k}\n", {"the key is 'sequence', in training: {sequence: …}"}},
         {"training: {tenser: 2}\n", {"did you mean 'tensor', in layout: {tensor: …}?"}}});
}

TEST_CASE("every fault of a file is named at once, each with its line") {
  const std::string message = message_for(scenario_text(
      "training: {sequence: 0, microbatch: [2, x], learning_rate: 1e309, lora: {rnk: 4, alpha: many}}\n"
      "layout:\n  pipeline: -1\n  tensor: {degree: 0, kind: 4d}\n  data: {sharding: zero9, prefetch: -1}\n"
      "cluster: {nodes: 0, memory: 80, sites: {nodes: 1}}\nsoftware: {like: plumb, dropout: maybe, exchange: never}\n"
      "schedule: {name: 1f1b, chunks: many}\nsequence: 32\n"));
  for (const char* part :
       {"11:22: training.sequence: ", "11:41: training.microbatch[1]: ", "11:60: training.learning_rate: ",
        "unknown key 'rnk'", "training.lora.alpha: ", "13:13: layout.pipeline: ", "14:20: layout.tensor.degree: ",
        "14:29: layout.tensor.kind: ", "15:20: layout.data.sharding: ", "15:37: layout.data.prefetch: ",
        "16:18: cluster.nodes", "16:29: cluster.memory: ", "keys 'bandwidth', 'latency' are missing in cluster.sites",
        "17:34: software.dropout: ", "17:51: software.exchange: ", "18:32: schedule.chunks: ", "19:1: unknown key"}) {
    CHECK_THAT(message, ContainsSubstring(part));
  }
}

TEST_CASE("tokens may be counted in k and M") {
  const auto sequence = [](const std::string& written) {
    return read_text(scenario_text("training: {sequence: " + written + "}\n")).training.sequence;
  };
  CHECK(sequence("4096") == 4096);
  CHECK(sequence("64k") == 65536);
  CHECK(sequence("1M") == 1048576);
  check(
      {{"training: {sequence: 9999999M}\n", {"scenario.yaml:11:22: training.sequence: expected a whole number from 1"}},
       {"training: {sequence: 4G}\n", {"scenario.yaml:11:22: ", "not '4G'"}},
       {"training: {global_batch: 4k}\n", {"scenario.yaml:11:26: "}}});
}

TEST_CASE("a bare number is the degree on every axis") {
  const Scenario bare = read_text(scenario_text("layout: {pipeline: 2, tensor: 2, data: 2}\n"));
  const Scenario blocks = read_text(scenario_text("layout: {pipeline: 2, tensor: {degree: 2}, data: {degree: 2}}\n"));
  CHECK(bare.layouts == blocks.layouts);
  CHECK(bare.layout.tensor.degree == 2);
}

TEST_CASE("a schedule that suits no microbatch is refused at its line, with what to take instead") {
  const std::string rest =
      "cluster: {machine: local-cpu, ranks: 2, cores: 2}\ntraining: {sequence: 32, global_batch: 8, microbatch: 1}\n"
      "schedule: ";
  check({{rest + "{name: seq-1f1b, slices: 3}\n",
          {"scenario.yaml:13:11: schedule seq-1f1b: 3 slices do not divide", "hint: slices: 2 or 4"}},
         {rest + "{name: seq-1f1b, slices: [16, 8]}\n",
          {"scenario.yaml:13:36: schedule seq-1f1b: slices of 16 + 8 = 24 tokens do not make up a sequence of 32",
           "hint: the last one of 16 tokens would"}},
         {rest + "{name: seq-1f1b, slices: [40, 8]}\n", {"= 48 tokens", "hint: slices: 2, slices_by: work"}},
         {rest + "{name: seq-1f1b, slices: [32, 0]}\n", {"scenario.yaml:13:41: ", "from 1 to"}},
         {rest + "{name: seq-1f1b, slices: []}\n", {"scenario.yaml:13:36: ", "the list is empty"}},
         {rest + "{name: seq-1f1b, slices: [16, 16], slices_by: work}\n",
          {"scenario.yaml:13:57: ", "either of equal work or", "hint: slices: 2, slices_by: work"}},
         {rest + "{name: seq-1f1b, slices_by: time}\n", {"scenario.yaml:13:39: ", "one of: tokens, work"}},
         {rest + "{name: 1f1b, slices_by: work}\n", {"scenario.yaml:13:", "has no use for slices_by"}},
         {rest + "{name: seq-1f1b, pipe_sp_strategy: work}\n", {"hint: the key is 'slices_by' here"}},
         {rest + "\"seq-1f1b, slices of 16 + 8\"\n", {"scenario.yaml:13:11: ", "= 24 tokens"}},
         {rest + "{name: interleaved-1f1b, group: 1}\n",
          {"scenario.yaml:13:11: schedule interleaved-1f1b: a group of 1", "hint: take "}},
         {rest + "{name: pipedream-2bw, update_every: 3}\n",
          {"scenario.yaml:13:11: schedule pipedream-2bw: ", "hint: update every 2 or 4"}},
         {rest + "{file: /tmp}\n", {"scenario.yaml:13:18: ", "'/tmp' is a folder, expected a file"}},
         {rest + "{file: \"\"}\n", {"scenario.yaml:13:18: ", "is empty, expected a file"}}});
  CHECK_THAT(message_for(scenario_text(rest + "{file: /tmp}\n")), !ContainsSubstring("hint"));
}

TEST_CASE("a plan in a scenario's place") {
  CHECK_THAT(message_for("{\"format\": \"plumb plan\", \"version\": 1}"),
             ContainsSubstring("looks like a plan") && ContainsSubstring("plumb simulate "));
}

TEST_CASE("a model in a scenario's place") {
  for (const std::string model : {"{\"architectures\": [\"MistralForCausalLM\"], \"hidden_size\": 64}",
                                  "{\"model_type\": \"llama\"}", "name: own\nhidden: 64\nlayers: full/dense\n"}) {
    CHECK_THAT(message_for(model), ContainsSubstring("is not a scenario: it looks like a model") &&
                                       ContainsSubstring("hint: write model: scenario.yaml in a scenario"));
  }
}

TEST_CASE("files that are not there") {
  const std::string tiny = "did you mean 'models/tiny-hybrid.yaml'?";
  CHECK_THAT(message_for("model: tiny-hybird\n"), ContainsSubstring("scenario.yaml:1:8: ") && ContainsSubstring(tiny));
  CHECK_THAT(message_for("model: something-else\n"), ContainsSubstring("one of: models/"));
  const std::string listed = message_for("model: nope.json\n");
  CHECK_THAT(listed, ContainsSubstring("there is no file 'nope.json'") && ContainsSubstring("hint: one of: models/"));
  CHECK_THAT(listed, !ContainsSubstring("demo.yaml"));
  CHECK_THAT(message_for("model: tiny-hybird.yaml\n"), ContainsSubstring(tiny));
  const TemporaryFolder folder;
  (void)folder.write("nemo.json", "{}");
  CHECK_THROWS_WITH(read_scenario(folder.write("s.yaml", "model: nema.json\n")),
                    ContainsSubstring("did you mean 'nemo.json'?"));
  (void)folder.write("unlike.yaml", "{}");
  const auto hint_of = [&](const std::string& rest) -> std::string {
    try {
      (void)read_scenario(folder.write("s.yaml", scenario_text(rest)));
    } catch (const InputError& error) {
      return error.hint();
    }
    return "no error";
  };
  CHECK(hint_of("layout: something-else\n").empty());  // not all that lies beside it
  CHECK(hint_of("profile: unlikely.yaml\n") == "did you mean 'unlike.yaml'?");
  check({{"profile: profil.yaml\n", {"scenario.yaml:11:10: ", "there is no file 'profil.yaml'", "looked in"}},
         {"cluster: {machine: machines/dgx-h1000.yaml}\n",
          {"scenario.yaml:11:20: ", "did you mean 'machines/dgx-h100.yaml'?"}}});
  CHECK_THAT(message_for("model: models/no-such-model.yaml\n"), ContainsSubstring("scenario.yaml:1:8: "));
  CHECK_THAT(message_for("cluster: {ranks: 2}\n"), ContainsSubstring("'model' is missing"));
  CHECK_THAT(message_for("{"), ContainsSubstring("scenario.yaml:1:"));
  CHECK_THAT(message_for(""), ContainsSubstring("is empty"));
}

TEST_CASE("a scenario that is cut or has one byte changed is read or refused, never worse") {
  const std::string text = scenario_text(
      "cluster: {machine: dgx-h100, nodes: 2, ranks: 4}\n"
      "training: {sequence: 128, global_batch: 24, microbatch: [1, 2], precision: bf16, recompute: full}\n"
      "layout: {order: [data, pipeline], pipeline: 4}\n"
      "schedule: [1f1b, {name: interleaved-1f1b, chunks: 2}]\nsplit: [uniform, [2, 2, 2, 2]]\n");
  REQUIRE(message_for(text) == "no error");
  int refused = 0;
  for (std::size_t at = 0; at < text.size(); at += 5) {
    refused += message_for(text.substr(0, at)) == "no error" ? 0 : 1;
    for (const char other : {'9', '{', '-', ' '}) {
      std::string changed = text;
      changed[at] = other;
      refused += message_for(changed) == "no error" ? 0 : 1;
    }
  }
  CHECK(refused > 200);
}

TEST_CASE("ranks that do not wait for each other are refused where a step is the time of all ranks") {
  check({{"software: {like: plumb, post_validation: true}\n",
          {"scenario.yaml:11:42: ", "post_validation", "published tables", "plumb validate"}}});
  CHECK(message_for(scenario_text("software: {like: plumb, post_validation: false}\n")) == "no error");
}

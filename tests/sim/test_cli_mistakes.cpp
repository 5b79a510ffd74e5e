// Thirty mistakes of a newcomer: each message names the right thing at once.
#include <string>
#include <vector>

#include "tests/sim/answers.hpp"

using plumb::tests::Folder;
using plumb::tests::refuses;
using plumb::tests::replaced;
using plumb::tests::run_plumb;
using plumb::tests::scenario;

namespace {

const std::string base = R"(model: {vocabulary: 32000, hidden: 1024, heads: 8, ffn: 4096, layers: "full/dense*8"}
cluster: {machine: dgx-h100, ranks: 4}
training: {sequence: 512, global_batch: 16, microbatch: 1, precision: bf16}
layout: {pipeline: 4}
schedule: 1f1b
)";

struct Mistake {
  std::string right;
  std::string wrong;
  std::vector<std::string> named;
};

}  // namespace

TEST_CASE("a mistake in a scenario is named with what is meant") {
  const Folder folder;
  for (const Mistake& mistake : std::vector<Mistake>{
           // Names.
           {"machine: dgx-h100", "machine: H100", {"s.yaml:2:20", "unknown machine 'H100'", "'dgx-h100'"}},
           {"machine: dgx-h100", "machine: a100", {"'dgx-a100'"}},
           {"machine: dgx-h100", "machine: b200", {"'dgx-b200'"}},
           {"machine: dgx-h100", "machine: '4090'", {"'pcie-rtx4090'"}},
           {"{machine: dgx-h100, ranks: 4}", "H100", {"unknown machine 'H100'", "cluster: {machine: dgx-h100}"}},
           {"schedule: 1f1b", "schedule: zb-h3", {"unknown schedule 'zb-h3'", "did you mean 'zb-h1'?"}},
           {"precision: bf16", "precision: fp8", {"training.precision", "'fp8'", "bf16"}},
           {"full/dense*8", "full/mlpp*8", {"layers", "mlpp", "dense"}},
           // Keys of other frameworks, and typing errors.
           {"microbatch: 1", "micro_batch_size: 1", {"'micro_batch_size' in training", "'microbatch'"}},
           {"global_batch: 16", "train_batch_size: 16", {"'train_batch_size' in training", "'global_batch'"}},
           {"sequence: 512", "seq_length: 512", {"'seq_length' in training", "'sequence'"}},
           {"pipeline: 4",
            "pipeline_model_parallel_size: 4",
            {"'pipeline_model_parallel_size' in layout", "'pipeline'"}},
           {"pipeline: 4", "tensor_model_parallel_size: 4", {"'tensor_model_parallel_size' in layout", "'tensor'"}},
           {"pipeline: 4", "pp: 4", {"'pp' in layout", "'pipeline'"}},
           {"hidden: 1024", "hidden_size: 1024", {"'hidden_size' in model", "'hidden'"}},
           {"ranks: 4", "gpus: 4", {"'gpus' in cluster", "'ranks'"}},
           {"microbatch: 1", "gradient_accumulation_steps: 4", {"global_batch / (microbatch × data degree)"}},
           {"precision: bf16", "bf16: {enabled: true}", {"training: {precision: bf16}"}},
           {"schedule: 1f1b", "zero_optimization: {stage: 3}", {"layout: {data: {sharding: zero3}}"}},
           {"schedule: 1f1b",
            "virtual_pipeline_model_parallel_size: 2",
            {"schedule: {name: interleaved-1f1b, chunks: 2}"}},
           {"pipeline: 4", "expert_model_parallel_size: 4", {"expert parallelism is not supported yet"}},
           {"ffn: 4096", "num_layers: 32", {"layers: \"full/dense*32\""}},
           {"model: {vocabulary: 32000, hidden: 1024, heads: 8, ffn: 4096, layers: \"full/dense*8\"}",
            "model: Qwen/Qwen3-30B-A3B",
            {"s.yaml:1:8", "config.json", "plumb list models"}},
           {"model:", "cluster_: 1\n#", {"add model: models/llama-3-8b.yaml to the file"}},
           {"training:", "trainig:", {"unknown key 'trainig'", "did you mean 'training'?"}},
           // Units and numbers.
           {"ranks: 4", "ranks: 4, memory: 80", {"cluster.memory", "GiB"}},
           {"ranks: 4", "ranks: 4, memory: 80 Gb", {"cluster.memory", "unknown unit 'Gb'"}},
           {"pipeline: 4", "pipeline: 3", {"pipeline"}},
           {"\"full/dense*8\"", "8", {"layers", "full/dense*12"}}}) {
    const std::string file = folder.file("s.yaml", replaced(base, mistake.right, mistake.wrong));
    INFO(mistake.wrong);
    refuses(run_plumb(folder, "simulate " + file), mistake.named);
  }
}

TEST_CASE("a mistake on the command line is named with what is meant") {
  const Folder folder;
  const std::string file = folder.file("s.yaml", base);
  const std::string plan = folder.file("plan.json");
  REQUIRE(run_plumb(folder, "plan " + file + " -o " + plan).status == 0);
  const std::string config = folder.file("config.json", R"({"hidden_size": 4096, "num_hidden_layers": 32})");
  const std::string model =
      folder.file("model.yaml", "model: {vocabulary: 100, hidden: 64, heads: 4, layers: full/dense}");
  for (const auto& [words, named] : std::vector<std::pair<std::string, std::vector<std::string>>>{
           {"shwo " + file, {"unknown command 'shwo'", "did you mean 'show'?"}},
           {"predict " + file, {"unknown command 'predict'", "did you mean 'simulate'?"}},
           {file, {"is a file, expected a command", "plumb show"}},
           {"simulate " + file + " --microbatch 4", {"unknown option '--microbatch'", "training: {microbatch: …}"}},
           {"simulate " + file + " --tensor-model-parallel-size 4", {"layout: {tensor: …}"}},
           {"simulate " + file + " --top 3", {"unknown option '--top'", "--top is an option of plumb plan"}},
           {"plan " + file + " --for deepspeed", {"--for: ", "unknown 'deepspeed'", "megatron"}},
           {"simulate " + file + " --engin path", {"did you mean '--engine'?"}},
           {"simulate " + file + " --tokens many", {"--tokens", "15T"}},
           {"show H100", {"H100", "did you mean 'dgx-h100'?"}},
           {"show deepseek", {"did you mean 'deepseek-v3'?"}},
           {"simulate deepseek-v3", {"is a model that plumb ships, expected a scenario", "plumb show deepseek-v3"}},
           {"plan dgx-h100", {"is a machine that plumb ships, expected a scenario"}},
           {"plan " + plan, {"is a plan, expected a scenario", "plumb simulate"}},
           {"show " + config, {"'model_type' is missing"}},
           {"diff " + file + " " + file, {"is no timeline", "plumb simulate FILE -o predicted.json"}},
           {"diff " + plan + " " + plan, {"is a plan, expected a timeline"}},
           {"schedule show 1f1b", {"--ranks", "is required"}},
           {"schedule show 1f1b --ranks 4 --microbatches 8 --times 1,1", {"--times", "found 2 numbers"}},
           {"schedule show 1f1b --ranks 4 --microbatches 8 --times 1,1,1:2,2,2", {"has 4 stages", "times of 2"}},
           {"simulate no-such-scenario", {"there is no such file", "plumb list scenarios"}},
           {"list machine", {"unknown command 'machine'", "did you mean 'machines'?"}},
           {"simulate " + file + " --color blue", {"--color"}},
           {"simulate " + file + " --json -o -", {"-o -", "--json"}}}) {
    INFO(words);
    refuses(run_plumb(folder, words), named);
  }
}

#include "common/plan/plan_tables.hpp"

#include "common/cost/costs_json.hpp"
#include "common/layout/layout_json.hpp"
#include "common/model/files/model_json.hpp"
#include "common/plan/parts_json.hpp"

namespace plumb {
namespace {

const JsonTable plan_table{
    .path = "",
    .rows = {{"format", "text", false, "Always `plumb plan`."},
             {"version", "count", false, "Version of the format."},
             {"name", "text", false, "Name of the scenario."},
             {"model", "object", false, "The model, layer by layer."},
             {"cluster", "object", false, "The machine with all its numbers, and how many there are."},
             {"training", "object", false, "Batch, precision, recompute, optimizer."},
             {"layout", "object", false, "Parallel degrees."},
             {"software", "object", false, "Kernels, overlaps and exchanges."},
             {"split", "object", false, "Layers of each stage."},
             {"schedule", "object", false, "Actions of each rank, in order."},
             {"boundary", "object", false, "Tensors that cross a stage boundary."},
             {"costs", "object", false, "Times and bytes; times and bandwidths may be edited."}}};

const JsonTable split_table{.path = "split",
                            .rows = {{"method", "text", false, "Method that chose the split."},
                                     {"layers", "list of count", false, "Layers of each stage."}}};

const JsonTable schedule_table{
    .path = "schedule",
    .rows = {{"name", "text", false, "Name, as `plumb schedule list` prints it."},
             {"ranks", "count", false, "Pipeline ranks."},
             {"microbatches", "count", false, "Microbatches of a step."},
             {"chunks", "count", false, "Most stages of a rank in one replica."},
             {"rank_of_stage", "list of count", false, "Rank of each stage."},
             {"slices", "count", true, "Slices of a sequence."},
             {"slice_tokens", "list of count", true, "Tokens of each slice where slices differ."},
             {"second_rank_of_stage", "list of count", true, "Rank of each stage of the second replica."},
             {"overlapped", "list of text", true, "Pairs of actions that run at the same time."},
             {"versions", "`single`, `stashed`, `delayed`", true, "Weight versions of an asynchronous schedule."},
             {"update_every", "count", true, "Microbatches for each optimizer step."},
             {"vocabulary_barriers", "count", true, "Barriers of a vocabulary over the pipeline."},
             {"actions", "list of text", false, "Actions of each rank, such as `0F0 0F1 0B0 0B1`."}}};

}  // namespace

std::vector<JsonTable> plan_tables() {
  std::vector<JsonTable> tables = {plan_table, split_table, schedule_table};
  for (const auto& part : {training_tables(), layout_tables(), cluster_tables(), software_tables(), model_tables(),
                           boundary_tables(), costs_tables()}) {
    tables.insert(tables.end(), part.begin(), part.end());
  }
  return tables;
}

}  // namespace plumb

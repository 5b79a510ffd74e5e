// Tables of the fields of a published table.
#include "common/cluster/machine_yaml.hpp"
#include "common/scenario_file/fields.hpp"
#include "common/study/published.hpp"

namespace plumb {
namespace {

Field bound(std::string key, std::string description) {
  return {.key = std::move(key),
          .shape = shapes::number(1e-6, 1000),
          .description = std::move(description),
          .default_text = "no bound",
          .example = "5"};
}

const FieldBlock& bounds_block() {
  static const FieldBlock block{.name = "bounds",
                                .title = "Bounds of errors",
                                .description = "Bounds of the errors of all rows.",
                                .fields = {bound("mean_percent", "Mean error in time; of states_gb in bytes."),
                                           bound("max_percent", "Largest error in time; of states_gb in bytes."),
                                           bound("max_points", "Largest difference in the metric.")}};
  return block;
}

const FieldBlock& free_block() {
  static const FieldBlock block{.name = "table fit",
                                .title = "Fit",
                                .description = "Numbers of the table's own cluster that `plumb fit` may change.",
                                .fields = {{.key = "free",
                                            .shape = shapes::block(free_numbers_block()),
                                            .description = "Numbers that may change.",
                                            .example = "{outside.bandwidth: {}}",
                                            .required = true}}};
  return block;
}

// A row is a scenario over `common`, beside what was measured.
const FieldBlock& row_block() {
  static const FieldBlock block = [] {
    FieldBlock made{.name = "row",
                    .title = "Row",
                    .description =
                        "A scenario that leaves nothing open, and what was measured. Its keys replace those of "
                        "`common`, block by block and key by key.",
                    .fields = {{.key = "name",
                                .shape = shapes::text("text"),
                                .description = "Name of the row.",
                                .example = "512 GPUs",
                                .required = true},
                               {.key = "measured",
                                .shape = shapes::number(-99, largest_measurement),
                                .description = "Measured value of the table's metric.",
                                .default_text = "none: a row that others are compared with",
                                .example = "173"},
                               {.key = "base",
                                .shape = shapes::text("text"),
                                .description = "Row above that a comparing metric is relative to.",
                                .default_text = "none",
                                .example = "128 GPUs"}}};
    for (Field field : scenario_block().fields) {
      field.required = false;
      made.fields.push_back(std::move(field));
    }
    return made;
  }();
  return block;
}

}  // namespace

const FieldBlock& table_block() {
  static const FieldBlock block{
      .name = "table",
      .title = "Published table",
      .description = "Rows that are scenarios, and what was measured for each.",
      .fields = {{.key = "table",
                  .shape = shapes::text("text"),
                  .description = "Title.",
                  .example = "PyTorch FSDP",
                  .required = true},
                 {.key = "measured",
                  .shape = shapes::choice(published_metric_names()),
                  .description = "Metric of all rows.",
                  .example = "iteration_s",
                  .required = true},
                 {.key = "goal",
                  .shape = shapes::block(bounds_block()),
                  .description = "Errors that are wanted.",
                  .default_text = "none",
                  .example = "{mean_percent: 5}"},
                 {.key = "ratchet",
                  .shape = shapes::block(bounds_block()),
                  .description = "Errors that were reached; `plumb validate` fails where they are larger.",
                  .default_text = "none",
                  .example = "{mean_percent: 5}"},
                 {.key = "fit",
                  .shape = shapes::block(free_block()),
                  .description = "Numbers that `plumb fit` may change.",
                  .default_text = "none"},
                 {.key = "common",
                  .shape = {BlockShape{.block = &scenario_block(), .own_reader = true, .partial = true}},
                  .description = "A scenario, or part of one, that all rows share.",
                  .required = true},
                 {.key = "rows",
                  .shape = shapes::list({BlockShape{.block = &row_block(), .own_reader = true, .partial = true}}),
                  .description = "The rows.",
                  .example = "[{name: …, measured: …}]",
                  .required = true}}};
  return block;
}

}  // namespace plumb

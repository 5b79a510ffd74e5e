// Schedules as JSON: in plan files, timelines and files of their own.
#pragma once

#include "common/base/document/json.hpp"
#include "common/base/document/json_fields.hpp"
#include "common/schedule/schedule.hpp"

namespace plumb {

// Keys: name, ranks, microbatches, chunks, rank_of_stage, actions (per rank one text, "0F0 0F1 1B0"); and, only where
// they say something: slices, slice_tokens, second_rank_of_stage, overlapped (texts of two actions), versions
// ("stashed" or "delayed") and update_every.
[[nodiscard]] Json to_json(const Schedule& schedule);

// The inverse. Throws InputError (file, line and key) for a key that is missing, unknown or of another type, numbers
// out of range, actions that cannot be read, other than one list per rank, fewer actions than the microbatches need,
// and parts that do not fit together. Says nothing on order: `validate` does.
[[nodiscard]] Schedule schedule_from_json(const JsonValue& value);

}  // namespace plumb

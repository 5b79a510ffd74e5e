// Schedules as the CSV of torch.distributed.pipelining (torchtitan: pipeline_parallel_schedule_csv), both ways.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/schedule/schedule.hpp"

namespace plumb {

// Meaning of the letters of backwards.
enum class CsvAlphabet : std::uint8_t {
  today,    // B full backward, I input gradient, W weight gradient
  of_2024,  // BW full backward, B input gradient, W weight gradient: PyTorch's of 2024 and zero-bubble's repository
};
enum class CsvForm : std::uint8_t {
  compute_only,   // PyTorch adds the messages; a cell per step, blank where a rank is idle
  compute_comms,  // as PyTorch lowers it: SEND_*, RECV_* and a REDUCE_GRAD per stage; no blanks
};

struct CsvWriting {
  CsvForm form = CsvForm::compute_only;
  CsvAlphabet alphabet = CsvAlphabet::today;
};

// No header, a row per rank; a cell is stage, letters and microbatch, or (0F7;7B3)OVERLAP_F_B for an overlapped pair.
// In the compute-only form every cell takes one step and stands where its inputs allow. In the other one a schedule
// that is not lowered is lowered; PyTorch scales a stage's gradients at its REDUCE_GRAD, which stands behind the last B
// or W. Throws InputError (where = "schedule NAME") for a schedule that is not valid, and by name for what no such CSV
// can say: R, EVICT, LOAD, STEP, REDUCE_TIED; messages in a compute-only one, or in an order that PyTorch would mix up;
// overlaps in the alphabet of 2024.
[[nodiscard]] std::string to_pytorch_csv(const Schedule& schedule, const CsvWriting& writing = {});

// Returns notes for readers of that CSV: PyTorch has no slices and no two replicas of a stage.
[[nodiscard]] std::vector<std::string> pytorch_csv_notes(const Schedule& schedule);

// Begin of a cell; column in characters.
struct CellPlace {
  int line = 0;
  int column = 0;
};

struct CsvReading {
  Schedule schedule = {};
  CsvAlphabet alphabet = CsvAlphabet::today;
  CsvForm form = CsvForm::compute_only;
  std::vector<std::string> notes = {};              // alphabet that was found, cells that were left out
  std::vector<std::vector<CellPlace>> places = {};  // one for each action, by rank
};

// The inverse, of both forms; blanks may stand anywhere. The rank of a stage is the one whose row its F, B, I and W
// stand in. If all stages stand on two rows, the microbatches from the middle on in the other one, there are two
// replicas. Of UNSHARD and RESHARD, and of one replica's REDUCE_GRAD, nothing is kept: a schedule says nothing of
// data-parallel ranks. Unless an alphabet is asked for it is today's, or that of 2024 where the file proves it: a BW,
// or no I and a W for every B. `file` is named in errors: InputError with line and column (in characters) for a cell
// that cannot be read or belongs to the other alphabet, a stage on two rows, a stage that stands nowhere. Says nothing
// on order: `validate` does.
[[nodiscard]] CsvReading read_pytorch_csv(std::string_view text, const std::string& file,
                                          std::optional<CsvAlphabet> asked = {});
[[nodiscard]] Schedule parse_pytorch_csv(std::string_view text, const std::string& file);

}  // namespace plumb

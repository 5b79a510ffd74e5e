#include "exec/checkpoint/restore.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <span>
#include <string>

#include "common/base/error.hpp"
#include "exec/checkpoint/crc32c.hpp"
#include "exec/data/safetensors_file.hpp"

namespace plumb::exec {
namespace {

constexpr std::size_t most_open = 64;  // files at a time: a process may have 1024

// Files of a checkpoint as they are needed, checked against its index.
class Files {
 public:
  explicit Files(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {}

  const SafetensorsFile& open(std::size_t number) {
    const auto known = open_.find(number);
    if (known != open_.end()) return *known->second;
    if (open_.size() == most_open) open_.clear();
    const CheckpointFile& said = checkpoint_.index.files[number];
    std::unique_ptr<SafetensorsFile> file = opened(said.name);
    if (file->bytes() != said.bytes) {
      fail(*file, fmt::format("has {} bytes, its checkpoint's index says {}", file->bytes(), said.bytes));
    }
    for (const CheckpointPiece& piece : said.pieces) {
      const StoredTensor& tensor = file->at(tensor_name(piece));
      const char* const type = piece.type == ElementType::bf16 ? "BF16" : "F32";
      if (tensor.type == type && tensor.elements == elements(piece)) continue;
      fail(*file, fmt::format("has {} elements of type {} of {}, its checkpoint's index says {} of {}", tensor.elements,
                              tensor.type, tensor.name, elements(piece), type));
    }
    return *open_.emplace(number, std::move(file)).first->second;
  }

  // Missing, cut short or no such file: a damaged checkpoint, too.
  [[nodiscard]] std::unique_ptr<SafetensorsFile> opened(const std::string& name) const {
    try {
      return std::make_unique<SafetensorsFile>(checkpoint_.folder / name);
    } catch (const InputError& error) {
      const std::string reason = error.hint().empty() ? "" : error.hint() + "; ";
      throw InputError(error.where(), error.problem(), reason + hint_without(checkpoint_.folder));
    }
  }

  [[noreturn]] static void fail(const SafetensorsFile& file, const std::string& problem) {
    throw InputError(file.path().string(), problem, hint_without(file.path().parent_path()));
  }

 private:
  const Checkpoint& checkpoint_;
  std::map<std::size_t, std::unique_ptr<SafetensorsFile>> open_;
};

// What `stretches` (`in_first` in the piece, ascending) name of a piece, to where they name it.
void read_stretches(const SafetensorsFile& file, const CheckpointPiece& piece,
                    const std::vector<SharedStretch>& stretches, std::span<float> to) {
  const StoredTensor& tensor = file.at(tensor_name(piece));
  std::vector<std::byte> bytes;
  std::vector<float> values;
  std::int64_t read = -1;  // the block that `values` has
  for (const SharedStretch& stretch : stretches) {
    for (std::int64_t done = 0; done < stretch.count;) {
      const std::int64_t at = stretch.in_first + done;
      const std::int64_t block = at / block_elements;
      const std::int64_t begin = block * block_elements;
      if (block != read) {
        const std::int64_t size = std::min(block_elements, tensor.elements - begin);
        bytes.resize(static_cast<std::size_t>(size * tensor.element_bytes));
        values.resize(static_cast<std::size_t>(size));
        file.read_bytes(tensor, begin, bytes);
        if (crc32c(bytes) != piece.checksums[static_cast<std::size_t>(block)]) {
          Files::fail(file, fmt::format("has been altered: the checksum of {} from element {} on is another",
                                        tensor.name, begin));
        }
        take_values(tensor.type, bytes, values);
        read = block;
      }
      const std::int64_t count = std::min(stretch.count - done, begin + static_cast<std::int64_t>(values.size()) - at);
      const std::span<const float> wanted =
          std::span(values).subspan(static_cast<std::size_t>(at - begin), static_cast<std::size_t>(count));
      file.require_finite(tensor, at, wanted, hint_without(file.path().parent_path()));
      std::ranges::copy(wanted, to.begin() + stretch.in_second + done);
      done += count;
    }
  }
}

void restore_part(const StatePart& part, const Checkpoint& checkpoint, const PiecePlaces& places, Files& files) {
  std::vector<float> values(static_cast<std::size_t>(elements(part.ranges)));
  std::int64_t found = 0;
  if (const auto pieces = places.find({part.weight, part.kind}); pieces != places.end()) {
    for (const auto& [number, of_file] : pieces->second) {
      const CheckpointPiece& piece = checkpoint.index.files[number].pieces[of_file];
      const std::vector<SharedStretch> stretches = shared_stretches(ranges_of(piece.runs), part.ranges);
      if (stretches.empty()) continue;
      read_stretches(files.open(number), piece, stretches, values);
      for (const SharedStretch& stretch : stretches) found += stretch.count;
    }
  }
  if (found != static_cast<std::int64_t>(values.size())) {
    throw InputError(
        (checkpoint.folder / index_name).string(),
        fmt::format("has {} of {} elements of {} of {}", found, values.size(), name_of(part.kind), part.weight));
  }
  part.write(0, values);
}

}  // namespace

void restore(const Checkpoint& checkpoint, const std::vector<std::unique_ptr<Stage>>& stages) {
  const PiecePlaces places = places_of_pieces(checkpoint.index);
  Files files(checkpoint);
  for (const auto& stage : stages) {
    if (!stage) continue;
    for (const StatePart& part : stage->state_parts()) {
      if (part.restored) restore_part(part, checkpoint, places, files);
    }
    stage->resume_updates(checkpoint.index.updates);
  }
}

}  // namespace plumb::exec

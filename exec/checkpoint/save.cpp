#include "exec/checkpoint/save.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <set>
#include <utility>

#include "common/base/document/json.hpp"
#include "common/base/error.hpp"
#include "common/base/files.hpp"
#include "common/model/parameters.hpp"
#include "exec/checkpoint/crc32c.hpp"
#include "exec/checkpoint/write_shares.hpp"
#include "exec/data/safetensors.hpp"
#include "exec/data/safetensors_file.hpp"
#include "exec/device/torch_error.hpp"
#include "exec/host/pauses.hpp"
#include "exec/transport/collectives/collectives.hpp"
#include "exec/transport/collectives/rank_group.hpp"

namespace plumb::exec {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::hours save_time{1};  // until all ranks have written theirs
// Less of a tensor that several ranks hold is not shared out: each piece costs a line of the index.
constexpr std::int64_t least_share = std::int64_t{1} << 16;

Clock::time_point save_deadline() { return unpaused_now() + save_time; }

// What stands in a folder is there after a crash of the machine, too.
void flush_folder(const fs::path& folder) {
  const int file = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0) throw RunError(folder.string(), std::string("cannot be opened: ") + std::strerror(errno));
  const bool flushed = ::fsync(file) == 0 || errno == EINVAL;  // some file systems have nothing to flush
  const int error = errno;
  ::close(file);
  if (!flushed) throw RunError(folder.string(), std::string("could not be written: ") + std::strerror(error));
}

// Rank 0 has it; all get it.
std::string broadcast(Transport& transport, std::string text) {
  const std::vector<int> all = ranks_from(0, transport.size());
  Collectives collectives(transport);
  std::uint64_t size = text.size();
  collectives.broadcast(all, 0, std::as_writable_bytes(std::span(&size, 1)), save_deadline());
  text.resize(size);
  if (size > 0) collectives.broadcast(all, 0, std::as_writable_bytes(std::span(text)), save_deadline());
  return text;
}

// Of a weight that a rank holds twice, as both ends of a tied table, one copy.
std::vector<StatePart> saved_parts(const std::vector<std::unique_ptr<Stage>>& stages) {
  std::vector<StatePart> parts;
  std::set<std::pair<std::string, StateKind>> taken;
  for (const auto& stage : stages) {
    if (!stage) continue;
    for (StatePart& part : stage->state_parts()) {
      if (part.saved && taken.emplace(part.weight, part.kind).second) parts.push_back(std::move(part));
    }
  }
  return parts;
}

// By weight, what a rank holds of it.
std::string holdings_text(const std::vector<StatePart>& parts) {
  Json json = Json::object();
  for (const StatePart& part : parts) {
    if (part.kind != StateKind::weight) continue;
    Json runs = Json::array();
    for (const IndexRun& run : runs_of(part.ranges)) runs.push_back({run.begin, run.size, run.stride, run.count});
    json[part.weight] = std::move(runs);
  }
  return to_line(json);
}

using Holdings = std::vector<std::map<std::string, IndexRanges>>;  // by rank

Holdings holdings_from(const std::string& text) {
  Holdings holdings;
  const Json all = Json::parse(text);
  for (const Json& of_rank : all) {
    auto& own = holdings.emplace_back();
    for (const auto& [weight, runs] : of_rank.items()) {
      std::vector<IndexRun> list;
      for (const Json& run : runs) list.push_back({run.at(0), run.at(1), run.at(2), run.at(3)});
      own.emplace(weight, ranges_of(list));
    }
  }
  return holdings;
}

// What each rank writes of a weight and of its states.
std::vector<IndexRanges> shares_of(const Holdings& holdings, const std::string& weight, std::size_t turn) {
  std::vector<IndexRanges> held;
  for (const auto& of_rank : holdings) {
    const auto found = of_rank.find(weight);
    held.push_back(found == of_rank.end() ? IndexRanges{} : found->second);
  }
  return write_shares(held, least_share, turn);
}

// Of elements `begin` to `end` of what is written.
void read_block(const WrittenPart& written, std::int64_t begin, std::int64_t end, std::span<float> values) {
  const auto behind = [](std::int64_t at, const SharedStretch& each) { return at < each.in_second + each.count; };
  auto stretch = std::upper_bound(written.stretches.begin(), written.stretches.end(), begin, behind);
  for (std::int64_t at = begin; at < end; ++stretch) {
    const std::int64_t skipped = at - stretch->in_second;
    const std::int64_t count = std::min(stretch->count - skipped, end - at);
    written.part.read(stretch->in_first + skipped,
                      values.subspan(static_cast<std::size_t>(at - begin), static_cast<std::size_t>(count)));
    at += count;
  }
}

// Nobody can go on from what is no number, and what is kept in its place could be gone on from.
void require_finite(const StatePart& part, std::span<const float> values) {
  if (std::ranges::all_of(values, [](float value) { return std::isfinite(value); })) return;
  throw RunError(part.weight,
                 fmt::format("{} has values that are no finite numbers: the training is lost, and not saved any more",
                             part.kind == StateKind::weight ? "the weight" : "a state of the optimizer"),
                 "--resume the checkpoint before, with a lower learning rate");
}

}  // namespace

CheckpointFile write_parts(const fs::path& path, const std::vector<WrittenPart>& parts, const std::atomic<bool>* stop) {
  CheckpointFile file{.name = path.filename().string(), .bytes = 0, .pieces = {}};
  std::vector<TensorHead> heads;
  for (const WrittenPart& written : parts) {
    file.pieces.push_back({.weight = written.part.weight,
                           .kind = written.part.kind,
                           .type = written.part.type,
                           .runs = runs_of(written.ranges)});
    heads.push_back({.name = tensor_name(file.pieces.back()), .shape = written.shape, .type = written.part.type});
  }
  SafetensorsWriter writer(path, heads, {{"format", "pt"}});
  std::vector<float> values(static_cast<std::size_t>(block_elements));
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    CheckpointPiece& piece = file.pieces[i];
    const std::int64_t all = elements(piece);
    for (std::int64_t begin = 0; begin < all; begin += block_elements) {
      if (stop != nullptr && *stop) throw RunError(path.string(), "was not written to its end: the run was stopped");
      const std::int64_t end = std::min(all, begin + block_elements);
      const std::span<float> block = std::span(values).first(static_cast<std::size_t>(end - begin));
      read_block(parts[i], begin, end, block);
      require_finite(parts[i].part, block);
      bytes.resize(block.size() * static_cast<std::size_t>(element_bytes(piece.type)));
      put_values(piece.type, block, bytes);
      piece.checksums.push_back(crc32c(bytes));
      writer.write(bytes);
    }
  }
  writer.finish();
  file.bytes = writer.bytes();
  return file;
}

namespace {

// What the rank has written, for rank 0; empty: it had nothing to write.
std::string written_text(const fs::path& file, const std::vector<WrittenPart>& parts,
                         const std::atomic<bool>* stop = nullptr) {
  if (parts.empty()) return "";
  try {
    return to_json(write_parts(file, parts, stop));
  } catch (const InputError& missing) {
    throw RunError(missing.where(), missing.problem(), "--save must name a folder that the hosts of all ranks share");
  }
}

// In memory of their own and of their own types, so that steps may change what they are copies of.
std::vector<WrittenPart> copied(const std::vector<WrittenPart>& parts) {
  std::vector<WrittenPart> copies;
  std::vector<float> values(static_cast<std::size_t>(block_elements));
  for (const WrittenPart& part : parts) {
    const ElementType type = part.part.type;
    const auto each = static_cast<std::size_t>(element_bytes(type));
    const std::int64_t all = elements(part.ranges);
    auto bytes = std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(all) * each);
    for (std::int64_t begin = 0; begin < all; begin += block_elements) {
      const auto first = static_cast<std::size_t>(begin);
      const auto count = static_cast<std::size_t>(std::min(all - begin, block_elements));
      const std::span<float> block = std::span(values).first(count);
      read_block(part, begin, begin + static_cast<std::int64_t>(count), block);
      put_values(type, block, std::span(*bytes).subspan(first * each, count * each));
    }
    WrittenPart& copy = copies.emplace_back(part);
    copy.stretches = {{.in_first = 0, .in_second = 0, .count = all}};
    copy.part.read = [bytes, type, each](std::int64_t first, std::span<float> to) {
      const auto begin = static_cast<std::size_t>(first) * each;
      take_values(type == ElementType::bf16 ? "BF16" : "F32", std::span(*bytes).subspan(begin, to.size() * each), to);
    };
  }
  return copies;
}

// As rank 0 must see it, too.
CheckpointFile seen_file(const fs::path& folder, const std::string& text) {
  CheckpointFile file = parse_checkpoint_file(text, "a rank's file");
  std::error_code error;
  const std::uintmax_t there = fs::file_size(folder / file.name, error);
  if (!error && there == static_cast<std::uintmax_t>(file.bytes)) return file;
  throw RunError((folder / file.name).string(), "a rank has written it, and rank 0 does not see it so",
                 "--save must name a folder that the hosts of all ranks share");
}

}  // namespace

CheckpointSaver::CheckpointSaver(Transport& transport, const std::vector<std::unique_ptr<Stage>>& stages,
                                 CheckpointIndex index, fs::path folder, std::int64_t keep)
    : transport_(transport), index_(std::move(index)), folder_(std::move(folder)), keep_(keep) {
  for (const auto& stage : stages) {
    if (stage) stages_.push_back(stage.get());
  }
  share_out(stages);
  if (keep_ > 0 && transport_.rank() == 0) kept_ = by_training(folder_, index_.training_id).own;
}

CheckpointSaver::~CheckpointSaver() {
  if (!pending_) return;
  *pending_->stop = true;
  pending_->written.wait();
  drop_own_file(pending_->steps);
}

void CheckpointSaver::share_out(const std::vector<std::unique_ptr<Stage>>& stages) {
  std::vector<StatePart> parts = saved_parts(stages);
  std::string all = "[";
  for (const std::string& of_rank : transport_.gather(holdings_text(parts), save_deadline())) {
    all += (all.size() > 1 ? "," : "") + of_rank;
  }
  const Holdings holdings = holdings_from(broadcast(transport_, all + "]"));
  std::map<std::string, IndexRanges> own;
  std::size_t turn = 0;
  for (const auto& [weight, tensor] : index_.tensors) {
    std::vector<IndexRanges> shares = shares_of(holdings, weight, turn++);
    std::int64_t written = 0;
    for (const IndexRanges& share : shares) written += elements(share);
    const std::int64_t whole = elements_of_shape(tensor.shape);
    if (written != whole) {
      throw RunError("checkpoint", fmt::format("the ranks hold {} of the {} elements of {}", written, whole, weight));
    }
    own[weight] = std::move(shares[static_cast<std::size_t>(transport_.rank())]);
  }
  for (StatePart& part : parts) {
    const IndexRanges& share = own[part.weight];
    std::vector<SharedStretch> stretches = shared_stretches(part.ranges, share);
    if (stretches.empty()) continue;
    const std::vector<std::int64_t>& whole = index_.tensors.at(part.weight).shape;
    const std::int64_t count = elements(share);
    parts_.push_back({.part = std::move(part),
                      .shape = count == elements_of_shape(whole) ? whole : std::vector<std::int64_t>{count},
                      .ranges = share,
                      .stretches = std::move(stretches)});
  }
}

// The last rank that does so removes the folder, too: before that it is not empty.
void CheckpointSaver::drop_own_file(std::int64_t steps) {
  const fs::path partial = partial_folder(folder_, steps);
  std::error_code none;
  fs::remove(partial / rank_file_name(transport_.rank()), none);
  fs::remove(partial, none);
}

// Ranks learn why before their files go: else one would say that its folder is not there.
void CheckpointSaver::give_up(std::int64_t steps, const std::string& reason) {
  transport_.abort(reason);
  std::error_code none;
  if (transport_.rank() == 0) fs::remove_all(partial_folder(folder_, steps), none);
  drop_own_file(steps);
  try {
    transport_.barrier(Clock::now());
  } catch (const Stopped& first) {  // as all calls now: where another was first, this one's trouble comes of that
    if (first.what() != reason) throw;
  } catch (const Error&) {
  }
}

// What fails leaves no folder behind: also where it is no memory for a copy, or no thread to write one.
template <class Body>
void CheckpointSaver::or_clean_up(std::int64_t steps, const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    give_up(steps, error.what());
    throw;
  } catch (const std::exception& error) {
    const RunError said(fmt::format("rank {}", transport_.rank()),
                        fmt::format("cannot save {}: {}", checkpoint_name(steps), work_error(error)));
    give_up(steps, said.what());
    throw said;
  }
}

void CheckpointSaver::make_folder(std::int64_t steps) {
  if (transport_.rank() == 0) {
    const fs::path partial = partial_folder(folder_, steps);
    std::error_code error;
    fs::remove_all(partial, error);
    if (!error) fs::create_directories(partial, error);
    if (error) throw RunError(partial.string(), "could not be made: " + error.message());
  }
  transport_.barrier(save_deadline());
}

fs::path CheckpointSaver::save(std::int64_t steps) {
  or_clean_up(steps, [&] {
    make_folder(steps);
    const fs::path file = partial_folder(folder_, steps) / rank_file_name(transport_.rank());
    put_together(steps, updates(), written_text(file, parts_));
  });
  return folder_ / checkpoint_name(steps);
}

void CheckpointSaver::begin(std::int64_t steps) {
  or_clean_up(steps, [&] {
    make_folder(steps);
    const fs::path file = partial_folder(folder_, steps) / rank_file_name(transport_.rank());
    auto copies = std::make_shared<std::vector<WrittenPart>>(copied(parts_));
    auto stop = std::make_shared<std::atomic<bool>>(false);
    const auto write = [file, copies, stop] { return written_text(file, *copies, stop.get()); };
    pending_ =
        Pending{.steps = steps, .updates = updates(), .stop = stop, .written = std::async(std::launch::async, write)};
  });
}

std::optional<fs::path> CheckpointSaver::finish_if_written() {
  float ready = pending_->written.wait_for(std::chrono::seconds(0)) == std::future_status::ready ? 1.0F : 0.0F;
  Collectives(transport_)
      .all_reduce(ranks_from(0, transport_.size()), std::as_writable_bytes(std::span(&ready, 1)), ElementType::fp32,
                  save_deadline());
  if (ready < static_cast<float>(transport_.size())) return std::nullopt;
  return finish();
}

fs::path CheckpointSaver::finish() {
  Pending done = *std::exchange(pending_, std::nullopt);
  or_clean_up(done.steps, [&] { put_together(done.steps, done.updates, done.written.get()); });
  return folder_ / checkpoint_name(done.steps);
}

void CheckpointSaver::remove_old(std::int64_t saved) {
  kept_.push_back(saved);
  try {
    keep_newest(folder_, kept_, keep_);
  } catch (const RunError& error) {
    throw RunError(error.where(), error.problem() + fmt::format("; {} is saved", checkpoint_name(saved)), error.hint());
  }
}

// The index last, then its name.
void CheckpointSaver::put_together(std::int64_t steps, std::int64_t updates, const std::string& mine) {
  const std::vector<std::string> files = transport_.gather(mine, save_deadline());
  if (transport_.rank() == 0) {
    CheckpointIndex index = index_;
    index.step = steps;
    index.updates = updates;
    index.sequences = steps * index.training.global_batch;
    const fs::path partial = partial_folder(folder_, steps);
    for (const std::string& text : files) {
      if (!text.empty()) index.files.push_back(seen_file(partial, text));
    }
    write_file(partial / index_name, to_json(index));
    flush_folder(partial);
    const fs::path whole = folder_ / checkpoint_name(steps);
    std::error_code error;
    fs::rename(partial, whole, error);
    if (error) throw RunError(whole.string(), "could not be renamed from " + partial.string() + ": " + error.message());
    flush_folder(folder_);
    remove_old(steps);
  }
  transport_.barrier(save_deadline());
}

}  // namespace plumb::exec

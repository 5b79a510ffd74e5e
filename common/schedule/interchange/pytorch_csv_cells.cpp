#include "common/schedule/interchange/pytorch_csv_cells.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "common/base/excerpt.hpp"

namespace plumb {
namespace {

// As written: which of both alphabets' backwards a B is shows only when all cells are read.
struct WrittenAction {
  Action action;  // B as today's
  bool is_bw = false;
};

struct WrittenCell {
  std::vector<WrittenAction> actions;
  std::string_view text;
  Place place;
};

using Rows = std::vector<std::vector<WrittenCell>>;

[[noreturn]] void refuse_cell(const Place& place, std::string_view cell, const std::string& problem,
                              const std::string& hint = "") {
  throw InputError(
      place, fmt::format("'{}': {}", excerpt(cell), problem),
      hint.empty() ? "a cell is stage, letters and microbatch, such as 0F3; blank where the rank is idle" : hint);
}

bool is_pytorch(ActionKind kind) {
  switch (kind) {
    case ActionKind::forward:
    case ActionKind::backward:
    case ActionKind::input_gradient:
    case ActionKind::weight_gradient:
    case ActionKind::send_forward:
    case ActionKind::receive_forward:
    case ActionKind::send_backward:
    case ActionKind::receive_backward:
    case ActionKind::unshard:
    case ActionKind::reshard:
    case ActionKind::reduce_gradient:
      return true;
    default:
      return false;
  }
}

constexpr const char* pytorch_letters =
    "F, B, I, W, BW, SEND_F, RECV_F, SEND_B, RECV_B, UNSHARD, RESHARD or REDUCE_GRAD";

WrittenAction parse_written(std::string_view text, std::string_view cell, const Place& place) {
  const std::size_t letters_at = std::min(text.find_first_not_of("0123456789"), text.size());
  const bool is_bw = text.substr(letters_at).starts_with("BW");
  std::string plain(text);
  if (is_bw) plain.erase(letters_at + 1, 1);
  WrittenAction written{.action = {}, .is_bw = is_bw};
  try {
    written.action = parse_action(plain);
  } catch (const InputError& error) {
    const std::string problem = error.problem().substr(excerpt(plain).size() + std::string_view("'': ").size());
    refuse_cell(place, cell,
                problem.starts_with("expected one of") ? fmt::format("expected one of {}", pytorch_letters) : problem);
  }
  if (!is_pytorch(written.action.kind)) {
    refuse_cell(place, cell, fmt::format("PyTorch has no action {}", letters(written.action.kind)),
                "schedules with it are exchanged as JSON");
  }
  return written;
}

std::string_view trimmed(std::string_view cell) {
  const std::size_t first = cell.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return cell.substr(first, cell.find_last_not_of(" \t\r") - first + 1);
}

// "(0F7;7B3)OVERLAP_F_B".
std::vector<WrittenAction> parse_overlap(std::string_view cell, const Place& place) {
  constexpr std::string_view ending = ")OVERLAP_F_B";
  constexpr const char* hint = "an overlapped pair is written (0F7;7B3)OVERLAP_F_B";
  const std::size_t middle = cell.find(';');
  if (!cell.starts_with('(') || !cell.ends_with(ending) || middle == std::string_view::npos) {
    refuse_cell(place, cell, "expected (…;…)OVERLAP_F_B", hint);
  }
  const std::string_view inside = cell.substr(1, cell.size() - ending.size() - 1);
  std::vector<WrittenAction> actions{parse_written(trimmed(inside.substr(0, middle - 1)), cell, place),
                                     parse_written(trimmed(inside.substr(middle)), cell, place)};
  const ActionKind first = actions.front().action.kind;
  const ActionKind second = actions.back().action.kind;
  if (!(first == ActionKind::forward && makes_input_gradient(second)) &&
      !(second == ActionKind::forward && makes_input_gradient(first))) {
    refuse_cell(place, cell, "expected one forward and one backward", hint);
  }
  return actions;
}

std::vector<WrittenCell> parse_row(std::string_view row, const std::string& file, int line) {
  std::vector<WrittenCell> cells;
  for (std::size_t start = 0; start <= row.size();) {
    const std::size_t end = std::min(row.find(',', start), row.size());
    std::string_view cell = trimmed(row.substr(start, end - start));
    // Spreadsheets may quote what they write.
    if (cell.size() > 1 && cell.starts_with('"') && cell.ends_with('"')) {
      cell = trimmed(cell.substr(1, cell.size() - 2));
    }
    if (!cell.empty()) {
      const Place place{file, line, static_cast<int>(cell.data() - row.data()) + 1};
      const bool overlap = cell.front() == '(' || cell.find("OVERLAP") != std::string_view::npos;
      cells.push_back(
          {overlap ? parse_overlap(cell, place) : std::vector{parse_written(cell, cell, place)}, cell, place});
    }
    start = end + 1;
  }
  return cells;
}

Rows parse_rows(std::string_view text, const std::string& file) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);  // a byte order mark
  while (!text.empty() && std::string_view(" \t\r\n").find(text.back()) != std::string_view::npos) {
    text.remove_suffix(1);
  }
  if (text.empty()) throw InputError(Place{file, 0, 0}, "it is empty", "expected a row of actions per rank");
  Rows rows;
  for (std::size_t start = 0; start <= text.size();) {
    const std::size_t end = std::min(text.find('\n', start), text.size());
    const int line = static_cast<int>(rows.size()) + 1;
    rows.push_back(parse_row(text.substr(start, end - start), file, line));
    if (rows.back().empty()) throw InputError(Place{file, line, 0}, "this rank has nothing to do");
    start = end + 1;
  }
  return rows;
}

struct Evidence {
  const WrittenCell* of_today = nullptr;   // the first I or overlap
  const WrittenCell* of_2024 = nullptr;    // the first BW
  bool each_backward_has_weights = false;  // a W for every B and a B for every W, and there are some
};

Evidence evidence_of(const Rows& rows) {
  Evidence evidence;
  std::set<std::pair<int, int>> backwards;  // stage and microbatch
  std::set<std::pair<int, int>> weights;
  for (const auto& row : rows) {
    for (const WrittenCell& cell : row) {
      for (const auto& [action, is_bw] : cell.actions) {
        if (is_bw && evidence.of_2024 == nullptr) evidence.of_2024 = &cell;
        const bool today = action.kind == ActionKind::input_gradient || cell.actions.size() > 1;
        if (today && evidence.of_today == nullptr) evidence.of_today = &cell;
        if (action.kind == ActionKind::backward && !is_bw) backwards.emplace(action.stage, action.microbatch);
        if (action.kind == ActionKind::weight_gradient) weights.emplace(action.stage, action.microbatch);
      }
    }
  }
  evidence.each_backward_has_weights = !weights.empty() && backwards == weights;
  return evidence;
}

CsvAlphabet settle_alphabet(const Evidence& evidence, std::optional<CsvAlphabet> asked, std::string& because) {
  if (evidence.of_2024 != nullptr && evidence.of_today != nullptr && !asked) {
    const auto [first, second] = std::minmax(evidence.of_2024, evidence.of_today, [](const auto* a, const auto* b) {
      return std::pair(a->place.line, a->place.column) < std::pair(b->place.line, b->place.column);
    });
    refuse_cell(
        second->place, second->text,
        fmt::format("belongs to another alphabet than '{}' in line {}", excerpt(first->text), first->place.line),
        "today's writes B for the full backward, I and W; that of 2024 BW, B and W");
  }
  const CsvAlphabet alphabet =
      asked ? *asked
      : evidence.of_2024 != nullptr || (evidence.of_today == nullptr && evidence.each_backward_has_weights)
          ? CsvAlphabet::of_2024
          : CsvAlphabet::today;
  const WrittenCell* foreign = alphabet == CsvAlphabet::today ? evidence.of_2024 : evidence.of_today;
  if (foreign != nullptr) {
    refuse_cell(foreign->place, foreign->text,
                alphabet == CsvAlphabet::today ? "BW belongs to the alphabet of 2024, but today's is asked for"
                                               : "it belongs to today's alphabet, but that of 2024 is asked for",
                alphabet == CsvAlphabet::today ? "--alphabet 2024, where B is the input gradient" : "--alphabet today");
  }
  if (alphabet == CsvAlphabet::of_2024) {
    because = asked ? "as asked for"
              : evidence.of_2024 != nullptr
                  ? fmt::format("line {} has '{}'", evidence.of_2024->place.line, excerpt(evidence.of_2024->text))
                  : "there is no I, and a W for every B";
  }
  return alphabet;
}

Action settled(const WrittenAction& written, CsvAlphabet alphabet) {
  Action action = written.action;
  if (alphabet == CsvAlphabet::of_2024 && action.kind == ActionKind::backward && !written.is_bw) {
    action.kind = ActionKind::input_gradient;
  }
  return action;
}

}  // namespace

CsvCells read_csv_cells(std::string_view text, const std::string& file, std::optional<CsvAlphabet> asked) {
  const Rows rows = parse_rows(text, file);
  CsvCells cells{.rows = {}};
  cells.alphabet = settle_alphabet(evidence_of(rows), asked, cells.alphabet_because);
  for (const auto& row : rows) {
    auto& settled_row = cells.rows.emplace_back();
    for (const WrittenCell& cell : row) {
      settled_row.push_back({{}, cell.place});
      for (const WrittenAction& written : cell.actions) {
        settled_row.back().actions.push_back(settled(written, cells.alphabet));
      }
    }
  }
  return cells;
}

}  // namespace plumb

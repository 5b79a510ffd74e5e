#include "common/base/error.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "common/base/excerpt.hpp"

namespace plumb {
namespace {

// "-" as a file is standard input: "-:3:4" becomes "standard input:3:4".
std::string place_text(const std::string& where) {
  return where == "-" || where.starts_with("-:") ? "standard input" + where.substr(1) : where;
}

std::string compose(const std::string& where, const std::string& problem, const std::string& hint) {
  std::string text = where.empty() ? problem : place_text(where) + ": " + problem;
  if (!hint.empty()) text += "\n  hint: " + hint;
  return printable(text);
}

// Insertions, deletions, replacements and swaps of neighbours (optimal string alignment).
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1);
  std::vector<std::size_t> last(b.size() + 1);
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    before.swap(last);
    last.swap(row);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({replaced, last[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row.back();
}

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return lower;
}

// Length of the part of `candidate` between '-', '_', '/' or '.' that holds `word`; none if no part does.
std::optional<std::size_t> part_with(std::string_view word, std::string_view candidate) {
  std::optional<std::size_t> shortest;
  for (std::size_t begin = 0; begin <= candidate.size();) {
    const std::size_t end = std::min(candidate.find_first_of("-_/.", begin), candidate.size());
    const std::string_view part = candidate.substr(begin, end - begin);
    if (part.find(word) != std::string_view::npos) shortest = std::min(shortest.value_or(part.size()), part.size());
    begin = end + 1;
  }
  return shortest;
}

// "h100" for dgx-h100, "4090" for pcie-rtx4090: the candidate with the shortest part that holds the word, then the
// shortest candidate.
std::optional<std::size_t> nearest_part(std::string_view word, const std::vector<std::string>& candidates) {
  constexpr std::size_t least_letters = 3;
  if (word.size() < least_letters) return std::nullopt;
  std::optional<std::size_t> nearest;
  std::pair<std::size_t, std::size_t> shortest;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const auto part = part_with(lower_case(word), lower_case(candidates[i]));
    if (!part) continue;
    const std::pair lengths{*part, candidates[i].size()};
    if (nearest && lengths >= shortest) continue;
    shortest = lengths;
    nearest = i;
  }
  return nearest;
}

}  // namespace

std::string to_string(const Place& place) {
  std::string text = place.file;
  if (text.starts_with("--")) return text;  // an option has one line
  if (place.line > 0) text += ":" + std::to_string(place.line);
  if (place.line > 0 && place.column > 0) text += ":" + std::to_string(place.column);
  return text;
}

Error::Error(ExitStatus status, const std::string& where, const std::string& problem, const std::string& hint)
    : std::runtime_error(compose(where, problem, hint)),
      status_(status),
      where_(where),
      problem_(problem),
      hint_(hint) {}

namespace {

// The value of an option is no file.
std::string problem_at(const Place& place, const std::string& problem) {
  constexpr std::string_view whole = "the file: ";
  return place.file.starts_with("--") && problem.starts_with(whole) ? problem.substr(whole.size()) : problem;
}

}  // namespace

InputError::InputError(const std::string& where, const std::string& problem, const std::string& hint)
    : Error(ExitStatus::wrong_input, where, problem, hint) {}

InputError::InputError(const Place& place, const std::string& problem, const std::string& hint)
    : InputError(to_string(place), problem_at(place, problem), hint) {}

RunError::RunError(const std::string& where, const std::string& problem, const std::string& hint)
    : Error(ExitStatus::run_failed, where, problem, hint) {}

std::optional<std::size_t> nearest_word(std::string_view word, const std::vector<std::string>& candidates) {
  std::optional<std::size_t> nearest;
  std::size_t least = std::max<std::size_t>(1, word.size() / 3) + 1;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const std::size_t length = candidates[i].size();
    if (std::max(length, word.size()) - std::min(length, word.size()) >= least) continue;
    const std::size_t distance = edit_distance(lower_case(word), lower_case(candidates[i]));
    if (distance < least) {
      least = distance;
      nearest = i;
    }
  }
  return nearest ? nearest : nearest_part(word, candidates);
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates) {
  if (const auto nearest = nearest_word(word, candidates)) return "did you mean '" + candidates[*nearest] + "'?";
  std::string list = "one of: ";
  for (std::size_t i = 0; i < candidates.size(); ++i) list += (i == 0 ? "" : ", ") + candidates[i];
  return list;
}

}  // namespace plumb

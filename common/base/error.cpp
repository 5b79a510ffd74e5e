#include "common/base/error.hpp"

#include <algorithm>
#include <numeric>

#include "common/base/excerpt.hpp"

namespace plumb {
namespace {

std::string compose(const std::string& where, const std::string& problem, const std::string& hint) {
  std::string text = where.empty() ? problem : where + ": " + problem;
  if (!hint.empty()) text += "\n  hint: " + hint;
  return printable(text);
}

// Levenshtein distance.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return lower;
}

}  // namespace

std::string to_string(const Place& place) {
  std::string text = place.file;
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

InputError::InputError(const std::string& where, const std::string& problem, const std::string& hint)
    : Error(ExitStatus::wrong_input, where, problem, hint) {}

InputError::InputError(const Place& place, const std::string& problem, const std::string& hint)
    : InputError(to_string(place), problem, hint) {}

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
  return nearest;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates) {
  if (const auto nearest = nearest_word(word, candidates)) return "did you mean '" + candidates[*nearest] + "'?";
  std::string list = "one of: ";
  for (std::size_t i = 0; i < candidates.size(); ++i) list += (i == 0 ? "" : ", ") + candidates[i];
  return list;
}

}  // namespace plumb

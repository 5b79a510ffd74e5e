// The two errors that plumb throws: what was given is wrong (exit status 2), or a run failed (exit status 3).
#pragma once

#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace plumb {

// Exit statuses of both programs.
enum class ExitStatus : int { done = 0, answer_is_no = 1, wrong_input = 2, run_failed = 3 };

// Place in a user's file; line and column count from 1, 0 means unknown.
struct Place {
  std::string file;
  int line = 0;
  int column = 0;

  bool operator==(const Place&) const = default;
};

// "file:line:column", leaving out what is unknown.
[[nodiscard]] std::string to_string(const Place& place);

// Base of all errors: where it happened, what is wrong (and what was expected), what to do.
class Error : public std::runtime_error {
 public:
  Error(ExitStatus status, const std::string& where, const std::string& problem, const std::string& hint);

  [[nodiscard]] ExitStatus status() const { return status_; }
  [[nodiscard]] const std::string& where() const { return where_; }
  [[nodiscard]] const std::string& problem() const { return problem_; }
  [[nodiscard]] const std::string& hint() const { return hint_; }

 private:
  ExitStatus status_;
  std::string where_;
  std::string problem_;
  std::string hint_;
};

// Something that the user gave is wrong: a file, an option, a combination. `where` names file and line, or the option.
class InputError : public Error {
 public:
  InputError(const std::string& where, const std::string& problem, const std::string& hint = "");
  InputError(const Place& place, const std::string& problem, const std::string& hint = "");
};

// The input was right and the run failed: a rank died, a message never came. `where` names rank and action.
class RunError : public Error {
 public:
  RunError(const std::string& where, const std::string& problem, const std::string& hint = "");
};

// Returns the index of the candidate nearest to `word`: by edit distance within a third of the word's length, else the
// one with a part ("h100" in "dgx-h100") that holds the word. Capital and small letters count as the same.
[[nodiscard]] std::optional<std::size_t> nearest_word(std::string_view word,
                                                      const std::vector<std::string>& candidates);

// Returns "did you mean 'X'?" for the nearest word, "one of: a, b, c" if none is near.
[[nodiscard]] std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace plumb

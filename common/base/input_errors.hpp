// Input errors that are gathered, so that a user reads all of a file's at once.
#pragma once

#include <memory>
#include <vector>

#include "common/base/error.hpp"

namespace plumb {

// Several errors as one: its first lines are the first one's, the others follow.
class SeveralInputErrors : public InputError {
 public:
  explicit SeveralInputErrors(std::vector<InputError> parts);  // at least two

  [[nodiscard]] const std::vector<InputError>& parts() const { return *parts_; }

 private:
  std::shared_ptr<const std::vector<InputError>> parts_;  // copies of exceptions must not throw
};

class InputErrors {
 public:
  // Runs `work` and keeps the InputError that it throws; whether it threw none.
  template <class Work>
  bool attempt(const Work& work) {
    try {
      work();
      return true;
    } catch (const InputError& error) {
      add(error);
      return false;
    }
  }
  // Adds each part of the error; one of the same place and problem counts once.
  void add(const InputError& error);
  void add(const InputErrors& others);

  [[nodiscard]] bool none() const { return errors_.empty(); }
  // Throws them as one error, whose first lines are the first one's and whose parts are all of them.
  void throw_if_any() const;

 private:
  std::vector<InputError> errors_;
};

}  // namespace plumb

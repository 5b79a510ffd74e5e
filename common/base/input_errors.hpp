// Input errors that are gathered, so that a user reads all of a file's at once.
#pragma once

#include <optional>
#include <string>

#include "common/base/error.hpp"

namespace plumb {

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
  void add(const InputError& error);

  [[nodiscard]] bool none() const { return !first_.has_value(); }
  // Throws them as one error: the first, behind whose hint the others stand as lines. The same text counts once.
  void throw_if_any() const;

 private:
  std::optional<InputError> first_;
  std::string others_;  // each as it would be said alone
};

}  // namespace plumb

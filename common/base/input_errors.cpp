#include "common/base/input_errors.hpp"

namespace plumb {

void InputErrors::add(const InputError& error) {
  const std::string text = error.what();
  if (!first_) {
    first_ = error;
    return;
  }
  if (text == first_->what() || ("\n" + others_ + "\n").find("\n" + text + "\n") != std::string::npos) return;
  others_ += (others_.empty() ? "" : "\n") + text;
}

void InputErrors::throw_if_any() const {
  if (!first_) return;
  if (others_.empty()) throw InputError(*first_);
  const std::string& hint = first_->hint();
  if (hint.empty()) throw InputError(first_->where(), first_->problem() + "\n" + others_);
  throw InputError(first_->where(), first_->problem(), hint + "\n" + others_);
}

}  // namespace plumb

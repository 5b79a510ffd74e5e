#include "common/base/input_errors.hpp"

#include <algorithm>
#include <string>

namespace plumb {
namespace {

// All parts but the first, as lines behind `text`.
std::string with_others(std::string text, const std::vector<InputError>& parts) {
  for (std::size_t i = 1; i < parts.size(); ++i) text.append("\n").append(parts[i].what());
  return text;
}

}  // namespace

SeveralInputErrors::SeveralInputErrors(std::vector<InputError> parts)
    : InputError(parts.front().where(),
                 parts.front().hint().empty() ? with_others(parts.front().problem(), parts) : parts.front().problem(),
                 parts.front().hint().empty() ? "" : with_others(parts.front().hint(), parts)),
      parts_(std::make_shared<const std::vector<InputError>>(std::move(parts))) {}

void InputErrors::add(const InputError& error) {
  if (const auto* several = dynamic_cast<const SeveralInputErrors*>(&error)) {
    for (const InputError& part : several->parts()) add(part);
    return;
  }
  const bool known = std::ranges::any_of(errors_, [&](const InputError& other) {
    return other.where() == error.where() && other.problem() == error.problem();
  });
  if (!known) errors_.push_back(error);
}

void InputErrors::add(const InputErrors& others) {
  for (const InputError& error : others.errors_) add(error);
}

void InputErrors::throw_if_any() const {
  if (errors_.empty()) return;
  if (errors_.size() == 1) throw InputError(errors_.front());
  throw SeveralInputErrors(errors_);
}

}  // namespace plumb

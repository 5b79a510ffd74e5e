// Plans written and read again.
#pragma once

#include <filesystem>
#include <string>

#include "common/base/error.hpp"
#include "common/plan/plan.hpp"
#include "tests/common/plan/scenarios.hpp"

namespace plumb::testing {

// What reading says about the text, without the folder's name.
inline std::string message_for_plan(const std::string& text) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.write("plan.json", text);
  try {
    (void)read_plan(path);
  } catch (const InputError& error) {
    const std::string message = error.what();
    return message.substr(message.find("plan.json"));
  }
  return "no error";
}

inline Plan read_back(const Plan& plan) {
  const TemporaryFolder folder;
  return read_plan(folder.write("plan.json", to_json(plan)));
}

template <class Change>
std::string message_after(Plan plan, const Change& change) {
  change(plan);
  return message_for_plan(to_json(plan));
}

}  // namespace plumb::testing

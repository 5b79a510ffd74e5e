// The numbers of a machine or of software as their files state them, each with its unit and its source.
#pragma once

#include <string>
#include <vector>

#include "common/base/document/json.hpp"

namespace plumb::sim {

struct StatedNumber {
  std::string key = {};          // "device.memory"
  std::string value = {};        // "80 GiB", as written
  std::string uncertainty = {};  // "12%"; empty if it is taken as exact
  std::string source = {};       // empty where the file states none
};

struct NumbersFile {
  std::string name = {};
  std::string file = {};
  std::string description = {};  // the comment on top of the file
  std::vector<StatedNumber> numbers = {};
};

// Throws InputError for a file that is no map.
[[nodiscard]] NumbersFile numbers_in(const std::string& file);

[[nodiscard]] std::string numbers_text(const NumbersFile& file);
[[nodiscard]] Json numbers_json(const NumbersFile& file);

}  // namespace plumb::sim

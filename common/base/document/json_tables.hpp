// Keys of JSON objects as rows of tables, for reference pages.
#pragma once

#include <string>
#include <vector>

namespace plumb {

struct JsonRow {
  std::string key;
  std::string type;
  bool optional = false;
  std::string description;
};
struct JsonTable {
  std::string path;  // "costs.stages[]"
  std::vector<JsonRow> rows;
};

}  // namespace plumb

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <vector>

#include "common/base/synonyms.hpp"
#include "common/cost/software_yaml.hpp"
#include "common/scenario_file/blocks.hpp"
#include "common/scenario_file/shipped.hpp"

namespace plumb {
namespace {

constexpr std::string_view changed_suffix = ", changed";

YamlValue software_file(const YamlValue& value) {
  const std::string text = value.text();
  const auto& names = software_names();
  const auto name = find_name(text, names);
  const auto found = find_file(name ? "software/" + names[*name] + ".yaml" : text, value);
  if (found) return YamlValue::load(*found);
  if (std::filesystem::path(text).has_extension()) return YamlValue::load(find_file(value));
  if (name) fail_of_missing_file(value);
  value.fail(value.path() + ": unknown software '" + text + "'", did_you_mean(text, names));
}

// Each of the files is like the next one.
using SoftwareFiles = std::vector<std::filesystem::path>;

void add_software_file(const YamlValue& value, const YamlValue& block, SoftwareFiles& files) {
  std::filesystem::path file = std::filesystem::weakly_canonical(block.place().file);
  const auto first = std::ranges::find(files, file);
  if (first != files.end()) {
    std::string circle;
    for (auto other = first; other != files.end(); ++other) circle += other->filename().string() + " is like ";
    value.fail(value.path() + ": " + circle + file.filename().string() + ": none of them says what it is",
               "one that is like no other, with name and source");
  }
  files.push_back(std::move(file));
}

Software read_software_behind(const YamlValue& value, SoftwareFiles& files) {
  const YamlValue block = value.is_text() ? software_file(value) : value;
  if (value.is_text()) add_software_file(value, block, files);
  const std::optional<YamlValue> like = block.find("like");
  if (!like) return read_software(block);
  (void)like->text();  // a name or a file, no block
  Software base = read_software_behind(*like, files);
  if (!base.name.ends_with(changed_suffix)) base.name += changed_suffix;
  return read_software(block, std::move(base));
}

}  // namespace

void refuse_post_validation(const YamlValue& software) {
  const std::optional<YamlValue> key = software.is_map() ? software.find("post_validation") : std::nullopt;
  (key ? *key : software)
      .fail("post_validation: the step of ranks that do not wait for each other is known to published tables alone",
            "plumb validate and plumb fit read it in the rows of a table; leave it out here: the step is then that of "
            "ranks that start together");
}

// A name ("megatron-2022"), a file or a block; a file or a block may change another: {like: megatron-2022, dropout:
// false}.
Software read_software_of(const YamlValue& value) {
  SoftwareFiles files;
  return read_software_behind(value, files);
}

}  // namespace plumb

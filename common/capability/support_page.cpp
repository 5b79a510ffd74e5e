#include "common/capability/support_page.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include "common/capability/capability.hpp"

namespace plumb {
namespace {

std::string cell(const Capability& answer) { return answer.level == Level::yes ? "yes" : "no"; }

void add_header(std::string& page, const std::vector<std::string_view>& cells) {
  std::string rule = "|";
  page += "|";
  for (const std::string_view each : cells) {
    page += " " + std::string(each) + " |";
    rule += " --- |";
  }
  page += "\n" + rule + "\n";
}

void add_row(std::string& page, const std::vector<std::string>& cells) {
  page += "|";
  for (const std::string& each : cells) page += " " + each + " |";
  page += "\n";
}

void add_group(std::string& page, FeatureGroup group) {
  page += "\n### " + std::string(name_of(group)) + "\n\n";
  std::vector<std::string_view> header = {"feature"};
  for (const Purpose purpose : all_purposes) header.push_back(column_of(purpose));
  add_header(page, header);
  for (std::size_t i = 0; i < feature_count; ++i) {
    const auto feature = static_cast<Feature>(i);
    if (facts_of(feature).group != group) continue;
    std::vector<std::string> row = {std::string(facts_of(feature).name)};
    for (const Purpose purpose : all_purposes) row.push_back(cell(capability(feature, purpose)));
    add_row(page, row);
  }
}

std::string names_of(const std::vector<Feature>& features) {
  std::string names;
  for (const Feature feature : features) {
    names += (names.empty() ? "" : ", ") + std::string(facts_of(feature).name);
  }
  return names;
}

// The columns that a rule takes away, as the table has them.
std::string columns_without(const CapabilityRule& rule) {
  std::string columns;
  for (const Purpose purpose : all_purposes) {
    const Capability answer = capability(rule.first.front(), rule.second.front(), purpose);
    if (answer.level == Level::yes || (rule.purpose == Purpose::plan && purpose > Purpose::shared_device)) continue;
    if (rule.purpose > Purpose::shared_device && purpose != rule.purpose) continue;
    const bool both_alone = capability(rule.first.front(), purpose).level == Level::yes &&
                            capability(rule.second.front(), purpose).level == Level::yes;
    if (purpose > Purpose::shared_device && !both_alone) continue;  // the table above says so
    columns += (columns.empty() ? "" : ", ") + std::string(column_of(purpose));
  }
  return columns;
}

void add_pairs(std::string& page) {
  add_header(page, {"feature", "with", "not in", "because", "instead"});
  for (const CapabilityRule& rule : capability_rules()) {
    if (rule.second.empty() || rule.level == Level::exclusive) continue;
    add_row(page, {names_of(rule.first), names_of(rule.second), columns_without(rule), std::string(rule.reason),
                   std::string(rule.hint)});
  }
}

void add_sources(std::string& page) {
  add_header(page, {"framework", "does not run", "file that says so"});
  for (const CapabilityRule& rule : capability_rules()) {
    if (rule.source.empty()) continue;
    const std::string both = names_of(rule.first) + (rule.second.empty() ? "" : " with " + names_of(rule.second));
    add_row(page, {std::string(column_of(rule.purpose)), both, "`" + std::string(rule.source) + "`"});
  }
}

}  // namespace

std::string support_page() {
  std::string page =
      "# Support\n\n"
      "This page is printed from the table that every command asks. `plumb plan` refuses what is not planned; "
      "`plumb-exec run` refuses what it does not execute.\n\n"
      "- planned: `plumb plan` and `plumb simulate` predict it.\n"
      "- hosts: `plumb-exec run --device cpu` over `local` or `gloo`.\n"
      "- devices: `plumb-exec run --device cuda` over `nccl`, one GPU a rank.\n"
      "- shared device: `plumb-exec run --device cuda` over `local`, all ranks on one GPU.\n"
      "- Megatron-LM, torchtitan: with `for: megatron` or `for: torchtitan`, only what the framework runs is weighed. "
      "Sources: Megatron-LM d98e8a6 (Core 0.20) and torchtitan b5bcd76, August 2026.\n\n"
      "## Features\n";
  for (std::size_t group = 0; group < feature_group_count; ++group) add_group(page, static_cast<FeatureGroup>(group));
  page += "\n## Pairs that some column lacks\n\nEvery other pair has each column that both features have.\n\n";
  add_pairs(page);
  page += "\n## Sources of the frameworks' columns\n\n";
  add_sources(page);
  return page;
}

}  // namespace plumb

#include "common/base/document/field_page.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <deque>
#include <limits>

namespace plumb {
namespace {

constexpr const char* sourced_number = "number";  // name of the blocks of a value and its source

std::string code(const std::string& text) { return "`" + text + "`"; }

// "|" ends a cell, also within a code span.
std::string cell(std::string text) {
  for (std::size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) text.insert(at, "\\");
  return text;
}

class PageWriter {
 public:
  explicit PageWriter(const FieldPage& page) : page_(page) {}

  std::string write() {
    headings_.push_back({page_.block.name, &page_.block});
    for (std::size_t i = 0; i < headings_.size(); ++i) add_section(headings_[i], i > 0);
    return text_;
  }

  std::string short_of(const FieldShape& shape, const std::string& key) {
    if (const auto* whole = std::get_if<WholeShape>(&shape.form)) return count_text(*whole);
    if (const auto* number = std::get_if<NumberShape>(&shape.form)) {
      return fmt::format("number {} {} to {}", number->above_least ? "above" : "from", number->least, number->most);
    }
    if (const auto* fraction = std::get_if<FractionShape>(&shape.form)) {
      return fmt::format("fraction to {}, or %", fraction->most);
    }
    if (const auto* quantity = std::get_if<QuantityShape>(&shape.form)) return quantity_text(quantity->kind);
    if (std::holds_alternative<BooleanShape>(shape.form)) return "`true`, `false`";
    if (const auto* choice = std::get_if<ChoiceShape>(&shape.form)) return names_text(choice->names);
    if (const auto* word = std::get_if<WordShape>(&shape.form)) return code(word->word);
    if (const auto* text = std::get_if<TextShape>(&shape.form)) return text->what;
    if (const auto* block = std::get_if<BlockShape>(&shape.form)) return link_to(*block->block, key);
    if (const auto* list = std::get_if<ListShape>(&shape.form)) return list_text(*list, key);
    return one_of_text(std::get<OneOfShape>(shape.form), key);
  }

 private:
  struct Heading {
    std::string title;
    const FieldBlock* block = nullptr;
  };

  static std::string count_text(const WholeShape& whole) {
    const std::string least = whole.least < -1'000'000 ? "" : fmt::format(" from {}", whole.least);
    const std::string most = whole.most >= std::numeric_limits<int>::max() ? "" : fmt::format(" to {}", whole.most);
    return (whole.tokens ? "tokens" : "count") + least + most + (whole.tokens ? ", such as 8k" : "");
  }

  static std::string quantity_text(QuantityKind kind) {
    switch (kind) {
      case QuantityKind::bytes:
        return "bytes";
      case QuantityKind::seconds:
        return "time";
      case QuantityKind::bytes_per_second:
        return "bandwidth";
      case QuantityKind::flops_per_second:
        return "FLOP/s";
    }
    return "";
  }

  static std::string names_text(const std::vector<std::string>& names) {
    std::string text;
    for (const std::string& name : names) text += (text.empty() ? "" : ", ") + code(name);
    return text;
  }

  std::string list_text(const ListShape& list, const std::string& key) {
    const FieldShape& one = list.of.front();
    if (std::holds_alternative<OneOfShape>(one.form)) return "a list";
    if (std::holds_alternative<BlockShape>(one.form)) return "a list of " + short_of(one, key);
    if (list.least == list.most) return fmt::format("a list of {}", list.least);
    return "a list";
  }

  std::string one_of_text(const OneOfShape& one_of, const std::string& key) {
    std::string text;
    for (std::size_t i = 0; i < one_of.shapes.size(); ++i) {
      const bool last = i + 1 == one_of.shapes.size();
      const std::string one = short_of(one_of.shapes[i], key);
      if (i > 0) text += last ? (i > 1 ? ", or " : " or ") : ", ";
      text += one;
    }
    return text;
  }

  std::string link_to(const FieldBlock& block, const std::string& key) {
    const auto page = std::ranges::find(page_.pages, &block, &std::pair<const FieldBlock*, std::string>::first);
    if (page != page_.pages.end()) return fmt::format("[a block]({})", page->second);
    // All numbers with a source are one section.
    const bool number = block.name == sourced_number;
    auto known = std::ranges::find_if(headings_, [&](const Heading& heading) {
      return heading.block == &block || (number && heading.block->name == sourced_number);
    });
    if (known == headings_.end()) {
      headings_.push_back({number ? "number with its source" : key, &block});
      known = std::prev(headings_.end());
    }
    return fmt::format("[a block](#{})", heading_anchor(known->title));
  }

  void add_section(const Heading& heading, bool titled) {
    const FieldBlock block = *heading.block;
    const std::string title = heading.title;
    if (titled) text_ += "\n## " + code(title) + "\n\n" + block.description + "\n";
    text_ += "\n| key | takes | default | meaning |\n| --- | --- | --- | --- |\n";
    for (const Field& field : block.fields) {
      const std::string path = titled && page_.block.name != title ? title + "." + field.key : field.key;
      std::string usual = field.default_text;
      const bool words = usual.find(' ') != std::string::npos && usual.front() != '{' && usual.front() != '[';
      if (field.required) usual = field.unless.empty() ? "required" : "required without " + code(field.unless);
      if (!field.with.empty()) usual = "required with " + code(field.with);
      const bool plain = usual.empty() || words || field.required || !field.with.empty();
      const bool number = block.name == sourced_number && field.key == "value";
      const std::string takes = number ? "as the number alone" : short_of(field.shape, path);
      text_ += fmt::format("| {} | {} | {} | {} |\n", code(field.key), cell(takes), cell(plain ? usual : code(usual)),
                           cell(field.description));
    }
  }

  const FieldPage& page_;
  std::deque<Heading> headings_;
  std::string text_;
};

}  // namespace

std::string heading_anchor(const std::string& title) {
  std::string text;
  for (const char c : title) {
    if (c == ' ') text += '-';
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-') text += c;
  }
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

std::string tables_of(const FieldPage& page) { return PageWriter(page).write(); }

}  // namespace plumb

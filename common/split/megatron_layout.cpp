#include "common/split/megatron_layout.hpp"

#include <charconv>

#include "common/base/error.hpp"

namespace plumb {
namespace {

struct Token {
  char what = ' ';  // E, t, m, L or |
  int column = 0;   // where it was written, from 1
};

// Reads a layout string: parentheses with their factor are written out while reading, nothing nests.
class LayoutReader {
 public:
  explicit LayoutReader(std::string_view text) : text_(text) {}

  std::vector<Token> read() {
    while (skip_cosmetic(), at_ < text_.size()) {
      if (text_[at_] == '(') {
        read_group();
      } else {
        const Token token = take_token();
        repeat({token}, take_factor());
      }
    }
    return std::move(tokens_);
  }

  [[noreturn]] static void refuse(int column, const std::string& problem) {
    throw InputError(Place{"split", 1, column}, problem,
                     "as in \"Et*3|(tt|)*29,t|L\": E embedding, t layer, m MTP, L loss, | ends a stage");
  }

 private:
  static constexpr std::size_t most_tokens = 100'000;

  int column() const { return static_cast<int>(at_) + 1; }

  void skip_cosmetic() {
    while (at_ < text_.size() && (text_[at_] == ',' || text_[at_] == ' ')) ++at_;
  }

  Token take_token() {
    const char what = text_[at_];
    if (what != 'E' && what != 't' && what != 'm' && what != 'L' && what != '|') {
      refuse(column(), std::string("unexpected '") + what + "', expected E, t, m, L, | or a group in parentheses");
    }
    return {what, static_cast<int>(++at_)};
  }

  void read_group() {
    const int opened = column();
    ++at_;
    std::vector<Token> group;
    while (skip_cosmetic(), at_ < text_.size() && text_[at_] != ')') {
      if (text_[at_] == '(') refuse(column(), "parentheses do not nest");
      const Token token = take_token();
      const int factor = take_factor();
      if (group.size() + static_cast<std::size_t>(factor) > most_tokens) refuse(token.column, "repeated too often");
      group.insert(group.end(), static_cast<std::size_t>(factor), token);
    }
    if (at_ == text_.size()) refuse(opened, "this parenthesis is never closed");
    if (group.empty()) refuse(opened, "nothing stands in this parenthesis");
    ++at_;
    repeat(group, take_factor());
  }

  // "*n" behind a token or a group; 1 if there is none.
  int take_factor() {
    if (at_ == text_.size() || text_[at_] != '*') return 1;
    const int star = column();
    const char* begin = text_.data() + ++at_;
    int factor = 0;
    const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), factor);
    if (error != std::errc{} || factor < 1) refuse(star, "expected a number of at least 1 after '*'");
    at_ += static_cast<std::size_t>(end - begin);
    return factor;
  }

  void repeat(const std::vector<Token>& group, int factor) {
    if (tokens_.size() + group.size() * static_cast<std::size_t>(factor) > most_tokens) {
      refuse(column(), "the layout is longer than " + std::to_string(most_tokens) + " parts");
    }
    for (int n = 0; n < factor; ++n) tokens_.insert(tokens_.end(), group.begin(), group.end());
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::vector<Token> tokens_;
};

// E comes first and once, L last and once, all m in one stage behind its layers, and none has layers behind it.
void require_layout(const std::vector<Token>& tokens) {
  if (tokens.empty() || tokens.front().what != 'E') {
    LayoutReader::refuse(tokens.empty() ? 1 : tokens.front().column, "expected E, the embedding, first");
  }
  if (tokens.back().what != 'L') LayoutReader::refuse(tokens.back().column, "expected L, the loss, last");
  bool mtp = false;
  bool mtp_stage_ended = false;
  for (std::size_t i = 1; i < tokens.size(); ++i) {
    const Token& token = tokens[i];
    if (token.what == 'E') LayoutReader::refuse(token.column, "a second E");
    if (token.what == 'L' && i + 1 < tokens.size()) LayoutReader::refuse(token.column, "L before the end");
    if (token.what == 'm' && mtp_stage_ended) LayoutReader::refuse(token.column, "MTP modules in a second stage");
    if (mtp && token.what == 't') LayoutReader::refuse(token.column, "a layer behind an MTP module");
    mtp |= token.what == 'm';
    mtp_stage_ended |= mtp && token.what == '|';
  }
}

// Texts that follow each other; a comma where a factor ends, as people write it.
void append(std::string& text, const std::string& part) {
  const bool factor = !text.empty() && text.back() >= '0' && text.back() <= '9';
  if (factor && !part.empty() && part.front() != '|') text += ',';
  text += part;
}

std::string repeated(char what, int count) {
  std::string text(static_cast<std::size_t>(count <= 2 ? count : 1), what);
  return count <= 2 ? text : text + "*" + std::to_string(count);
}

// One stage without its bar.
std::string stage_text(const MegatronLayout& layout, std::size_t stage) {
  std::string text = stage == 0 ? "E" : "";
  append(text, repeated('t', layout.layers[stage]));
  if (static_cast<int>(stage) == layout.mtp_stage) append(text, repeated('m', layout.mtp_modules));
  if (stage + 1 == layout.layers.size()) append(text, "L");
  return text;
}

}  // namespace

MegatronLayout parse_megatron_layout(std::string_view text) {
  const std::vector<Token> tokens = LayoutReader(text).read();
  require_layout(tokens);
  MegatronLayout layout{.layers = {0}};
  for (const Token& token : tokens) {
    if (token.what == '|') layout.layers.push_back(0);
    if (token.what == 't') ++layout.layers.back();
    if (token.what != 'm') continue;
    ++layout.mtp_modules;
    layout.mtp_stage = static_cast<int>(layout.layers.size()) - 1;
  }
  return layout;
}

std::vector<int> megatron_placement(const MegatronLayout& layout, int pipeline) {
  const int stages = static_cast<int>(layout.layers.size());
  if (pipeline < 1 || stages % pipeline != 0) {
    throw InputError("split", std::to_string(stages) + " stages do not divide among " + std::to_string(pipeline) +
                                  " ranks of the pipeline");
  }
  if (layout.mtp_stage >= 0 && layout.mtp_stage < stages - pipeline) {
    throw InputError("split", "MTP modules on stage " + std::to_string(layout.mtp_stage) +
                                  ", expected them on the last stage of a rank: " + std::to_string(stages - pipeline) +
                                  " or later");
  }
  std::vector<int> rank_of_stage;
  for (int stage = 0; stage < stages; ++stage) rank_of_stage.push_back(stage % pipeline);
  return rank_of_stage;
}

std::string to_megatron_layout(const MegatronLayout& layout) {
  std::string text;
  for (std::size_t first = 0; first < layout.layers.size();) {
    const std::string stage = stage_text(layout, first);
    std::size_t end = first + 1;
    while (end + 1 < layout.layers.size() && stage_text(layout, end) == stage) ++end;
    const std::string bar = end < layout.layers.size() ? "|" : "";
    append(text, end - first == 1 ? stage + bar : "(" + stage + "|)*" + std::to_string(end - first));
    first = end;
  }
  return text;
}

std::string to_megatron_layout(const Split& split, const std::vector<int>& rank_of_stage, int mtp_modules) {
  if (rank_of_stage.size() != split.layers.size()) {
    throw InputError("split", describe(split) + " is for " + std::to_string(split.layers.size()) +
                                  " stages, but there are " + std::to_string(rank_of_stage.size()));
  }
  int ranks = 0;
  for (const int rank : rank_of_stage) ranks = rank >= ranks ? rank + 1 : ranks;
  const MegatronLayout layout{.layers = split.layers,
                              .mtp_modules = mtp_modules,
                              .mtp_stage = mtp_modules > 0 ? static_cast<int>(split.layers.size()) - 1 : -1};
  const std::vector<int> placement = megatron_placement(layout, ranks);
  for (std::size_t stage = 0; stage < placement.size(); ++stage) {
    if (placement[stage] == rank_of_stage[stage]) continue;
    throw InputError("split",
                     "stage " + std::to_string(stage) + " stands on rank " + std::to_string(rank_of_stage[stage]) +
                         ", but Megatron-LM puts it on rank " + std::to_string(placement[stage]),
                     "its layouts say how layers are cut for 1F1B and interleaved 1F1B, not where stages stand");
  }
  return to_megatron_layout(layout);
}

}  // namespace plumb

#include <charconv>
#include <numeric>

#include "common/base/error.hpp"
#include "common/split/split.hpp"

namespace plumb {
namespace {

void require_counts(const Split& split, int layers, int stages) {
  const std::string text = describe(split);
  if (static_cast<int>(split.layers.size()) != stages) {
    throw InputError("split", text + " is for " + std::to_string(split.layers.size()) + " stages, but there are " +
                                  std::to_string(stages) + " (pipeline × chunks)");
  }
  std::int64_t sum = 0;
  for (std::size_t stage = 0; stage < split.layers.size(); ++stage) {
    const int count = split.layers[stage];
    const bool inner = stage > 0 && stage + 1 < split.layers.size();
    if (count < 0 || (count == 0 && inner)) {
      throw InputError("split", text + ": stage " + std::to_string(stage) + " has " + std::to_string(count) +
                                    " layers; only the first and the last stage may have none");
    }
    sum += count;
  }
  if (sum != layers) {
    throw InputError("split",
                     text + " sums to " + std::to_string(sum) + " layers, but the model has " + std::to_string(layers),
                     "every layer belongs to exactly one stage");
  }
}

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

// E comes first and once, L last and once, m only on the last stage behind all layers.
void require_layout(const std::vector<Token>& tokens) {
  if (tokens.empty() || tokens.front().what != 'E') {
    LayoutReader::refuse(tokens.empty() ? 1 : tokens.front().column, "expected E, the embedding, first");
  }
  if (tokens.back().what != 'L') LayoutReader::refuse(tokens.back().column, "expected L, the loss, last");
  const Token* mtp = nullptr;
  for (std::size_t i = 1; i < tokens.size(); ++i) {
    const Token& token = tokens[i];
    if (token.what == 'E') LayoutReader::refuse(token.column, "a second E");
    if (token.what == 'L' && i + 1 < tokens.size()) LayoutReader::refuse(token.column, "L before the end");
    if (token.what == 'm' && mtp == nullptr) mtp = &token;
    if (mtp != nullptr && token.what == 't') LayoutReader::refuse(token.column, "a layer behind an MTP module");
    if (mtp != nullptr && token.what == '|') {
      LayoutReader::refuse(mtp->column, "an MTP module on another stage than the loss is planned and not built yet");
    }
  }
}

}  // namespace

Split explicit_split(const std::vector<int>& counts, int layers, int stages) {
  require_stages(layers, stages);
  Split split{counts};
  require_counts(split, layers, stages);
  return split;
}

Split megatron_split(std::string_view text, int layers, int stages) {
  require_stages(layers, stages);
  const std::vector<Token> tokens = LayoutReader(text).read();
  require_layout(tokens);
  Split split{{0}};
  for (const Token& token : tokens) {
    if (token.what == '|') split.layers.push_back(0);
    if (token.what == 't') ++split.layers.back();
  }
  require_counts(split, layers, stages);
  return split;
}

}  // namespace plumb

#include "common/model/layer_text.hpp"

#include <cctype>

#include "common/model/model_limits.hpp"

namespace plumb {
namespace {

// Recursive descent over: list = item {"," item}; item = ("(" list ")" | word) ["*" count].
class LayerText {
 public:
  LayerText(const std::string& text, const Place& place) : text_(text), place_(place) {}

  std::vector<std::string> read() {
    std::vector<std::string> all = list(0);
    if (position_ < text_.size()) fail("unexpected '" + std::string(1, text_[position_]) + "'");
    return all;
  }

 private:
  static constexpr int deepest = 16;

  [[noreturn]] void fail(const std::string& problem) const {
    throw InputError(place_,
                     "layers: " + problem + " at character " + std::to_string(position_ + 1) + " of '" + text_ + "'",
                     "write for example \"linear/dense*3, (sliding/moe, full/moe)*4\"");
  }

  void skip_spaces() {
    while (position_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[position_])) != 0) ++position_;
  }

  bool accept(char wanted) {
    skip_spaces();
    if (position_ == text_.size() || text_[position_] != wanted) return false;
    ++position_;
    return true;
  }

  std::vector<std::string> list(int depth) {
    std::vector<std::string> all;
    do {
      for (std::string& layer : item(depth)) all.push_back(std::move(layer));
      if (all.size() > static_cast<std::size_t>(limits::layers)) too_many();
    } while (accept(','));
    skip_spaces();
    return all;
  }

  std::vector<std::string> item(int depth) {
    std::vector<std::string> once;
    if (accept('(')) {
      if (depth == deepest) fail("parentheses are nested too deeply");
      once = list(depth + 1);
      if (!accept(')')) fail("expected ')' or ','");
    } else {
      once.push_back(word());
    }
    if (!accept('*')) return once;
    const std::size_t times = count();
    if (once.size() * times > static_cast<std::size_t>(limits::layers)) too_many();
    std::vector<std::string> all;
    for (std::size_t i = 0; i < times; ++i) all.insert(all.end(), once.begin(), once.end());
    return all;
  }

  std::string word() {
    skip_spaces();
    const std::size_t begin = position_;
    while (position_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[position_])) != 0 ||
                                        text_[position_] == '/' || text_[position_] == '_')) {
      ++position_;
    }
    if (position_ == begin) fail("expected a layer such as full/dense");
    return text_.substr(begin, position_ - begin);
  }

  std::size_t count() {
    skip_spaces();
    const std::size_t begin = position_;
    std::size_t value = 0;
    while (position_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[position_])) != 0) {
      value = value * 10 + static_cast<std::size_t>(text_[position_] - '0');
      if (value > static_cast<std::size_t>(limits::layers)) too_many();
      ++position_;
    }
    if (position_ == begin || value == 0) fail("expected a count of at least 1 after '*'");
    return value;
  }

  [[noreturn]] void too_many() const { fail("more than " + std::to_string(limits::layers) + " layers"); }

  const std::string& text_;
  const Place& place_;
  std::size_t position_ = 0;
};

}  // namespace

std::vector<std::string> expand_layers(const std::string& text, const Place& place) {
  return LayerText(text, place).read();
}

}  // namespace plumb

#include "common/timeline/trace/trace_sax.hpp"

#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "common/base/excerpt.hpp"

namespace plumb {
namespace {

constexpr int first_kind = static_cast<int>(ActionKind::forward);
constexpr int last_kind = static_cast<int>(ActionKind::optimizer_step);

// Builds the one `plumb` object as a tree.
// The check takes an assertion in the JSON library's move for a throw.
// NOLINTNEXTLINE(bugprone-exception-escape)
class TreeBuilder {
 public:
  void add(Json value) { place(std::move(value)); }
  void begin(Json container) { open_.push_back(place(std::move(container))); }
  void key(const std::string& name) { key_ = name; }
  void end() { open_.pop_back(); }
  [[nodiscard]] Json take() { return std::move(root_); }

 private:
  Json* place(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Json& parent = *open_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    Json& slot = parent[key_];
    slot = std::move(value);
    return &slot;
  }

  Json root_;
  std::vector<Json*> open_;
  std::string key_;
};

enum class Field : std::uint8_t {
  other,
  phase,
  rank,
  step,
  kind,
  stage,
  microbatch,
  start,
  end,
  waited,
  beside,
  peer,
  bytes,
  count
};

constexpr std::array<std::pair<std::string_view, Field>, 10> argument_fields{{{"step", Field::step},
                                                                              {"kind", Field::kind},
                                                                              {"stage", Field::stage},
                                                                              {"microbatch", Field::microbatch},
                                                                              {"start_s", Field::start},
                                                                              {"end_s", Field::end},
                                                                              {"waited_s", Field::waited},
                                                                              {"beside_s", Field::beside},
                                                                              {"peer", Field::peer},
                                                                              {"bytes", Field::bytes}}};
constexpr std::array required_fields{Field::rank, Field::step, Field::kind, Field::stage, Field::start, Field::end};

std::string_view field_name(Field field) {
  for (const auto& [name, value] : argument_fields) {
    if (value == field) return name;
  }
  return field == Field::rank ? "pid" : "ph";
}

// One entry of traceEvents while it is read.
class EventBuilder {
 public:
  void begin(std::size_t number) {
    current_ = TraceEvent{};
    current_.number = number;
    complete_ = false;
    seen_.fill(false);
    problem_.clear();
  }

  void key(std::string_view name, bool argument) {
    field_ = Field::other;
    if (!argument) {
      if (name == "ph") field_ = Field::phase;
      if (name == "pid") field_ = Field::rank;
      return;
    }
    for (const auto& [known, field] : argument_fields) {
      if (known == name) field_ = field;
    }
  }

  void text(std::string_view value) {
    if (field_ == Field::phase) complete_ = value == "X";
    if (field_ == Field::kind) {
      for (int i = first_kind; i <= last_kind; ++i) {
        if (letters(static_cast<ActionKind>(i)) != value) continue;
        current_.event.action.kind = static_cast<ActionKind>(i);
        mark();
        return;
      }
      complain("has an unknown kind '" + excerpt(value) + "'");
    }
  }

  void integer(std::int64_t value) {
    switch (field_) {
      case Field::rank:
        narrow(value, current_.event.rank);
        break;
      case Field::stage:
        narrow(value, current_.event.action.stage);
        break;
      case Field::microbatch:
        narrow(value, current_.event.action.microbatch);
        break;
      case Field::peer:
        narrow(value, current_.event.peer);
        break;
      case Field::step:
        current_.step = value;
        mark();
        break;
      case Field::bytes:
        current_.event.bytes = {value};
        mark();
        break;
      default:
        real(static_cast<double>(value));
    }
  }

  void real(double value) {
    switch (field_) {
      case Field::start:
        current_.event.start = {value};
        mark();
        break;
      case Field::end:
        current_.event.end = {value};
        mark();
        break;
      case Field::waited:
        current_.event.waited = {value};
        mark();
        break;
      case Field::beside:
        current_.event.beside = {value};
        mark();
        break;
      case Field::other:
      case Field::phase:
        break;
      default:
        complain("has a number as '" + std::string(field_name(field_)) + "' that does not belong there");
    }
  }

  void end(TraceContent& content) {
    if (!complete_) return;
    for (const Field field : required_fields) {
      if (!seen_[static_cast<std::size_t>(field)]) {
        complain("has no '" + std::string(field_name(field)) + "' that plumb understands");
      }
    }
    if (!problem_.empty() && content.problem.empty()) {
      content.problem = "traceEvents[" + std::to_string(current_.number) + "] " + problem_;
    }
    content.events.push_back(current_);
  }

 private:
  void mark() { seen_[static_cast<std::size_t>(field_)] = true; }

  void complain(std::string problem) {
    if (problem_.empty()) problem_ = std::move(problem);
  }

  void narrow(std::int64_t value, std::int32_t& target) {
    if (value < std::numeric_limits<std::int32_t>::min() || value > std::numeric_limits<std::int32_t>::max()) {
      complain("has '" + std::string(field_name(field_)) + "' out of range");
      return;
    }
    target = static_cast<std::int32_t>(value);
    mark();
  }

  TraceEvent current_;
  Field field_ = Field::other;
  bool complete_ = false;  // a complete event: phase X
  std::array<bool, static_cast<std::size_t>(Field::count)> seen_{};
  std::string problem_;
};

// The JSON library calls these names.
class TraceHandler {
 public:
  TraceHandler(TraceContent& content, std::string_view text, std::string file)
      : content_(content), text_(text), file_(std::move(file)) {}

  bool null() { return scalar(Json(nullptr)); }
  bool boolean(bool value) { return scalar(Json(value)); }
  bool number_integer(std::int64_t value) {
    if (in_event()) event_.integer(value);
    return scalar(Json(value));
  }
  bool number_unsigned(std::uint64_t value) {
    if (in_event() && value <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      event_.integer(static_cast<std::int64_t>(value));
    }
    return scalar(Json(value));
  }
  bool number_float(double value, const std::string& /*digits*/) {
    if (in_event()) event_.real(value);
    return scalar(Json(value));
  }
  bool string(std::string& value) {
    if (in_event()) event_.text(value);
    if (part_ == Part::plumb) tree_.add(std::move(value));
    return true;
  }
  static bool binary(Json::binary_t& /*value*/) { return true; }

  bool key(std::string& name) {
    if (depth_ == 1) {
      part_ = name == "plumb" ? Part::plumb : name == "traceEvents" ? Part::events : Part::other;
      return true;
    }
    if (part_ == Part::plumb) tree_.key(name);
    if (part_ == Part::events && depth_ == 3) {
      in_arguments_ = name == "args";
      event_.key(name, false);
    } else if (in_event()) {
      event_.key(name, true);
    }
    return true;
  }

  bool start_object(std::size_t /*size*/) {
    ++depth_;
    if (part_ == Part::plumb) tree_.begin(Json::object());
    if (part_ == Part::events && depth_ == 3) {
      event_.begin(number_++);
      in_arguments_ = false;
    }
    return true;
  }

  bool end_object() {
    if (part_ == Part::events && depth_ == 3) event_.end(content_);
    return end();
  }

  bool start_array(std::size_t /*size*/) {
    ++depth_;
    if (part_ == Part::plumb) tree_.begin(Json::array());
    if (part_ == Part::events && depth_ == 2) content_.has_events = true;
    return true;
  }

  bool end_array() { return end(); }

  [[noreturn]] bool parse_error(std::size_t /*byte*/, const std::string& /*token*/,
                                const nlohmann::json::exception& error) {
    throw_json_error(error, text_, file_);
  }

 private:
  enum class Part { other, plumb, events };

  // Directly in an entry of traceEvents or in its args, not in anything deeper.
  [[nodiscard]] bool in_event() const {
    return part_ == Part::events && (depth_ == 3 || (depth_ == 4 && in_arguments_));
  }

  bool scalar(Json value) {
    if (part_ == Part::plumb) tree_.add(std::move(value));
    return true;
  }

  bool end() {
    --depth_;
    if (part_ == Part::plumb && depth_ >= 1) {
      tree_.end();
      if (depth_ == 1) content_.plumb = tree_.take();
    }
    if (depth_ <= 1) part_ = Part::other;
    return true;
  }

  TraceContent& content_;
  std::string_view text_;
  std::string file_;
  Part part_ = Part::other;
  int depth_ = 0;
  std::size_t number_ = 0;
  bool in_arguments_ = false;
  EventBuilder event_;
  TreeBuilder tree_;
};

}  // namespace

TraceContent parse_trace(std::string_view text, const std::string& file) {
  TraceContent content;
  TraceHandler handler(content, text, file);
  Json::sax_parse(text, &handler);
  return content;
}

}  // namespace plumb

#include "common/schedule/interchange/schedule_file.hpp"

#include "common/base/document/json.hpp"
#include "common/base/error.hpp"
#include "common/base/excerpt.hpp"
#include "common/schedule/action_index.hpp"
#include "common/schedule/interchange/schedule_json.hpp"

namespace plumb {
namespace {

constexpr std::string_view format_name = "plumb schedule";
constexpr std::string_view plan_name = "plumb plan";

ScheduleReading read_json(std::string_view text, const std::string& file, std::optional<CsvAlphabet> asked) {
  if (asked) throw InputError(Place{file, 0, 0}, "it is JSON, which has one alphabet", "leave --alphabet out");
  const Json json = parse_json(text, file);
  const JsonValue value(json, file, "", text);
  const auto format = value.find("format");
  const std::string name = format ? format->text() : "";
  if (name != format_name && name != plan_name) {
    const std::string expected = "expected '" + std::string(format_name) + "'";
    const std::string hint = "such files are written by: plumb schedule export NAME … --format json";
    if (format) format->fail("is '" + excerpt(name) + "', " + expected, hint);
    value.fail("has no key 'format', " + expected, hint);
  }
  ScheduleReading reading{.taken_for = name == plan_name ? "the schedule of a plan" : "JSON of plumb"};
  if (name == format_name) {
    value.require_only({"format", "version", "schedule"});
    const JsonValue version = value.at("version");
    if (version.integer() != schedule_file_version) {
      version.fail("is " + std::to_string(version.integer()) + ", expected " + std::to_string(schedule_file_version),
                   "write it again with this plumb");
    }
  }
  reading.schedule = schedule_from_json(value.at("schedule"));
  if (is_lowered(reading.schedule)) reading.taken_for += ", with communication";
  return reading;
}

}  // namespace

std::string to_schedule_file(const Schedule& schedule) {
  return to_text(Json{{"format", format_name}, {"version", schedule_file_version}, {"schedule", to_json(schedule)}});
}

ScheduleReading read_schedule_text(std::string_view text, const std::string& file, std::optional<CsvAlphabet> asked) {
  std::string_view content = text;
  if (content.starts_with("\xEF\xBB\xBF")) content.remove_prefix(3);  // a byte order mark
  const std::size_t first = content.find_first_not_of(" \t\r\n");
  if (first != std::string_view::npos && content[first] == '{') return read_json(content, file, asked);
  CsvReading csv = read_pytorch_csv(text, file, asked);
  const bool compute_only = csv.form == CsvForm::compute_only;
  const bool today = csv.alphabet == CsvAlphabet::today;
  return {.schedule = std::move(csv.schedule),
          .taken_for = std::string("PyTorch CSV, ") + (compute_only ? "compute only" : "with communication") +
                       (today ? "" : ", alphabet of 2024"),
          .notes = std::move(csv.notes),
          .for_pytorch = true,
          .places = std::move(csv.places)};
}

}  // namespace plumb

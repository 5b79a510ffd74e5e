#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <memory>
#include <string>

#include "common/base/command_line.hpp"
#include "common/base/document/json.hpp"
#include "common/base/document/number_check.hpp"
#include "common/base/files.hpp"
#include "common/base/program.hpp"
#include "common/base/text.hpp"
#include "common/timeline/chart/schedule_chart.hpp"
#include "common/timeline/chart/schedule_picture.hpp"
#include "sim/commands/describe.hpp"
#include "sim/commands/schedule_input.hpp"

namespace plumb::sim {
namespace {

struct ShowScheduleOptions : ScheduleOptions {
  TimesOptions times;
  std::string svg;
  int width = 0;  // 0: the terminal's
  bool ascii = false;
};

Json to_json(const MeasuredSchedule& measured) {
  const Schedule& schedule = measured.schedule;
  return {{"schedule", schedule.name},
          {"ranks", schedule.ranks},
          {"microbatches", whole_microbatches(schedule)},
          {"chunks", schedule.chunks},
          {"makespan", measured.step.duration.value},
          {"bubble_makespan", measured.bubbles.makespan.value},
          {"bubble_span", measured.bubbles.span.value},
          {"peak_activations", measured.peaks},
          {"slices", schedule.slices},
          {"replicas", replicas(schedule)},
          {"weight_versions", measured.weight_versions}};
}

// Runs of equal ones folded: "4 × 3, 2".
template <class Number>
std::string folded_list(const std::vector<Number>& numbers) {
  std::string list;
  for (std::size_t first = 0; first < numbers.size();) {
    std::size_t last = first;
    while (last < numbers.size() && numbers[last] == numbers[first]) ++last;
    list += list.empty() ? "" : ", ";
    const std::size_t count = last - first;
    if (count > 2) {
      list += fmt::format("{} × {:.6g}", count, static_cast<double>(numbers[first]));
    } else {
      list += fmt::format("{:.6g}", static_cast<double>(numbers[first]));
      last = first + 1;
    }
    first = last;
  }
  return list;
}

std::string heading(const MeasuredSchedule& measured, const std::string& title) {
  const Schedule& schedule = measured.schedule;
  std::string text =
      fmt::format("{}: {} ranks, {} microbatches, {} {} per rank", title, schedule.ranks, whole_microbatches(schedule),
                  schedule.chunks, schedule.chunks == 1 ? "stage" : "stages");
  if (schedule.slices > 1) text += fmt::format(", {} slices", schedule.slices);
  if (replicas(schedule) > 1) text += " and replica, two replicas";
  if (schedule.update_every > 0) {
    text += schedule.update_every == 1
                ? ", an optimizer step every microbatch"
                : fmt::format(", an optimizer step every {} microbatches", schedule.update_every);
  }
  return text;
}

// In words: makespan, bubbles, memory.
std::vector<std::pair<std::string, std::string>> facts(const MeasuredSchedule& measured) {
  const Bubbles& bubble = measured.bubbles;
  std::vector<std::pair<std::string, std::string>> lines = {
      {"makespan", fmt::format("{:.6g}", measured.step.duration.value)},
      {"bubble",
       fmt::format("{:.6g} of the makespan ({}); {:.6g} of the longest rank's own span ({})", bubble.makespan.value,
                   percent_text(bubble.makespan_fraction), bubble.span.value, percent_text(bubble.span_fraction))},
      {"activations", folded_list(measured.peaks) + " at the peak of each rank"}};
  if (measured.schedule.update_every > 0) {
    lines.emplace_back("weights", folded_list(measured.weight_versions) + " versions kept on each rank");
  }
  if (replicas(measured.schedule) > 1)
    lines.emplace_back("parameters", "held twice: each rank has a stage of both replicas");
  return lines;
}

void write_picture(const MeasuredSchedule& measured, const std::string& title, const std::string& file) {
  SchedulePictureText text{.title = heading(measured, title), .lines = {}, .peaks = measured.peaks};
  for (const auto& [name, value] : facts(measured)) {
    if (name != "activations" || measured.schedule.ranks <= 8) text.lines.push_back(fmt::format("{}: {}", name, value));
  }
  write_file(file, schedule_picture(measured.step, measured.schedule, text));
}

std::string drawn_text(const MeasuredSchedule& measured, const NamedSchedule& named,
                       const ShowScheduleOptions& options) {
  std::string text = heading(measured, named.title) + "\n  " + named.source + "\n\n";
  for (const auto& [name, value] : facts(measured)) text += fmt::format("  {:<11} {}\n", name, value);
  return text + "\n" +
         schedule_chart(measured.step, measured.schedule,
                        {.width = options.width > 0 ? options.width : chart_width(),
                         .colour = colour_allowed(Stream::out),
                         .unicode = !options.ascii,
                         .peaks = measured.peaks}) +
         "\nTimes are in the unit of --times; activations count one rank's share of a microbatch.\n";
}

// Returns the output. The largest schedules, of millions of actions, take half a minute.
std::string output_of(const ShowScheduleOptions& options) {
  Progress progress("showing the schedule");
  int done = 0;
  const auto begins = [&](std::string_view what) { progress.update(done++, parts_of_measuring + 3, what); };
  const ShareTimes times = parse_times(options.times);
  begins("its actions");
  const NamedSchedule named = schedule_of(options, times);
  require_head(options.times, named.schedule.vocabulary_barriers > 0);
  const MeasuredSchedule measured = measure(named.schedule, times, begins);
  begins("the picture");
  if (!options.svg.empty()) write_picture(measured, named.title, options.svg);
  begins("the chart");
  return options.json ? to_text(to_json(measured)) : drawn_text(measured, named, options);
}

ExitStatus show(const ShowScheduleOptions& options) {
  if (!options.svg.empty()) require_writable(options.svg);
  std::cout << output_of(options);
  if (!options.json && !options.svg.empty()) print_written(options.svg);
  return ExitStatus::done;
}

}  // namespace

void add_schedule_show(CLI::App& parent, Body& body) {
  CLI::App& command = add_command(parent, "show", "Draws and measures one schedule.",
                                  "plumb schedule show zb-h1 --ranks 4 --microbatches 8\n"
                                  "plumb schedule show 1f1b --ranks 2 --microbatches 4 --times 1,1,1:2,2,2");
  const auto options = std::make_shared<ShowScheduleOptions>();
  add_schedule_options(command, *options);
  add_alphabet(command, options->alphabet, read_alphabet);
  add_times(command, options->times);
  command.add_option("--svg", options->svg, "Also writes a picture to this file.")->type_name("FILE");
  command.add_option("--width", options->width, "Columns of the chart; default: those of the terminal.")
      ->check(whole_number(10, 1000));
  command.add_flag("--ascii", options->ascii, "Draws the chart in ASCII.");
  command.callback([&body, options] { body = [options] { return show(*options); }; });
}

}  // namespace plumb::sim

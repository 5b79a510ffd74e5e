#include "sim/commands/studies.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "common/base/error.hpp"
#include "common/base/program.hpp"
#include "common/base/text.hpp"
#include "common/study/sensitivity.hpp"
#include "common/study/what_if.hpp"

namespace plumb::sim {
namespace {

constexpr std::size_t most_shown = 12;
constexpr std::size_t most_tied = 40;

// How many stand in the table: those that move the step as much as the last one stand beside it.
std::size_t shown_of(const std::vector<Sensitivity>& found) {
  std::size_t shown = std::min(found.size(), most_shown);
  while (shown > 0 && shown < std::min(found.size(), most_tied) && move_alike(found[shown], found[shown - 1])) ++shown;
  return shown;
}

// What a table that ends behind `shown` entries leaves out.
std::string rest_of_sensitivities(const std::vector<Sensitivity>& found, std::size_t shown) {
  if (shown >= found.size()) return "";
  constexpr double smallest = 5e-4;  // as the table rounds
  std::size_t on_chains = 0;
  for (std::size_t n = shown; n < found.size(); ++n) on_chains += found[n].if_slower >= smallest ? 1 : 0;
  std::string text = fmt::format("  and {} more in --json, none of which shortens the step more", found.size() - shown);
  if (on_chains > 0) text += fmt::format("; {} of them lengthen it when slower", on_chains);
  return text + ".\n";
}

// "7.1% shorter", "no shorter".
std::string made_step(double change) {
  if (change == 0) return "no shorter";
  return percent_text(std::abs(change)) + (change < 0 ? " shorter" : " longer");
}

// What the rows of that table say, by its first one, and by the first that is tied.
std::string reading_of_sensitivities(std::span<const Sensitivity> shown) {
  if (shown.empty()) return "";
  const Sensitivity& first = shown.front();
  std::string text = fmt::format(
      "  A row moves one thing and leaves all else: every action of a kind of one stage or of all, every message of\n"
      "  a class, or one number of the machine. The first row says: {} 10% faster or better, predicted anew, makes\n"
      "  the step {}. If faster, if slower: for the first percent alone it is {:.3f}% shorter or {:.3f}% longer (of\n"
      "  actions and messages that is their part of the step's longest chain). Ten percent gain less than ten times\n"
      "  that where another chain takes over.\n",
      first.name, made_step(first.change), first.if_faster, first.if_slower);
  const auto tied = std::ranges::find_if(shown, is_tied);
  if (tied != shown.end()) {
    text += fmt::format(
        "  tied: several chains of actions are equally long, and this is not the same part of each. Faster alone, {}\n"
        "  gains only what it is of all of them ({:.3f}), since the others stay as long; slower, it costs what it is\n"
        "  of the one that has most of it ({:.3f}). Make what is tied faster together.\n",
        tied->name, tied->if_faster, tied->if_slower);
  }
  return text;
}

constexpr std::array<const char*, 4> moved_names = {"stage", "message", "kind", "number"};

std::string draws_text(const DrawOptions& options) {
  return fmt::format("{} draws of the machine's numbers, seed {}, by the longest path", options.draws, options.seed);
}

// What the engine does not know is refused by the variant's name.
WhatIfOutcome predict_named(const WhatIf& variant, const StepEngine& engine) {
  try {
    return predict_what_if(variant, engine);
  } catch (const InputError& error) {
    throw InputError("what if '" + variant.name + "'", error.problem(), error.hint());
  }
}

Json causes_json(const WhatIfFailure& why) {
  constexpr std::array<const char*, 7> names = {"device", "links", "outside_links", "link_between",
                                                "uplink", "leaf",  "reduction"};
  Json causes = Json::array();
  for (const Disturbance& cause : why.causes) {
    Json json = {
        {"what", names.at(static_cast<std::size_t>(cause.what))}, {"rank", cause.rank}, {"at_s", cause.from.value}};
    if (cause.what == Disturbed::way) json["peer"] = cause.peer;
    causes.push_back(json);
  }
  return causes;
}

// Of such plans SimGrid predicts all ranks, and in a study the pipeline's alone (sim/predict.cpp).
std::string stage_data_note(const Plan& plan) {
  if (!has_stage_data(plan.layout)) return "";
  return "  Stages have different data degrees: these steps are of one replica of each with nothing "
         "contending,\n  SimGrid's own step is of all ranks.\n";
}

std::function<void(int, int)> updates(Progress& progress) {
  return [&](int done, int total) { progress.update(done, total); };
}

// Of two remarks, either of which may be empty.
std::string one_behind_the_other(const std::string& first, const std::string& second) {
  return first + (first.empty() || second.empty() ? "" : "; ") + second;
}

struct Predicted {
  Json json;
  std::vector<std::string> cells;
};

// Of a step that ended: beside that of the plan as it is.
Predicted predicted_row(const WhatIf& variant, const WhatIfOutcome& outcome, Seconds planned) {
  const double change = outcome.iteration / planned - 1;
  const Bytes memory = variant.plan.cluster.machine.device.memory.value;
  const bool fits = outcome.peak <= memory;
  const std::string too_much = fits ? "" : "does NOT fit, " + to_text(outcome.peak - memory) + " too much";
  return {
      .json = {{"iteration_s", outcome.iteration.value},
               {"change_fraction", change},
               {"bubble_makespan_fraction", outcome.bubble_makespan_fraction},
               {"peak_bytes", outcome.peak.value},
               {"fits", fits},
               {"bounding_rank", outcome.bounding.rank},
               {"bounding_fraction", outcome.bounding.fraction}},
      .cells = {variant.name, to_text(outcome.iteration), change_text(change),
                percent_text(outcome.bubble_makespan_fraction), to_text(outcome.peak),
                fmt::format("rank {}, {} of the step", outcome.bounding.rank, percent_text(outcome.bounding.fraction)),
                one_behind_the_other(too_much, outcome.unmet)}};
}

}  // namespace

Study what_if_study(const std::string& file, const Plan& plan, const StepEngine& engine) {
  std::vector<WhatIf> variants = read_what_if(file, plan);
  variants.insert(variants.begin(), WhatIf{.name = "as planned", .plan = plan});
  Study study{.json = {{"what_if", Json::array()}}};
  Table table{
      .header = {"what if", "step", "change", "bubble", "peak", "bounded by", ""}, .rows = {}, .left_last = true};
  Progress progress("what if");
  Seconds planned;
  std::string notes;
  for (const WhatIf& variant : variants) {
    const WhatIfOutcome outcome = predict_named(variant, engine);
    if (study.json["what_if"].empty()) planned = outcome.iteration;
    const bool failed = outcome.never_ran > 0;
    Json row = {{"name", variant.name}, {"failed", failed}};
    if (failed) {
      row.update({{"iteration_s", nullptr},
                  {"never_ran", outcome.never_ran},
                  {"failure", outcome.failure},
                  {"causes", causes_json(outcome.why)},
                  {"first", {{"rank", outcome.why.rank}, {"action", to_string(outcome.why.action)}}}});
      table.rows.push_back({variant.name, "failed", "", "", "", "", outcome.failure});
    } else {
      const Predicted predicted = predicted_row(variant, outcome, planned);
      row.update(predicted.json);
      table.rows.push_back(predicted.cells);
    }
    const std::string note = one_behind_the_other(variant.note, outcome.unmet);
    if (!note.empty()) row["note"] = note;
    if (!variant.note.empty()) {
      notes += fmt::format("  {}: {}.\n", variant.name, variant.note);
    }
    study.json["what_if"].push_back(row);
    progress.update(static_cast<int>(study.json["what_if"].size()), static_cast<int>(variants.size()));
  }
  study.text =
      to_text(table, colour_allowed(Stream::out)) +
      "  A row is one variant of the file, all else as planned; change: its step against `as planned`, +10%: a "
      "tenth longer.\n  Bubble: of the step, with the optimizer; peak: memory of the fullest rank; bounded by: the "
      "rank whose computation\n  is most of the chain of actions that ends last.\n" +
      notes + stage_data_note(plan);
  return study;
}

Study sensitivity_study(const Plan& plan, const StepEngine& engine) {
  std::vector<Sensitivity> found;
  {
    Progress progress("derivatives");
    found = sensitivities(plan, engine, updates(progress));
  }
  Study study{.json = {{"sensitivity", Json::array()}}};
  for (const Sensitivity& entry : found) {
    study.json["sensitivity"].push_back({{"of", moved_names.at(static_cast<std::size_t>(entry.moved))},
                                         {"name", entry.name},
                                         {"change_fraction", entry.change},
                                         {"slope_fraction", entry.slope},
                                         {"if_faster_fraction", entry.if_faster},
                                         {"if_slower_fraction", entry.if_slower}});
  }
  const std::span shown(found.data(), shown_of(found));
  Table table{.header = {"10% faster or better", "step", "if faster", "if slower"}, .rows = {}};
  for (const Sensitivity& entry : shown) {
    table.rows.push_back({entry.name, change_text(entry.change), fmt::format("{:.3f}", entry.if_faster),
                          fmt::format("{:.3f}{}", entry.if_slower, is_tied(entry) ? " tied" : "     ")});
  }
  study.text = to_text(table, colour_allowed(Stream::out)) + rest_of_sensitivities(found, shown.size()) +
               reading_of_sensitivities(shown);
  if (!has_predicted_costs(plan)) {
    study.text += "  The plan's costs are measured or edited, so that no number of the machine moves them.\n";
  }
  study.text += stage_data_note(plan);
  return study;
}

Study uncertainty_study(const Plan& plan, Seconds iteration, const DrawOptions& options) {
  StepUncertainty found;
  {
    Progress progress("drawing the machine's numbers");
    found = step_uncertainty(plan, options, updates(progress));
  }
  Json contributions = Json::array();
  std::string text = fmt::format("  step        {} to {} (5% to 95%), median {}; ±{} by linear propagation\n",
                                 to_text(iteration * found.low), to_text(iteration * found.high),
                                 to_text(iteration * found.median), percent_text(found.deviation));
  constexpr double smallest_named = 0.001;
  int unnamed = 0;
  for (const Contribution& contribution : found.contributions) {
    contributions.push_back({{"number", contribution.number},
                             {"uncertainty_fraction", contribution.uncertainty},
                             {"slope_fraction", contribution.slope},
                             {"step_fraction", contribution.step}});
    if (contribution.step < smallest_named) {
      ++unnamed;
      continue;
    }
    text += fmt::format("  {} ±{}: ±{} of the step\n", contribution.number, percent_text(contribution.uncertainty),
                        percent_text(contribution.step));
  }
  if (unnamed > 0)
    text += fmt::format("  and {} more in --json, each below ±{}\n", unnamed, percent_text(smallest_named));
  Json exact = Json::array();
  std::string names;
  for (const Contribution& contribution : found.taken_as_exact) {
    exact.push_back(contribution.number);
    names += (names.empty() ? "" : ", ") + contribution.number;
  }
  if (!names.empty()) text += fmt::format("  taken as exact, since no file gives an uncertainty: {}\n", names);
  text += fmt::format("  {}\n", draws_text(options));
  return {.json = {{"iteration_low_s", (iteration * found.low).value},
                   {"iteration_median_s", (iteration * found.median).value},
                   {"iteration_high_s", (iteration * found.high).value},
                   {"iteration_deviation_s", (iteration * found.deviation).value},
                   {"uncertainty",
                    {{"draws", options.draws},
                     {"seed", options.seed},
                     {"contributions", contributions},
                     {"taken_as_exact", exact}}}},
          .text = text};
}

Study ranking_study(const Plan& plan, const Plan& other, const DrawOptions& options) {
  Ranking found;
  {
    Progress progress("drawing the machine's numbers");
    found = rank_plans(plan, other, options, updates(progress));
  }
  const bool first_leads = found.first_wins >= 0.5;
  const double wins = first_leads ? found.first_wins : 1 - found.first_wins;
  Json decisive = Json::array();
  for (const Decisive& entry : found.decisive) {
    decisive.push_back({{"number", entry.number}, {"correlation", entry.correlation}});
  }
  const std::string leader = first_leads ? plan.name : other.name;
  const std::string loser = first_leads ? other.name : plan.name;
  std::string text = fmt::format("  {} beats {} in {:.0f}% of draws.\n", leader, loser, 100 * wins);
  text += fmt::format("  {} takes {}, {} {}: {} by the numbers as they stand, {} to {} (5% to 95%) of the latter.\n",
                      plan.name, to_text(found.first), other.name, to_text(found.second), change_text(-found.faster),
                      change_text(-found.faster_high), change_text(-found.faster_low));
  constexpr double settled = 0.99;  // and more: no measurement would turn it
  if (found.decisive.empty()) {
    text += "  No number that the machine leaves open decides between them.\n";
  } else if (wins < settled) {
    text += fmt::format("  Measure {} to decide: its draws go with the difference (correlation {:+.2f}).\n",
                        found.decisive.front().number, found.decisive.front().correlation);
  }
  text += fmt::format("  {}{}\n", draws_text(options),
                      found.same_machine ? "; both plans see the same ones"
                                         : "; the plans' machines have other names, so theirs are independent");
  return {.json = {{"against",
                    {{"name", other.name},
                     {"draws", options.draws},
                     {"seed", options.seed},
                     {"path_s", found.first.value},
                     {"other_path_s", found.second.value},
                     {"wins_fraction", found.first_wins},
                     {"shorter_fraction", found.faster},
                     {"shorter_low_fraction", found.faster_low},
                     {"shorter_high_fraction", found.faster_high},
                     {"same_machine", found.same_machine},
                     {"decisive", decisive}}}},
          .text = text};
}

}  // namespace plumb::sim

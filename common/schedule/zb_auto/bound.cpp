#include <algorithm>
#include <queue>

#include "common/schedule/zb_auto/search.hpp"

namespace plumb {
namespace zb_auto {
namespace {

// After how many microbatches' I, or W, an F has to wait because its rank's memory is full; 0: never.
struct Room {
  std::size_t until_input_gradient = 0;
  std::size_t until_weight_gradient = 0;
};

// Until I(s, k) no stage of the rank at or before s can have freed k or a later microbatch: n more of them are one too
// many if n+1 do not fit. Until W(s, k) each of the n before F's keeps the smaller of its two amounts at least.
Room room_of(const Model& model, std::size_t stage) {
  const std::size_t rank = model.rank_of_stage[stage];
  std::int64_t up_to_here = 0;
  for (const std::size_t s : model.stages_of_rank[rank]) {
    if (s <= stage) up_to_here += model.change[step_of(s, Part::forward)];
  }
  const std::int64_t kept = model.change[step_of(stage, Part::forward)];
  const std::int64_t least = std::min(kept, -model.change[step_of(stage, Part::weight_gradient)]);
  const std::int64_t limit = model.limit[rank];
  Room room;
  if (up_to_here > 0) room.until_input_gradient = static_cast<std::size_t>(limit / up_to_here);
  if (least > 0) room.until_weight_gradient = static_cast<std::size_t>((limit - up_to_here) / least + 1);
  return room;
}

// An arc from the end of one action to the start of another.
struct Arc {
  std::size_t from;
  std::size_t to;
  double lag;
};

// All that must lie between actions whatever the ranks' lists are, ascending by the microbatch of `to`, and within it
// F of all stages, I of all stages backwards, W.
std::vector<Arc> necessary_arcs(const Model& model) {
  std::vector<Room> rooms;
  for (std::size_t s = 0; s < model.stages; ++s) rooms.push_back(room_of(model, s));
  std::vector<Arc> arcs;
  const auto add = [&](Step step, std::size_t k) {
    const std::size_t to = model.action(step, k);
    if (k > 0) arcs.push_back({model.action(step, k - 1), to, 0});
    if (model.before[step] != no_step) arcs.push_back({model.action(model.before[step], k), to, model.lag[step]});
    if (part_of(step) != Part::forward) return;
    const Room& room = rooms[stage_of(step)];
    const auto wait_for = [&](Part part, std::size_t ahead) {
      if (ahead > 0 && k >= ahead) arcs.push_back({model.action(step_of(stage_of(step), part), k - ahead), to, 0});
    };
    wait_for(Part::input_gradient, room.until_input_gradient);
    wait_for(Part::weight_gradient, room.until_weight_gradient);
  };
  for (std::size_t k = 0; k < model.microbatches; ++k) {
    for (std::size_t s = 0; s < model.stages; ++s) add(step_of(s, Part::forward), k);
    for (std::size_t s = model.stages; s-- > 0;) add(step_of(s, Part::input_gradient), k);
    for (std::size_t s = 0; s < model.stages; ++s) add(step_of(s, Part::weight_gradient), k);
  }
  return arcs;
}

struct Job {
  double head;  // earliest start
  double time;
  double tail;  // what must follow its end
};

// One machine that may interrupt its jobs: always the one with the longest tail (Jackson's preemptive schedule).
double preemptive_makespan(std::vector<Job>& jobs) {
  std::ranges::sort(jobs, {}, &Job::head);
  const auto shorter_tail = [](const Job& a, const Job& b) { return a.tail < b.tail; };
  std::priority_queue<Job, std::vector<Job>, decltype(shorter_tail)> ready(shorter_tail);
  double now = 0;
  double makespan = 0;
  for (std::size_t next = 0; next < jobs.size() || !ready.empty();) {
    if (ready.empty()) now = std::max(now, jobs[next].head);
    while (next < jobs.size() && jobs[next].head <= now) ready.push(jobs[next++]);
    Job job = ready.top();
    ready.pop();
    const double pause = next < jobs.size() ? jobs[next].head : never;
    if (now + job.time <= pause) {
      now += job.time;
      makespan = std::max(makespan, now + job.tail);
    } else {
      job.time -= pause - now;
      now = pause;
      ready.push(job);
    }
  }
  return makespan;
}

// The rank's limit over time must hold what every microbatch keeps, from the rank's first F to its last W.
double area_bound(const Model& model, std::size_t rank, const std::vector<double>& heads) {
  const auto& stages = model.stages_of_rank[rank];
  if (stages.empty() || model.limit[rank] <= 0) return 0;
  double area = 0;
  for (const std::size_t s : stages) {
    double until_input_gradient = model.seconds[step_of(s, Part::forward)];
    for (std::size_t t = s + 1; t < model.stages; ++t) {
      const Step f = step_of(t, Part::forward);
      const Step i = step_of(t - 1, Part::input_gradient);
      until_input_gradient +=
          model.seconds[f] + model.lag[f] + model.seconds[step_of(t, Part::input_gradient)] + model.lag[i];
    }
    until_input_gradient += model.seconds[step_of(s, Part::input_gradient)];
    const Step w = step_of(s, Part::weight_gradient);
    area += static_cast<double>(model.change[step_of(s, Part::forward)]) * until_input_gradient -
            static_cast<double>(model.change[w]) * model.seconds[w];
  }
  return heads[model.action(step_of(stages.front(), Part::forward), 0)] +
         area * static_cast<double>(model.microbatches) / static_cast<double>(model.limit[rank]);
}

}  // namespace

double bound(const Model& model) {
  const std::vector<Arc> arcs = necessary_arcs(model);
  std::vector<double> heads(model.actions(), 0);
  std::vector<double> tails(model.actions(), 0);
  const auto seconds = [&](std::size_t action) { return model.seconds[action / model.microbatches]; };
  for (const Arc& arc : arcs) heads[arc.to] = std::max(heads[arc.to], heads[arc.from] + seconds(arc.from) + arc.lag);
  for (auto arc = arcs.rbegin(); arc != arcs.rend(); ++arc) {
    tails[arc->from] = std::max(tails[arc->from], arc->lag + seconds(arc->to) + tails[arc->to]);
  }
  double longest = 0;
  for (std::size_t r = 0; r < model.ranks; ++r) {
    std::vector<Job> jobs;
    for (const std::size_t s : model.stages_of_rank[r]) {
      for (std::size_t action = model.action(step_of(s, Part::forward), 0);
           action < model.action(step_of(s + 1, Part::forward), 0); ++action) {
        jobs.push_back({heads[action], seconds(action), tails[action]});
      }
    }
    longest = std::max({longest, preemptive_makespan(jobs), area_bound(model, r, heads)});
  }
  return longest;
}

}  // namespace zb_auto

Seconds zb_auto_bound(const AutoProblem& problem) { return {zb_auto::bound(zb_auto::model_of(problem))}; }

}  // namespace plumb

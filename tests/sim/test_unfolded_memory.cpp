// The memory that simulating all ranks takes of a process, against what is told before.
#include "common/planner/unfolded_memory.hpp"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "common/planner/unfolded.hpp"
#include "sim/predict.hpp"
#include "tests/catch.hpp"
#include "tests/common/plan/layouts.hpp"

using namespace plumb;
using namespace plumb::testing;

#ifndef PLUMB_ADDRESS_SANITIZER  // which keeps what is freed
namespace {

// Of this process now.
double resident() {
  std::ifstream file("/proc/self/statm");
  double all = 0;
  double pages = 0;
  file >> all >> pages;
  return pages * static_cast<double>(::sysconf(_SC_PAGESIZE));
}

// By how much a process of its own gets larger, at most, while it predicts.
double measured(const Plan& plan, const std::string& engine) {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    double more = -resident();
    const bool told = !sim::predict_unfolded(plan, engine).steps.empty();
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    constexpr double kibibyte = 1024;
    more += static_cast<double>(usage.ru_maxrss) * kibibyte;
    const bool written = told && ::write(ends[1], &more, sizeof more) == sizeof more;
    ::_exit(written ? 0 : 1);
  }
  double more = 0;
  ::close(ends[1]);
  const bool read = ::read(ends[0], &more, sizeof more) == sizeof more;
  ::close(ends[0]);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE((read && status == 0));
  return more;
}

}  // namespace

// From 50 to 120 MB, of tensor groups' collectives or of the messages and events of ranks alone: what else a process
// takes is less than a tenth of that.
TEST_CASE("simulating all ranks takes the memory that was told before, to 30%") {
  const std::vector<LayoutCase> cases{
      {.nodes = 8, .pipeline = 4, .tensor = 4, .data = 4, .sequence_parallel = true, .recompute = "full", .batch = 200},
      {.nodes = 16, .pipeline = 8, .tensor = 1, .data = 16, .batch = 600},
      {.nodes = 32, .pipeline = 4, .tensor = 8, .data = 8, .sequence_parallel = true, .batch = 160}};
  for (const LayoutCase& c : cases) {
    for (const char* engine : {"path", "simgrid"}) {
      const Plan plan = plan_of(c);
      const ScheduleGraph folded = build_graph(lowered_schedule(plan), plan.costs);
      const UnfoldedSize size = unfolded_size(folded, plan.costs, plan.layout, unfolding_details(plan));
      const auto told = static_cast<double>(unfolded_memory(plan, folded, size).value);
      CAPTURE(c.nodes, engine, told);
      const double taken = measured(plan, engine);
      CAPTURE(taken);
      CHECK(told >= 0.7 * taken);
      CHECK(told <= 1.3 * taken);
    }
  }
}
#endif

#include "sim/simgrid_engine.hpp"

#include <array>
#include <csignal>
#include <string>

namespace plumb::sim {
namespace {

// SimGrid keeps its options and signals for the life of the process: both are set once, with the first engine.
// CM02 without cross traffic and without TCP's window is exact; see tests/sim/test_simgrid_quirks.cpp for each option.
void configure_once(s4u::Engine& engine) {
  static bool configured = false;
  if (configured) return;
  configured = true;
  engine.set_config("network/model:CM02");
  engine.set_config("network/crosstraffic:no");
  engine.set_config("network/TCP-gamma:0");
}

}  // namespace

std::unique_ptr<s4u::Engine> new_engine() {
  static std::string name = "plumb";
  static char* arguments[] = {name.data(), nullptr};
  int count = 1;
  xbt_log_control_set("xbt_cfg.thres:warning");
  // It takes Ctrl-C and faults for itself, to print its state and to end with a status that is not ours.
  const std::array<int, 2> taken = {SIGINT, SIGSEGV};
  std::array<struct sigaction, 2> before = {};
  for (std::size_t i = 0; i < taken.size(); ++i) ::sigaction(taken[i], nullptr, &before[i]);
  auto engine = std::make_unique<s4u::Engine>(&count, arguments);
  for (std::size_t i = 0; i < taken.size(); ++i) ::sigaction(taken[i], &before[i], nullptr);
  configure_once(*engine);
  return engine;
}

}  // namespace plumb::sim

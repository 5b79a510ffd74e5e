// What goes wrong with an order of launches under NCCL's rules: brute force, independent of how orders are made.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/layout/layout.hpp"
#include "exec/transport/launch_plan/group_calls.hpp"
#include "exec/transport/launch_plan/launch_plan.hpp"

namespace plumb::exec {

// How a device works off what is launched.
enum class StreamOrder : std::uint8_t {
  concurrent,  // each stream on its own
  serial,      // all of a rank's work in the order of launch (CUDA_DEVICE_MAX_CONNECTIONS=1 in the worst case)
};

// In words, one line each; empty: nothing can. The rules: operations on a communicator follow each other; the k-th send
// to a peer pairs with the peer's k-th receive, whatever they are meant to be; a send may wait for its receive to
// start; a batch ends as one; compute waits for what it received, a send for what it sends. Reported: operations
// missing, twice or in the wrong place of the host's order, pairs whose ends do not belong together, and circles of
// waits, batch by batch. Of one pipeline.
[[nodiscard]] std::vector<std::string> check_launches(const Schedule& lowered, const LaunchPlan& plan,
                                                      StreamOrder order);

// The same of a whole layout, `plan` by rank of the run. More rules: the k-th collective of a communicator's ranks is
// one, whatever each of them means by it, and waits for all of them to start; its action's compute goes on when it has
// ended, and that of a sum beside compute meanwhile, until its stage's REDUCE_GRAD. `calls`, by rank of the run: what
// each action is to make. Reported, too: what an action makes else, and collectives whose ranks do not mean the same.
[[nodiscard]] std::vector<std::string> check_launches(const Schedule& lowered, const Layout& layout,
                                                      const std::vector<RankCalls>& calls, const LaunchPlan& plan,
                                                      StreamOrder order);

}  // namespace plumb::exec

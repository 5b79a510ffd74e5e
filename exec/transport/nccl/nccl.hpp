// Ranks with a GPU each that talk through NCCL, called directly: messages move on streams, planned before the run.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "exec/device/device.hpp"
#include "exec/transport/launch_plan/communicators.hpp"
#include "exec/transport/launch_plan/launch_plan.hpp"
#include "exec/transport/rendezvous.hpp"
#include "exec/transport/transport.hpp"

namespace plumb::exec {

struct NcclOptions {
  std::vector<CommunicatorSpec> communicators = {};  // of the run, the same list on all ranks (plan_communicators)
  std::vector<std::size_t> message_bytes = {};  // that messages between stages may have: NCCL notices no difference
  Seconds start_timeout{60};                    // for each communicator to be complete
  std::string library_file = {};                // libnccl; empty: searched (load_nccl)
};

struct NcclFound {
  std::string version;          // "2.30.4"
  std::string file;             // as the loader found it
  bool shares_devices = false;  // several ranks may have one GPU: it can, and NCCL_MULTI_RANK_GPU_ENABLE=1 says so
};

// Throws InputError (where = "--transport") in one line with a hint when `nccl` cannot be used here: not built, no
// library, too old.
NcclFound require_nccl(const std::string& library_file = "");

// Makes all communicators that this rank is a member of, in the order of the list, and waits until they are complete.
// `control` carries what is not payload (barrier, gather, stops, signs of life) and decides rank and size; `device`
// must outlive the transport. One thread uses it: the one that launches all work of the rank. Messages go to ranks of
// the step's lane alone. On failure or a stop all communicators are aborted, so that what spins on the device ends. Of
// parcels the sizes go ahead over `control`, and the host that launches a receive waits for them; they need the
// communicator of evictions. Throws InputError as require_nccl, RunError naming communicator and the ranks that have
// not come.
[[nodiscard]] std::unique_ptr<Transport> make_nccl_transport(const NcclOptions& options,
                                                             std::unique_ptr<Transport> control, Device& device,
                                                             const Rendezvous& rendezvous);

}  // namespace plumb::exec

// Where NCCL's header was not found: the transport is refused by its name.
#include "common/base/error.hpp"
#include "exec/transport/nccl/nccl.hpp"

namespace plumb::exec {

NcclFound require_nccl(const std::string& /*library_file*/) {
  throw InputError("--transport", "'nccl' is not in this plumb-exec: it was built where there is no nccl.h",
                   "./bootstrap --cuda, or configure with -DNCCL_INCLUDE_DIR=FOLDER");
}

std::unique_ptr<Transport> make_nccl_transport(const NcclOptions& options, std::unique_ptr<Transport> /*control*/,
                                               Device& /*device*/, const Rendezvous& /*rendezvous*/) {
  (void)require_nccl(options.library_file);
  return nullptr;
}

}  // namespace plumb::exec

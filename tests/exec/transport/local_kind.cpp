#include "exec/transport/local/local.hpp"
#include "tests/exec/transport/transports.hpp"

namespace plumb::exec {

std::vector<TransportKind> transport_kinds() { return {{"local", make_local_transports}}; }

}  // namespace plumb::exec

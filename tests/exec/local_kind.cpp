#include "exec/transport/local.hpp"
#include "tests/exec/transports.hpp"

namespace plumb::exec {

std::vector<TransportKind> transport_kinds() { return {{"local", make_local_transports}}; }

}  // namespace plumb::exec

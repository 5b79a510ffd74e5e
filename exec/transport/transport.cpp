#include "exec/transport/transport.hpp"

#include <string>

namespace plumb::exec {

MomentPtr Transport::collective(const CollectiveCall& /*call*/) {
  throw RunError("rank " + std::to_string(rank()), "this transport has no streams, so no collectives on them");
}

}  // namespace plumb::exec

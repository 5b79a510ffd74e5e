// Named gradients as bytes, for Transport::gather.
#pragma once

#include <string>
#include <string_view>

#include "exec/stage/factory.hpp"

namespace plumb::exec {

[[nodiscard]] std::string to_bytes(const NamedGradients& gradients);

// Adds what `bytes` holds; a name that is there already keeps its first values. The first name of which there are other
// bits already, or nothing. Throws RunError when it is cut short.
[[nodiscard]] std::string add_from_bytes(std::string_view bytes, NamedGradients& gradients);

}  // namespace plumb::exec

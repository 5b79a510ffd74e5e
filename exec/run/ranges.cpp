#include "exec/run/ranges.hpp"

#ifdef PLUMB_NVTX
#include <nvtx3/nvToolsExt.h>
#endif

namespace plumb::exec {

#ifdef PLUMB_NVTX
Range::Range(const Action& action) { ::nvtxRangePushA(("PP:" + to_string(action)).c_str()); }
Range::~Range() { ::nvtxRangePop(); }
#else
Range::Range(const Action& /*action*/) {}
Range::~Range() = default;
#endif

}  // namespace plumb::exec

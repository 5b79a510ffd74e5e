#include "common/cost/software.hpp"

namespace plumb {

std::string describe(const Software& software) { return software.name + (is_stated(software) ? "" : " (not stated)"); }

}  // namespace plumb

#include "common/cost/software.hpp"

namespace plumb {

std::string describe(const Software& software) {
  if (is_stated(software)) return software.name;
  return "not stated, " + software.name + (software.data_overlap ? " with data_overlap" : "") + " is assumed";
}

}  // namespace plumb

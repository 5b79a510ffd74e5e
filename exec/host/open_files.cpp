#include "exec/host/open_files.hpp"

#include <fmt/format.h>
#include <sys/resource.h>

#include "common/base/error.hpp"

namespace plumb::exec {

std::optional<std::int64_t> raise_open_files() {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return std::nullopt;
  rlimit raised = limit;
  raised.rlim_cur = limit.rlim_max;
  // Of an endless hard limit the kernel refuses what is beyond fs.nr_open: the soft one then stays.
  if (::setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  if (limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return static_cast<std::int64_t>(limit.rlim_cur);
}

void require_open_files(const std::string& where, const std::string& what, std::int64_t needed) {
  const std::optional<std::int64_t> there = raise_open_files();
  if (!there || needed <= *there) return;
  throw InputError(where, fmt::format("{} may need {} open files, and this process may have {}", what, needed, *there),
                   fmt::format("ulimit -n {}, or a plan with fewer ranks, or --transport local", needed));
}

}  // namespace plumb::exec

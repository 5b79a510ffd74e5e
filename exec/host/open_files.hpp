// How many files, sockets among them, this process may have open at once.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace plumb::exec {

// Raises the limit that this process and those it starts have to what the system lets it have (RLIMIT_NOFILE: the soft
// to the hard one), as servers do: the soft one is small for programs that call select(). The limit; none: unlimited,
// or nobody knows.
std::optional<std::int64_t> raise_open_files();

// Throws InputError in one line where `what` ("rank 0") of `where` needs more than there may be.
void require_open_files(const std::string& where, const std::string& what, std::int64_t needed);

}  // namespace plumb::exec

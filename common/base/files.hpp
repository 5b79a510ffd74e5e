// Reading and writing whole files; a reader never sees half of a written one.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace plumb {

// Stands for standard input where a file is read, and for standard output where one is written.
inline constexpr const char* standard_stream = "-";

// Returns the content of `path`; standard input is read once and kept. Throws InputError if the file is missing, a
// folder or unreadable, or a pipe or device that has not ended after 1 GiB.
[[nodiscard]] std::string read_file(const std::filesystem::path& path);

// Writes to a temporary name beside a new or regular file (the one behind a link), flushes to disk and renames; devices
// and pipes are written to as they are. Throws InputError when the folder does not exist or may not be written,
// RunError when the disk is full; leaves no temporary file behind in either case.
void write_file(const std::filesystem::path& name, std::string_view content);

// Throws the InputError of `write_file` now, for work that takes long before it writes; also if it would replace one of
// the files that are read. Empty names among `inputs` are none.
void require_writable(const std::filesystem::path& name, const std::vector<std::string>& inputs = {});

}  // namespace plumb

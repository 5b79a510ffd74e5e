// Timelines as Chrome trace JSON, which Perfetto opens as it is.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "common/timeline/timeline.hpp"

namespace plumb {

// One process per rank, one track per stream; names as torch.distributed.pipelining writes them (PP:{stage}{F}{mb}).
// All that plumb needs to read it back stands in `args` and in one `plumb` object. Same timeline, same bytes.
[[nodiscard]] std::string to_trace(const Timeline& timeline);

// As a timeline and the answers of the programs have it; `tensor_time_s` and `data_time_s` (exposed within actions),
// `tensor_hidden_s` and `data_hidden_s` where they are known.
[[nodiscard]] nlohmann::ordered_json to_json(const AxisTraffic& traffic);

// Throws InputError (file, position, what was expected) for anything that to_trace did not write.
[[nodiscard]] Timeline read_timeline(const std::filesystem::path& path);

}  // namespace plumb

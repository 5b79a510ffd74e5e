// Operations of a group of ranks, as NCCL and MPI name them.
#pragma once

#include <cstdint>
#include <string_view>

namespace plumb {

enum class Collective : std::uint8_t { all_reduce, all_gather, reduce_scatter, all_to_all };

// "all-reduce".
[[nodiscard]] constexpr std::string_view name_of(Collective collective) {
  switch (collective) {
    case Collective::all_reduce:
      return "all-reduce";
    case Collective::all_gather:
      return "all-gather";
    case Collective::reduce_scatter:
      return "reduce-scatter";
    case Collective::all_to_all:
      return "all-to-all";
  }
  return "";
}

}  // namespace plumb

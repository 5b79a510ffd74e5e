#include "exec/commands/rates_text.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace plumb::exec {

using nlohmann::ordered_json;

Table rates_table(const std::vector<MeasuredRate>& rates) {
  Table table{.header = {"operation", "ranks", "latency", "bandwidth", "largest", "took"}, .rows = {}};
  for (const MeasuredRate& rate : rates) {
    const RateSample largest = rate.samples.empty() ? RateSample{} : rate.samples.back();
    table.rows.push_back({rate.operation, std::to_string(rate.ranks), to_text(rate.cost.latency),
                          fmt::format("{:.1f} GB/s", rate.cost.bandwidth.value * 1e-9), to_text(largest.bytes),
                          to_text(largest.time)});
  }
  return table;
}

ordered_json rates_json(const std::vector<MeasuredRate>& rates) {
  ordered_json all = ordered_json::array();
  for (const MeasuredRate& rate : rates) {
    ordered_json one{{"operation", rate.operation},
                     {"ranks", rate.ranks},
                     {"latency_s", rate.cost.latency.value},
                     {"bandwidth_bytes_per_s", rate.cost.bandwidth.value},
                     {"samples", ordered_json::array()}};
    for (const RateSample& sample : rate.samples) {
      one["samples"].push_back({{"bytes", sample.bytes.value}, {"time_s", sample.time.value}});
    }
    all.push_back(std::move(one));
  }
  return all;
}

}  // namespace plumb::exec

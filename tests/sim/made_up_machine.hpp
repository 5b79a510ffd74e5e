// A machine with made-up numbers, as YAML, for scenarios whose machine none of the known ones is.
#pragma once

#include <string>

namespace plumb::tests {

// `shape`: its name, devices and what else it has. Any number that every machine must have stands here.
inline std::string made_up_machine(const std::string& shape, const std::string& outside_bandwidth) {
  return "{" + shape + R"(,
  device: {name: made up, type: cuda, peak: {bf16: {value: 100 TFLOP/s, source: made up}},
    matmul_efficiency: {value: 0.8, source: made up}, memory_bandwidth: {value: 900 GB/s, source: made up},
    memory_efficiency: {value: 0.8, source: made up}, attention_efficiency: {value: 0.5, source: made up},
    multiprocessors: 82, matmul_depth: {value: 100, source: made up}, kernel_gap: {value: 2 us, source: made up},
    launch_time: {value: 5 us, source: made up}, message_multiprocessors: {value: 4, source: made up},
    memory: {value: 24 GB, source: made up}, framework_memory: {value: 0 GB, source: made up}},
  collective_bandwidth: {value: 20 GB/s, source: made up}, collective_latency: {value: 20 us, source: made up},
  collective_latency_per_rank: {value: 2 us, source: made up},
  inside: {latency: {value: 20 us, source: made up}, bandwidth: {value: 20 GB/s, source: made up}},
  outside: {latency: {value: 30 us, source: made up}, bandwidth: {value: )" +
         outside_bandwidth + ", source: made up}}}";
}

}  // namespace plumb::tests

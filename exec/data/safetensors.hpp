// The safetensors format: 8 bytes with the header's length, the header as JSON, the tensors' bytes.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/base/units.hpp"

namespace plumb::exec {

struct NamedTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::vector<float> values;  // row by row
};

// By name, each as `type` (fp32 or bf16), little endian, as the format's own description says
// (https://github.com/huggingface/safetensors, "Format"); `metadata` stands in the header. Deterministic. Throws
// RunError for a tensor whose values are not as many as its shape says.
[[nodiscard]] std::string to_safetensors(std::vector<NamedTensor> tensors, ElementType type,
                                         const std::map<std::string, std::string>& metadata);

}  // namespace plumb::exec

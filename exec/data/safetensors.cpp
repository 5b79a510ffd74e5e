#include "exec/data/safetensors.hpp"

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>

#include "common/base/error.hpp"
#include "kernels/device/numbers.hpp"

namespace plumb::exec {
namespace {

void put(std::string& text, std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) text.push_back(static_cast<char>(value >> (8 * i) & 0xff));
}

std::size_t count(const NamedTensor& tensor) {
  std::size_t product = 1;
  for (const std::int64_t extent : tensor.shape) product *= static_cast<std::size_t>(extent);
  return product;
}

}  // namespace

std::string to_safetensors(std::vector<NamedTensor> tensors, ElementType type,
                           const std::map<std::string, std::string>& metadata) {
  std::ranges::sort(tensors, {}, &NamedTensor::name);
  const bool narrow = type == ElementType::bf16;
  const std::size_t width = narrow ? 2 : 4;
  nlohmann::ordered_json header;
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::size_t end = 0;
  for (const NamedTensor& tensor : tensors) {
    if (count(tensor) != tensor.values.size()) {
      throw RunError(tensor.name, "has " + std::to_string(tensor.values.size()) + " values, its shape " +
                                      std::to_string(count(tensor)));
    }
    const std::size_t begin = end;
    end += width * tensor.values.size();
    header[tensor.name] = {{"dtype", narrow ? "BF16" : "F32"}, {"shape", tensor.shape}, {"data_offsets", {begin, end}}};
  }
  std::string json = header.dump();
  while (json.size() % 8 != 0) json.push_back(' ');  // so that the tensors are aligned
  std::string text;
  text.reserve(8 + json.size() + end);
  put(text, json.size(), 8);
  text += json;
  for (const NamedTensor& tensor : tensors) {
    for (const float value : tensor.values) {
      put(text, narrow ? kernels::bf16_bits(value) : std::bit_cast<std::uint32_t>(value), static_cast<int>(width));
    }
  }
  return text;
}

}  // namespace plumb::exec

// The safetensors format: 8 bytes with the header's length, the header as JSON, the tensors' bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "common/base/units.hpp"

namespace plumb::exec {

// As messages have it: "[4, 16]".
[[nodiscard]] std::string shape_text(const std::vector<std::int64_t>& shape);

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

// What a file says of a tensor before its values.
struct TensorHead {
  std::string name;
  std::vector<std::int64_t> shape;
  ElementType type = ElementType::fp32;  // or bf16
};

// What a file begins with: length and header, padded so that the tensors are aligned. They follow in the order of the
// list, without gaps.
[[nodiscard]] std::string safetensors_head(const std::vector<TensorHead>& tensors,
                                           const std::map<std::string, std::string>& metadata);

// `values` as a file of `type` (fp32 or bf16, rounded to nearest even) has them; `out` is as long as that.
void put_values(ElementType type, std::span<const float> values, std::span<std::byte> out);

// Writes such a file piece by piece, so that its values need not stand in memory at once.
class SafetensorsWriter {
 public:
  // Makes the file new. Throws InputError where it cannot be made.
  SafetensorsWriter(std::filesystem::path path, const std::vector<TensorHead>& tensors,
                    const std::map<std::string, std::string>& metadata);
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;
  ~SafetensorsWriter();  // without `finish` the file is removed

  // The next bytes of the tensors, in the order of the list. Throws RunError with the system's own words, as where the
  // disk is full.
  void write(std::span<const std::byte> bytes);

  // Flushes it to the disk. Throws RunError as `write`, and if there are fewer or more bytes than the tensors have.
  void finish();

  [[nodiscard]] std::int64_t bytes() const { return written_; }  // of the file, its head too

 private:
  [[noreturn]] void fail(int error) const;

  std::filesystem::path path_;
  int file_ = -1;
  std::int64_t written_ = 0;
  std::int64_t whole_ = 0;  // bytes that it is to have
};

}  // namespace plumb::exec

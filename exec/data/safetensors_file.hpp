// Reads safetensors files: which tensors there are, and any range of their elements, without reading the rest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace plumb::exec {

struct StoredTensor {
  std::string name;
  std::string type;  // as the file names it: "F32", "BF16", "F16", "I64" …
  std::vector<std::int64_t> shape;
  std::int64_t elements = 0;
  std::int64_t element_bytes = 0;
  std::int64_t begin = 0;  // where its values begin, in bytes from the begin of the file
  bool operator==(const StoredTensor&) const = default;
};

struct SafetensorsHeader {
  std::map<std::string, StoredTensor> tensors;
  std::map<std::string, std::string> metadata;
};

// The JSON of a file's header, behind which `data_bytes` follow; `file` names it in errors. All is checked: the JSON
// and its depth, names that stand twice, types, shapes whose product fits, places that lie within the file, do not
// overlap and leave nothing out (the format's own rules). Throws InputError that names the tensor.
[[nodiscard]] SafetensorsHeader parse_safetensors_header(std::string_view json, std::int64_t data_bytes,
                                                         const std::string& file);

// The values of a tensor of type F32, BF16 or F16, which fp32 has exactly; `bytes` as they stand in the file. Throws
// InputError for another type.
void take_values(const std::string& type, std::span<const std::byte> bytes, std::span<float> values);

// An open file. Only what is asked for is read, so memory stays small. Files come from others: nothing in them is
// believed unchecked. Calls of `read` may come from several threads.
class SafetensorsFile {
 public:
  // Reads the header alone, of at most 100 MB as in the format's own reader. Throws InputError, naming the file: it is
  // not there, not a file, cannot be read, is cut short or is no such file.
  explicit SafetensorsFile(std::filesystem::path path);
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;
  ~SafetensorsFile();

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }
  [[nodiscard]] const std::map<std::string, StoredTensor>& tensors() const { return header_.tensors; }
  [[nodiscard]] const std::map<std::string, std::string>& metadata() const { return header_.metadata; }

  // Throws InputError, with what is near, if there is none of this name.
  [[nodiscard]] const StoredTensor& at(const std::string& name) const;

  // As many elements as there is room for, from element `first` on, row by row. Throws InputError for a type that is
  // not read, a range that the tensor does not have, and a file that has become shorter since it was opened.
  void read(const StoredTensor& tensor, std::int64_t first, std::span<float> values) const;
  // Throws InputError that names file, tensor and element unless all these values of it, from element `first` on, are
  // finite: what is computed of others is no number, whatever the learning rate.
  void require_finite(const StoredTensor& tensor, std::int64_t first, std::span<const float> values,
                      const std::string& hint) const;
  // The same as bytes of the file, of any type.
  void read_bytes(const StoredTensor& tensor, std::int64_t first, std::span<std::byte> bytes) const;

 private:
  std::filesystem::path path_;
  int file_ = -1;
  std::int64_t bytes_ = 0;
  SafetensorsHeader header_;
};

}  // namespace plumb::exec

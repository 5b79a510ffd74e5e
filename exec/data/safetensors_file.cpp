#include "exec/data/safetensors_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <utility>

#include "common/base/error.hpp"
#include "common/base/excerpt.hpp"
#include "kernels/device/numbers.hpp"

namespace plumb::exec {
namespace {

constexpr std::int64_t longest_header = 100'000'000;  // as in the format's own reader
constexpr std::size_t length_bytes = 8;
constexpr std::size_t read_at_once = std::size_t{1} << 20;  // of values that are turned into fp32

static_assert(std::endian::native == std::endian::little, "values are taken as the file has them");

// Throws InputError for a file that ends before.
void read_all(int file, std::int64_t at, std::span<std::byte> bytes, const std::filesystem::path& path) {
  while (!bytes.empty()) {
    const ssize_t got = ::pread(file, bytes.data(), bytes.size(), at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw InputError(path.string(), std::string("cannot be read: ") + std::strerror(errno));
    if (got == 0) throw InputError(path.string(), "ends at byte " + std::to_string(at) + ", before it is complete");
    bytes = bytes.subspan(static_cast<std::size_t>(got));
    at += got;
  }
}

std::uint16_t half(std::span<const std::byte> bytes, std::size_t index) {
  std::uint16_t bits = 0;
  std::memcpy(&bits, bytes.data() + index * sizeof bits, sizeof bits);
  return bits;
}

}  // namespace

void take_values(const std::string& type, std::span<const std::byte> bytes, std::span<float> values) {
  if (type == "F32") {
    std::memcpy(values.data(), bytes.data(), values.size_bytes());
  } else if (type == "BF16") {
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = kernels::from_bf16_bits(half(bytes, i));
  } else if (type == "F16") {
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = kernels::from_fp16_bits(half(bytes, i));
  } else {
    throw InputError("dtype", "'" + type + "' is not read as weights", "one of: F32, BF16, F16");
  }
}

SafetensorsFile::SafetensorsFile(std::filesystem::path path) : path_(std::move(path)) {
  // Not to wait for a pipe's writer.
  file_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file_ < 0) throw InputError(path_.string(), std::string("cannot be read: ") + std::strerror(errno));
  try {
    struct stat found = {};
    if (::fstat(file_, &found) != 0 || !S_ISREG(found.st_mode)) {
      throw InputError(path_.string(), "is no file, expected a safetensors file");
    }
    bytes_ = found.st_size;
    const auto behind_length = bytes_ - static_cast<std::int64_t>(length_bytes);
    if (behind_length < 0) throw InputError(path_.string(), "is too short for a safetensors file");
    std::uint64_t length = 0;
    read_all(file_, 0, std::as_writable_bytes(std::span(&length, 1)), path_);
    if (length > static_cast<std::uint64_t>(std::min(behind_length, longest_header))) {
      throw InputError(
          path_.string(),
          "says that its header has " + std::to_string(length) + " bytes, and the file has " + std::to_string(bytes_),
          "it is cut short, or no safetensors file");
    }
    std::string json(length, '\0');
    read_all(file_, length_bytes, std::as_writable_bytes(std::span(json)), path_);
    const std::int64_t before_data = static_cast<std::int64_t>(length_bytes + length);
    header_ = parse_safetensors_header(json, bytes_ - before_data, path_.string());
    for (auto& [name, tensor] : header_.tensors) tensor.begin += before_data;
  } catch (const Error&) {
    ::close(file_);
    throw;
  }
}

SafetensorsFile::~SafetensorsFile() { ::close(file_); }

const StoredTensor& SafetensorsFile::at(const std::string& name) const {
  const auto found = header_.tensors.find(name);
  if (found != header_.tensors.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [known, tensor] : header_.tensors) names.push_back(known);
  const auto near = nearest_word(name, names);
  throw InputError(path_.string(), "has no tensor '" + excerpt(name) + "'",
                   near ? "did you mean '" + names[*near] + "'?" : "");
}

void SafetensorsFile::require_finite(const StoredTensor& tensor, std::int64_t first, std::span<const float> values,
                                     const std::string& hint) const {
  const auto lost = std::ranges::find_if(values, [](float value) { return !std::isfinite(value); });
  if (lost == values.end()) return;
  throw InputError(path_.string() + ": tensor '" + excerpt(tensor.name) + "'",
                   std::string("is ") + (std::isnan(*lost) ? "no number" : "infinite") + " at element " +
                       std::to_string(first + (lost - values.begin())) + ", expected finite numbers",
                   hint);
}

void SafetensorsFile::read_bytes(const StoredTensor& tensor, std::int64_t first, std::span<std::byte> bytes) const {
  const auto count = static_cast<std::int64_t>(bytes.size()) / tensor.element_bytes;
  if (first < 0 || count > tensor.elements || first > tensor.elements - count) {
    throw InputError(path_.string() + ": tensor '" + excerpt(tensor.name) + "'",
                     "has " + std::to_string(tensor.elements) + " elements, and " + std::to_string(count) + " from " +
                         std::to_string(first) + " on were asked for");
  }
  read_all(file_, tensor.begin + first * tensor.element_bytes, bytes, path_);
}

void SafetensorsFile::read(const StoredTensor& tensor, std::int64_t first, std::span<float> values) const {
  const auto width = static_cast<std::size_t>(tensor.element_bytes);
  std::vector<std::byte> bytes(std::min(values.size() * width, read_at_once));
  while (!values.empty()) {
    const std::size_t count = std::min(values.size(), bytes.size() / width);
    const std::span<std::byte> here(bytes.data(), count * width);
    read_bytes(tensor, first, here);
    take_values(tensor.type, here, values.first(count));
    values = values.subspan(count);
    first += static_cast<std::int64_t>(count);
  }
}

}  // namespace plumb::exec

#include "exec/data/safetensors.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/base/error.hpp"
#include "common/model/parameters.hpp"
#include "kernels/device/numbers.hpp"

namespace plumb::exec {
namespace {

void put(std::string& text, std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) text.push_back(static_cast<char>(value >> (8 * i) & 0xff));
}

}  // namespace

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text;
  for (const std::int64_t extent : shape) text += (text.empty() ? "" : ", ") + std::to_string(extent);
  return "[" + text + "]";
}

std::string safetensors_head(const std::vector<TensorHead>& tensors,
                             const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header;
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::int64_t end = 0;
  for (const TensorHead& tensor : tensors) {
    const std::int64_t begin = end;
    end += elements_of_shape(tensor.shape) * element_bytes(tensor.type);
    header[tensor.name] = {{"dtype", tensor.type == ElementType::bf16 ? "BF16" : "F32"},
                           {"shape", tensor.shape},
                           {"data_offsets", {begin, end}}};
  }
  std::string json = header.dump();
  while (json.size() % 8 != 0) json.push_back(' ');  // so that the tensors are aligned
  std::string text;
  put(text, json.size(), 8);
  return text + json;
}

void put_values(ElementType type, std::span<const float> values, std::span<std::byte> out) {
  auto next = out.begin();
  for (const float value : values) {
    const bool narrow = type == ElementType::bf16;
    const std::uint32_t bits = narrow ? kernels::bf16_bits(value) : std::bit_cast<std::uint32_t>(value);
    for (int i = 0; i < (narrow ? 2 : 4); ++i) *next++ = static_cast<std::byte>(bits >> (8 * i) & 0xff);
  }
}

std::string to_safetensors(std::vector<NamedTensor> tensors, ElementType type,
                           const std::map<std::string, std::string>& metadata) {
  std::ranges::sort(tensors, {}, &NamedTensor::name);
  std::vector<TensorHead> heads;
  std::size_t values = 0;
  for (const NamedTensor& tensor : tensors) {
    const auto expected = static_cast<std::size_t>(elements_of_shape(tensor.shape));
    if (expected != tensor.values.size()) {
      throw RunError(tensor.name,
                     "has " + std::to_string(tensor.values.size()) + " values, its shape " + std::to_string(expected));
    }
    values += expected;
    heads.push_back({.name = tensor.name, .shape = tensor.shape, .type = type});
  }
  std::string text = safetensors_head(heads, metadata);
  std::size_t at = text.size();
  text.resize(at + values * static_cast<std::size_t>(element_bytes(type)));
  for (const NamedTensor& tensor : tensors) {
    const std::size_t size = tensor.values.size() * static_cast<std::size_t>(element_bytes(type));
    put_values(type, tensor.values, std::as_writable_bytes(std::span(text)).subspan(at, size));
    at += size;
  }
  return text;
}

SafetensorsWriter::SafetensorsWriter(std::filesystem::path path, const std::vector<TensorHead>& tensors,
                                     const std::map<std::string, std::string>& metadata)
    : path_(std::move(path)) {
  file_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file_ < 0) throw InputError(path_.string(), std::string("cannot be written: ") + std::strerror(errno));
  const std::string head = safetensors_head(tensors, metadata);
  whole_ = static_cast<std::int64_t>(head.size());
  for (const TensorHead& tensor : tensors) whole_ += elements_of_shape(tensor.shape) * element_bytes(tensor.type);
  try {
    write(std::as_bytes(std::span(head)));
  } catch (const Error&) {
    ::close(file_);
    ::unlink(path_.c_str());
    throw;
  }
}

SafetensorsWriter::~SafetensorsWriter() {
  if (file_ < 0) return;
  ::close(file_);
  ::unlink(path_.c_str());
}

void SafetensorsWriter::fail(int error) const {
  throw RunError(
      path_.string(), std::string("could not be written: ") + std::strerror(error),
      error == ENOSPC || error == EDQUOT ? "nothing of it was left behind: make room, or name another folder" : "");
}

void SafetensorsWriter::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail(errno);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
    written_ += written;
  }
}

void SafetensorsWriter::finish() {
  if (written_ != whole_) {
    throw RunError(path_.string(), "was given " + std::to_string(written_) + " bytes of " + std::to_string(whole_));
  }
  if (::fsync(file_) != 0 && errno != EINVAL) fail(errno);
  const int closed = ::close(std::exchange(file_, -1));
  if (closed == 0) return;
  const int error = errno;  // of a file system that writes late
  ::unlink(path_.c_str());
  fail(error);
}

}  // namespace plumb::exec

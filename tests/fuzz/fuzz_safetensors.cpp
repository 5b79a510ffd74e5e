// Any text is a safetensors header or refused; of what is read each tensor's bytes lie behind the header.
#include "common/base/error.hpp"
#include "exec/data/safetensors_file.hpp"
#include "tests/fuzz/fuzz.hpp"

using namespace plumb;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::int64_t data_bytes = 24;
  exec::SafetensorsHeader header;
  try {
    header = exec::parse_safetensors_header(fuzz::text_of(data, size), data_bytes, "fuzz.safetensors");
  } catch (const InputError&) {
    return 0;
  }
  std::int64_t bytes = 0;
  for (const auto& [name, tensor] : header.tensors) {
    const std::int64_t own = tensor.elements * tensor.element_bytes;
    fuzz::require(tensor.begin >= 0 && own >= 0 && tensor.begin + own <= data_bytes, "a tensor lies in its file");
    bytes += own;
  }
  fuzz::require(bytes == data_bytes, "the tensors are all that a file has");
  return 0;
}

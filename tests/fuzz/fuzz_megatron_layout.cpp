// Any text is a layout of Megatron-LM or refused; a layout survives its string.
#include "common/base/error.hpp"
#include "common/split/megatron_layout.hpp"
#include "tests/fuzz/fuzz.hpp"

using namespace plumb;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  MegatronLayout layout;
  try {
    layout = parse_megatron_layout(fuzz::text_of(data, size));
  } catch (const InputError&) {
    return 0;
  }
  const std::string text = to_megatron_layout(layout);
  fuzz::require(parse_megatron_layout(text) == layout, "a layout survives its string");
  fuzz::require(to_megatron_layout(parse_megatron_layout(text)) == text, "there is one form");
  return 0;
}

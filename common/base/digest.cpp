#include "common/base/digest.hpp"

namespace plumb {

std::uint64_t fnv1a(std::string_view bytes, std::uint64_t before) {
  for (const char byte : bytes) before = (before ^ static_cast<unsigned char>(byte)) * 0x100000001b3U;
  return before;
}

std::string digest(std::string_view text) {
  const std::uint64_t hash = fnv1a(text);
  std::string digits;
  for (int shift = 60; shift >= 0; shift -= 4) digits += "0123456789abcdef"[hash >> shift & 0xf];
  return digits;
}

}  // namespace plumb

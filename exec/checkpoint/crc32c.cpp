#include "exec/checkpoint/crc32c.hpp"

#include <array>
#include <bit>
#include <cstring>

namespace plumb::exec {
namespace {

constexpr std::uint32_t polynomial = 0x82f63b78;  // 0x1edc6f41 with its bits in reverse order
constexpr std::size_t at_once = 8;

static_assert(std::endian::native == std::endian::little, "eight bytes are taken as one number");

// tables[k][b]: what byte b comes to with k bytes of zero behind it (Kounavis and Berry 2005, "slicing by 8").
constexpr auto made_tables() {
  std::array<std::array<std::uint32_t, 256>, at_once> tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t rest = byte;
    for (int bit = 0; bit < 8; ++bit) rest = (rest >> 1) ^ ((rest & 1) != 0 ? polynomial : 0);
    tables[0][byte] = rest;
  }
  for (std::size_t behind = 1; behind < at_once; ++behind) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t before = tables[behind - 1][byte];
      tables[behind][byte] = (before >> 8) ^ tables[0][before & 0xff];
    }
  }
  return tables;
}
constexpr auto tables = made_tables();

}  // namespace

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before) {
  std::uint32_t crc = ~before;
  for (; bytes.size() >= at_once; bytes = bytes.subspan(at_once)) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data(), sizeof word);
    word ^= crc;
    crc = 0;
    for (std::size_t i = 0; i < at_once; ++i) crc ^= tables[at_once - 1 - i][word >> (8 * i) & 0xff];
  }
  for (const std::byte byte : bytes) crc = (crc >> 8) ^ tables[0][(crc ^ static_cast<std::uint32_t>(byte)) & 0xff];
  return ~crc;
}

}  // namespace plumb::exec

// CRC-32C (Castagnoli; RFC 3720, appendix B.4): what a checkpoint's index knows of the bytes of its files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace plumb::exec {

// Continued from the checksum of what stands before; of nothing it is 0.
[[nodiscard]] std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before = 0);

}  // namespace plumb::exec

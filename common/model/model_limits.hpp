// Sizes beyond which no model is meant: a slip of the pen is refused before it overflows a count. For readers of
// models.
#pragma once

#include <cstdint>

#include "common/base/error.hpp"
#include "common/model/model.hpp"

namespace plumb {

namespace limits {
inline constexpr std::int64_t hidden = 1 << 20;
inline constexpr std::int64_t heads = 1 << 16;
inline constexpr std::int64_t head_dim = 1 << 16;
inline constexpr std::int64_t width = 1 << 24;
inline constexpr std::int64_t vocabulary = 1 << 28;
inline constexpr std::int64_t positions = 1 << 30;
inline constexpr std::int64_t experts = 1 << 16;
inline constexpr std::int64_t shared_experts = 1 << 10;
inline constexpr std::int64_t kernel = 1 << 10;
inline constexpr std::int64_t chunk = 1 << 16;
inline constexpr std::int64_t expand = 64;
inline constexpr std::int64_t mtp_modules = 64;
inline constexpr int layers = 10000;
inline constexpr double parameters = 1e16;
}  // namespace limits

// Throws InputError when the model has no layers, or more layers or parameters than the limits.
void require_possible(const Model& model, const Place& place);

}  // namespace plumb

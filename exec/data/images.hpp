// Images to train on, drawn from a seed: there is no file of them.
#pragma once

#include <cstdint>
#include <span>

#include "common/model/model.hpp"

namespace plumb::exec {

// Of image `number` of a run; below vision.classes.
[[nodiscard]] std::int64_t image_label(const Vision& vision, std::uint64_t seed, std::int64_t number);

// Bytes [patches, channels, rows, columns] of that image, half of it noise of its own and half the pattern of its
// class, so that there is something to learn. The pixels are the same in whatever patches they are read.
void draw_image(const Vision& vision, std::uint64_t seed, std::int64_t number, std::span<unsigned char> out);

}  // namespace plumb::exec

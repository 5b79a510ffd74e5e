#include "exec/data/images.hpp"

namespace plumb::exec {
namespace {

// SplitMix64 (Steele, Lea and Flood, 2014): every bit of the result depends on every bit of the state.
std::uint64_t mixed(std::uint64_t state) {
  state += 0x9e3779b97f4a7c15U;
  state = (state ^ (state >> 30U)) * 0xbf58476d1ce4e5b9U;
  state = (state ^ (state >> 27U)) * 0x94d049bb133111ebU;
  return state ^ (state >> 31U);
}

enum class Stream : std::uint64_t { label, noise, pattern };

std::uint64_t start_of(Stream stream, std::uint64_t seed, std::int64_t number) {
  return mixed(mixed(mixed(seed) + static_cast<std::uint64_t>(stream)) + static_cast<std::uint64_t>(number));
}

}  // namespace

std::int64_t image_label(const Vision& vision, std::uint64_t seed, std::int64_t number) {
  return static_cast<std::int64_t>(start_of(Stream::label, seed, number) % static_cast<std::uint64_t>(vision.classes));
}

void draw_image(const Vision& vision, std::uint64_t seed, std::int64_t number, std::span<unsigned char> out) {
  const std::int64_t size = vision.image_size;
  const std::int64_t patch = vision.patch_size;
  const std::uint64_t noise = start_of(Stream::noise, seed, number);
  const std::uint64_t pattern = start_of(Stream::pattern, seed, image_label(vision, seed, number));
  const auto pixel = [&](std::int64_t channel, std::int64_t row, std::int64_t column) {
    const auto place = static_cast<std::uint64_t>((channel * size + row) * size + column);
    const std::uint64_t sum = (mixed(noise + place) >> 56U) + (mixed(pattern + place) >> 56U);
    return static_cast<unsigned char>(sum / 2);
  };
  auto next = out.begin();
  for (std::int64_t top = 0; top < size; top += patch) {
    for (std::int64_t left = 0; left < size; left += patch) {
      for (std::int64_t channel = 0; channel < vision.channels; ++channel) {
        for (std::int64_t row = top; row < top + patch; ++row) {
          for (std::int64_t column = left; column < left + patch; ++column) *next++ = pixel(channel, row, column);
        }
      }
    }
  }
}

}  // namespace plumb::exec

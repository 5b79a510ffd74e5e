#include "common/base/random.hpp"

#include <cmath>
#include <numbers>

#include "common/base/digest.hpp"

namespace plumb {
namespace {

constexpr std::uint64_t golden = 0x9e3779b97f4a7c15U;

std::uint64_t mixed(std::uint64_t bits) {
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9U;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebU;
  return bits ^ (bits >> 31);
}

}  // namespace

double unit_draw(std::uint64_t seed, std::string_view name, std::uint64_t count) {
  const std::uint64_t stream = mixed(fnv1a(name) ^ mixed(seed + golden));
  const std::uint64_t bits = mixed(stream + golden * (count + 1));
  return (static_cast<double>(bits >> 11) + 0.5) / 9007199254740992.0;  // 2⁵³
}

double normal_draw(std::uint64_t seed, std::string_view name, std::uint64_t count) {
  const double radius = std::sqrt(-2 * std::log(unit_draw(seed, name, 2 * count)));
  return radius * std::cos(2 * std::numbers::pi * unit_draw(seed, name, 2 * count + 1));
}

double lognormal_factor(double normal, double spread) {
  constexpr double grid = 1099511627776.0;  // 2⁴⁰
  const double variance = std::log1p(spread * spread);
  return std::round(std::exp(std::sqrt(variance) * normal - variance / 2) * grid) / grid;
}

}  // namespace plumb

// The units of quantities in files, and how others write them.
#pragma once

#include <algorithm>
#include <cctype>
#include <span>
#include <string>
#include <string_view>

namespace plumb {

struct Unit {
  std::string_view name;
  double factor;
};

inline constexpr Unit byte_units[] = {{"B", 1},          {"KB", 1e3},          {"MB", 1e6},
                                      {"GB", 1e9},       {"TB", 1e12},         {"KiB", 1024.},
                                      {"MiB", 1048576.}, {"GiB", 1073741824.}, {"TiB", 1099511627776.}};
inline constexpr Unit second_units[] = {{"ns", 1e-9}, {"us", 1e-6}, {"µs", 1e-6}, {"ms", 1e-3},
                                        {"s", 1},     {"min", 60},  {"h", 3600}};
inline constexpr Unit bandwidth_units[] = {{"B/s", 1},          {"KB/s", 1e3},          {"MB/s", 1e6},
                                           {"GB/s", 1e9},       {"TB/s", 1e12},         {"KiB/s", 1024.},
                                           {"MiB/s", 1048576.}, {"GiB/s", 1073741824.}, {"Mbit/s", 1e6 / 8},
                                           {"Gbit/s", 1e9 / 8}, {"Tbit/s", 1e12 / 8}};
inline constexpr Unit flops_units[] = {
    {"FLOP/s", 1}, {"MFLOP/s", 1e6}, {"GFLOP/s", 1e9}, {"TFLOP/s", 1e12}, {"PFLOP/s", 1e15}};

// As others write a unit: a second name for each.
struct UnitSynonym {
  std::string_view theirs;
  std::string_view ours;
};
// The second μ is Greek, as keyboards write it. In Gbps and Gb/s b is a bit, in GBps and GB/s B is a byte.
inline constexpr UnitSynonym unit_synonyms[] = {
    {"kB", "KB"},           {"μs", "us"},          {"usec", "us"},          {"msec", "ms"},
    {"sec", "s"},           {"MBps", "MB/s"},      {"GBps", "GB/s"},        {"TBps", "TB/s"},
    {"Mbps", "Mbit/s"},     {"Gbps", "Gbit/s"},    {"Tbps", "Tbit/s"},      {"Mb/s", "Mbit/s"},
    {"Gb/s", "Gbit/s"},     {"Tb/s", "Tbit/s"},    {"MFLOPS", "MFLOP/s"},   {"GFLOPS", "GFLOP/s"},
    {"TFLOPS", "TFLOP/s"},  {"PFLOPS", "PFLOP/s"}, {"GFLOPs/s", "GFLOP/s"}, {"TFLOPs/s", "TFLOP/s"},
    {"PFLOPs/s", "PFLOP/s"}};

// Calls `take` with every name of every unit and the unit.
template <class Take>
void for_unit_names(std::span<const Unit> units, const Take& take) {
  for (const Unit& unit : units) {
    take(unit.name, unit);
    for (const UnitSynonym& synonym : unit_synonyms) {
      if (synonym.ours == unit.name) take(synonym.theirs, unit);
    }
  }
}

// Capitals count as small letters.
[[nodiscard]] inline bool same_letters(std::string_view a, std::string_view b) {
  return std::ranges::equal(
      a, b, {}, [](unsigned char c) { return std::tolower(c); }, [](unsigned char c) { return std::tolower(c); });
}

// Whether `text` has no capital that would say of "gb/s" that it is Gb/s, bits, or GB/s, bytes. "gbps" are bits.
[[nodiscard]] inline bool is_bits_or_bytes(std::string_view text, std::span<const Unit> units) {
  const auto capital = [](unsigned char c) { return std::isupper(c) != 0; };
  if (!text.ends_with("b/s") || std::ranges::any_of(text, capital)) return false;
  bool bits = false;
  bool bytes = false;
  for_unit_names(units, [&](std::string_view name, const Unit&) {
    if (!same_letters(name, text)) return;
    (name.ends_with("b/s") ? bits : bytes) = true;
  });
  return bits && bytes;
}

// The unit that is called so. In a unit per second only b and B differ (m is no prefix of it); capitals decide
// everywhere else. Null: there is none, or more than one.
[[nodiscard]] inline const Unit* find_unit(std::string_view text, std::span<const Unit> units) {
  const Unit* exact = nullptr;
  const Unit* alike = nullptr;
  for_unit_names(units, [&](std::string_view name, const Unit& unit) {
    if (name == text) exact = &unit;
    const auto same_b = [](char a, char b) { return (a == 'b') == (b == 'b') && (a == 'B') == (b == 'B'); };
    if (same_letters(name, text) && std::ranges::equal(name, text, same_b)) alike = &unit;
  });
  if (exact != nullptr) return exact;
  const bool per_second = units.front().name.ends_with("/s");
  return per_second && !is_bits_or_bytes(text, units) ? alike : nullptr;
}

// "B/s, …, Gbit/s (Gbps), …": with the name for bits that datasheets prefer.
[[nodiscard]] inline std::string unit_list(std::span<const Unit> units) {
  std::string list;
  for_unit_names(units, [&](std::string_view name, const Unit& unit) {
    if (name == unit.name) list.append(list.empty() ? "" : ", ").append(name);
    if (name.ends_with("bps")) list.append(" (").append(name).append(")");
  });
  return list;
}

}  // namespace plumb

#include "exec/commands/gradients_text.hpp"

#include <cstdint>
#include <cstring>
#include <utility>

#include "common/base/error.hpp"

namespace plumb::exec {
namespace {

void put(std::string& text, const void* data, std::size_t bytes) {
  const std::uint64_t count = bytes;
  text.append(reinterpret_cast<const char*>(&count), sizeof count);
  text.append(static_cast<const char*>(data), bytes);
}

std::string_view take(std::string_view& text) {
  std::uint64_t count = 0;
  if (text.size() < sizeof count) throw RunError("a rank's gradients", "are cut short");
  std::memcpy(&count, text.data(), sizeof count);
  text.remove_prefix(sizeof count);
  if (text.size() < count) throw RunError("a rank's gradients", "are cut short");
  const std::string_view taken = text.substr(0, count);
  text.remove_prefix(count);
  return taken;
}

}  // namespace

std::string to_bytes(const NamedGradients& gradients) {
  std::string text;
  for (const auto& [name, values] : gradients) {
    put(text, name.data(), name.size());
    put(text, values.data(), values.size() * sizeof(float));
  }
  return text;
}

std::string add_from_bytes(std::string_view bytes, NamedGradients& gradients) {
  std::string different;
  while (!bytes.empty()) {
    std::string name(take(bytes));
    const std::string_view raw = take(bytes);
    std::vector<float> values(raw.size() / sizeof(float));
    std::memcpy(values.data(), raw.data(), values.size() * sizeof(float));
    const auto held = gradients.find(name);
    if (held == gradients.end()) {
      gradients.emplace(std::move(name), std::move(values));
      continue;
    }
    const std::vector<float>& first = held->second;
    const bool same =
        first.size() == values.size() && (first.empty() || std::memcmp(first.data(), values.data(), raw.size()) == 0);
    if (!same && different.empty()) different = std::move(name);
  }
  return different;
}

}  // namespace plumb::exec

// Of a build without LibTorch.
#include "tests/bench/aten_versions.hpp"

namespace plumb::bench {

std::function<void()> aten_version(const std::string& /*kernel*/, const Sizes& /*sizes*/) { return {}; }

LoraLayer lora_layer(const Sizes& /*sizes*/, std::int64_t /*rank*/) { return {}; }

}  // namespace plumb::bench

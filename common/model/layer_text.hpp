// The layers of a model as text with repetition, like Megatron's layout strings: "a/b*2, (c/d, e/f)*2".
#pragma once

#include <string>
#include <vector>

#include "common/base/error.hpp"

namespace plumb {

// "a/b*2, (c/d, e/f)*2" → a/b, a/b, c/d, e/f, c/d, e/f. Groups may nest. Throws InputError naming `place` and the
// character in the text, for anything malformed and for more than 10,000 layers.
[[nodiscard]] std::vector<std::string> expand_layers(const std::string& text, const Place& place);

}  // namespace plumb

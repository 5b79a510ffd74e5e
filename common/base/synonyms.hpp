// Names of Megatron-LM, torchtitan, DeepSpeed, PyTorch and Hugging Face for keys and values of our files.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace plumb {

// The place of `word` among `names`: the name itself, or the one that `word` means elsewhere: "bfloat16" is bf16,
// "ZBVZeroBubble" zb-v. Capitals, '_' in place of '-' and the prefixes "torch." and "Schedule" do not matter then.
[[nodiscard]] std::optional<std::size_t> find_name(std::string_view word, const std::vector<std::string>& names);

// Returns the one of `keys` that is called `word` elsewhere ("tp": tensor); empty if there is none.
[[nodiscard]] std::string key_meant(std::string_view word, const std::vector<std::string>& keys);

// Returns what to write in place of a key of other frameworks that no key of plumb stands for; empty if there is none.
[[nodiscard]] std::string advice_for_key(std::string_view word);

// Returns others' words for any of `names`, in small letters.
[[nodiscard]] std::vector<std::string> other_names(const std::vector<std::string>& names);

// Returns others' words for the key.
[[nodiscard]] std::vector<std::string> other_keys(std::string_view key);

}  // namespace plumb

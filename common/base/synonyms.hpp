// What Megatron-LM, torchtitan, DeepSpeed, PyTorch and Hugging Face call the things that files of ours name.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace plumb {

// The place of `word` among `names`: the name itself, or the one that `word` means elsewhere: "bfloat16" is bf16,
// "ZBVZeroBubble" zb-v. Capitals, '_' in place of '-' and the prefixes "torch." and "Schedule" do not matter then.
[[nodiscard]] std::optional<std::size_t> find_name(std::string_view word, const std::vector<std::string>& names);

// Of a key that is none of `keys`, the one that is called so elsewhere ("tp": tensor); empty: none.
[[nodiscard]] std::string key_meant(std::string_view word, const std::vector<std::string>& keys);

// What others call any of `names`, in small letters.
[[nodiscard]] std::vector<std::string> other_names(const std::vector<std::string>& names);

// What others call the key.
[[nodiscard]] std::vector<std::string> other_keys(std::string_view key);

}  // namespace plumb

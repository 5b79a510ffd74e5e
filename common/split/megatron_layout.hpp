// Layout strings of Megatron-LM (`pipeline_model_parallel_layout`), both ways.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/split/split.hpp"

namespace plumb {

// "Et*3|(tt|)*29,m|L": E embedding, t layer, m MTP module, L loss; | ends a stage; (..)*n is expanded first, then x*n;
// commas and blanks are cosmetic, nothing nests.
struct MegatronLayout {
  std::vector<int> layers;  // per stage, in order of the pipeline
  int mtp_modules = 0;
  int mtp_stage = -1;  // −1: there are none
  bool operator==(const MegatronLayout&) const = default;
};

// Throws InputError (where = "split:1:COLUMN") for what Megatron refuses too: another character than these, no E at the
// front or no L at the end, a second one, MTP modules in several stages or before a layer.
[[nodiscard]] MegatronLayout parse_megatron_layout(std::string_view text);

// Megatron puts stage i on rank i mod `pipeline`. Throws InputError (where = "split") when the stages do not divide, or
// MTP modules are not on the last stage of their rank.
[[nodiscard]] std::vector<int> megatron_placement(const MegatronLayout& layout, int pipeline);

// The inverse, in one form: stages that repeat in parentheses, layers that repeat with a factor from three on.
[[nodiscard]] std::string to_megatron_layout(const MegatronLayout& layout);

// The layout of a split and a placement. Throws InputError (where = "split") when the placement is not Megatron's.
// MTP modules stand on the last stage, as everywhere in plumb.
[[nodiscard]] std::string to_megatron_layout(const Split& split, const std::vector<int>& rank_of_stage,
                                             int mtp_modules);

}  // namespace plumb

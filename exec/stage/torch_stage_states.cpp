// What checkpoints have of a stage on LibTorch: its weights, and its optimizer's states.
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <cstring>
#include <functional>
#include <map>

#include "exec/stage/torch_stage.hpp"

namespace plumb::exec {
namespace {

// The tensor as it stands at the time of a call: an optimizer step may put another in its place.
using Current = std::function<at::Tensor()>;

at::Tensor stretch_of(const Current& current, std::int64_t first, std::size_t count) {
  return current().view(-1).narrow(0, first, static_cast<std::int64_t>(count));
}

StatePart part_of_tensor(const std::string& name, StateKind kind, IndexRanges ranges, const Current& current) {
  return {.weight = name,
          .kind = kind,
          .ranges = std::move(ranges),
          .read =
              [current](std::int64_t first, std::span<float> values) {
                const c10::NoGradGuard no_grad;
                const at::Tensor wide = stretch_of(current, first, values.size()).cpu().to(at::kFloat);
                std::memcpy(values.data(), wide.const_data_ptr(), values.size_bytes());
              },
          .write =
              [current](std::int64_t first, std::span<const float> values) {
                const c10::NoGradGuard no_grad;
                // Read alone: from_blob has no view of what is const.
                auto* const data = const_cast<float*>(values.data());
                const auto count = static_cast<std::int64_t>(values.size());
                stretch_of(current, first, values.size()).copy_(at::from_blob(data, {count}, at::kFloat));
              }};
}

}  // namespace

std::vector<StatePart> TorchStage::state_parts() {
  std::vector<StatePart> parts;
  std::map<const Weight*, IndexRanges> owned;
  for (const auto& block : blocks_) {
    for (const WeightPtr& weight : block->weights()) owned.emplace(weight.get(), block->owned(*weight));
  }
  const auto own_part = [&](const WeightPtr& weight) {
    const IndexRange mine = range_of_part(weight->elements(), settings_.states);
    return part_of(owned.at(weight.get()), mine.begin, mine.end);
  };
  for (const WeightPtr& weight : weights_) {
    const bool wide = weight->kept().scalar_type() == at::kFloat;
    StatePart part = part_of_tensor(weight->name, StateKind::weight,
                                    weight->own_value.defined() ? own_part(weight) : owned.at(weight.get()),
                                    [weight] { return weight->kept(); });
    part.type = wide ? ElementType::fp32 : ElementType::bf16;
    part.saved = !weight->is_trained();  // else the optimizer's copy of it is
    parts.push_back(std::move(part));
  }
  if (!optimizer_) return parts;
  for (std::size_t index = 0; index < optimizer_->states().size(); ++index) {
    const auto state = [this, index]() -> const WeightOptimizer::State& { return optimizer_->states()[index]; };
    const WeightPtr& weight = state().weight;
    const IndexRanges ranges = own_part(weight);
    const auto add = [&](StateKind kind, at::Tensor WeightOptimizer::State::*of) {
      parts.push_back(part_of_tensor(weight->name, kind, ranges, [state, of] { return state().*of; }));
    };
    add(StateKind::weight, &WeightOptimizer::State::master);
    parts.back().restored = !state().master.is_alias_of(weight->kept());  // else it is the weight's own memory
    if (!state().first_moment.defined()) continue;
    add(StateKind::first_moment, &WeightOptimizer::State::first_moment);
    add(StateKind::second_moment, &WeightOptimizer::State::second_moment);
  }
  return parts;
}

void TorchStage::resume_updates(std::int64_t made) {
  if (optimizer_) optimizer_->resume(made);
}

}  // namespace plumb::exec

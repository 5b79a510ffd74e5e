#include "exec/check/updates_reference.hpp"

#include <cstdint>
#include <utility>

namespace plumb::exec {

UpdatesReference::UpdatesReference(const Plan& plan, const std::shared_ptr<const Corpus>& corpus, c10::Device device,
                                   const std::shared_ptr<const PretrainedWeights>& start)
    : schedule_(plan.schedule) {
  for (int stage = 0; stage < stages(plan.schedule); ++stage) {
    TorchStageSettings settings = stage_settings(plan, stage, device);
    settings.weights = start;
    stages_.push_back(std::make_unique<TorchStage>(std::move(settings), corpus));
  }
}

std::vector<double> UpdatesReference::train(std::size_t steps, const CheckWatch& watch) {
  std::vector<double> losses;
  CheckProgress progress(static_cast<std::int64_t>(steps) * schedule_.microbatches, watch);
  for (std::size_t step = 0; step < steps; ++step) {
    for (const auto& stage : stages_) stage->begin_step(static_cast<std::int64_t>(step));
    for (int microbatch = 0; microbatch < schedule_.microbatches; ++microbatch) {
      run(microbatch);
      progress.add(1);
    }
    for (const auto& stage : stages_) stage->end_step();
    losses.push_back(stages_.back()->loss());
  }
  return losses;
}

std::vector<WeightPtr> UpdatesReference::weights() const {
  std::vector<WeightPtr> all;
  for (const auto& stage : stages_) {
    all.insert(all.end(), stage->trained_weights().begin(), stage->trained_weights().end());
  }
  return all;
}

void UpdatesReference::run(int microbatch) {
  Payload value;
  for (const auto& stage : stages_) value = stage->forward(microbatch, std::move(value));
  for (auto stage = stages_.rbegin(); stage != stages_.rend(); ++stage) {
    value = (*stage)->input_gradient(microbatch, std::move(value));
    (*stage)->weight_gradient(microbatch);
  }
  const bool ends_update = (microbatch + 1) % schedule_.update_every == 0 || microbatch + 1 == schedule_.microbatches;
  if (!ends_update) return;
  for (const auto& stage : stages_) stage->optimizer_step();
}

}  // namespace plumb::exec

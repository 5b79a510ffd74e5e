// A stage that computes nothing and has nothing: tests say what theirs has.
#pragma once

#include <vector>

#include "exec/stage/stage.hpp"

namespace plumb::exec::test {

class IdleStage : public Stage {
 public:
  void begin_step(std::int64_t /*step*/) override {}
  [[nodiscard]] Payload forward(int /*microbatch*/, Payload /*input*/) override { return {}; }
  void recompute(int /*microbatch*/) override {}
  [[nodiscard]] Payload input_gradient(int /*microbatch*/, Payload /*gradient*/) override { return {}; }
  [[nodiscard]] Parcel evict(int /*microbatch*/) override { return {}; }
  void load(int /*microbatch*/, Parcel /*parcel*/) override {}
  void weight_gradient(int /*microbatch*/) override {}
  [[nodiscard]] std::vector<DeviceFloats> gradients() override { return {}; }
  [[nodiscard]] DeviceFloats tied_gradient() override { return {}; }
  void optimizer_step() override {}
  void end_step() override {}
  [[nodiscard]] double loss() const override { return 0; }
};

}  // namespace plumb::exec::test

#include "tests/exec/run/hashing_stage.hpp"

#include <algorithm>
#include <string>

#include "common/base/error.hpp"

namespace plumb::exec::test {
namespace {

std::uint32_t mix(std::uint32_t a, std::uint32_t b) {
  std::uint32_t h = a * 2654435761U ^ (b + 0x9e3779b9U + (a << 6U) + (a >> 2U));
  h ^= h >> 15U;
  h *= 2246822519U;
  return h ^ (h >> 13U);
}

std::uint32_t place(int stage, int microbatch) {
  return static_cast<std::uint32_t>(stage) * 4099U + static_cast<std::uint32_t>(microbatch) * 17U;
}

std::uint32_t* words_of(const Payload& payload) { return reinterpret_cast<std::uint32_t*>(payload.data); }
float* floats_of(const Payload& payload) { return reinterpret_cast<float*>(payload.data); }

}  // namespace

std::uint32_t first_word(int microbatch, std::size_t index) {
  return mix(place(7, microbatch), static_cast<std::uint32_t>(index));
}
std::uint32_t forward_word(int stage, int microbatch, std::uint32_t input) {
  return mix(place(stage, microbatch), input);
}
std::uint32_t last_gradient(int microbatch, std::uint32_t kept) { return mix(place(11, microbatch), kept); }
std::uint32_t gradient_word(int stage, int microbatch, std::uint32_t gradient, std::uint32_t kept) {
  return mix(mix(place(stage, microbatch), gradient), kept);
}
float weight_word(std::uint32_t gradient, std::uint32_t kept) {
  return static_cast<float>(mix(gradient, kept) & 0xffU);
}
double loss_word(std::uint32_t output) { return static_cast<double>(output & 0xffffU); }

Expected expected_step(int stages, int microbatches) {
  Expected expected;
  expected.gradients.assign(static_cast<std::size_t>(stages), std::vector<float>(gradient_values));
  expected.tied.assign(tied_values, 0);
  for (int microbatch = 0; microbatch < microbatches; ++microbatch) {
    std::vector<Words> inputs(1, Words(words));
    for (std::size_t i = 0; i < words; ++i) inputs[0][i] = first_word(microbatch, i);
    for (int stage = 0; stage < stages; ++stage) {
      Words output = inputs.back();
      for (std::uint32_t& word : output) word = forward_word(stage, microbatch, word);
      inputs.push_back(std::move(output));
    }
    for (const std::uint32_t word : inputs.back()) expected.loss += loss_word(word);
    Words gradient = inputs[static_cast<std::size_t>(stages) - 1];
    for (std::uint32_t& word : gradient) word = last_gradient(microbatch, word);
    for (int stage = stages; stage-- > 0;) {
      const Words& kept = inputs[static_cast<std::size_t>(stage)];
      for (std::size_t i = 0; i < words; ++i) {
        const float part = weight_word(gradient[i], kept[i]);
        expected.gradients[static_cast<std::size_t>(stage)][i % gradient_values] += part;
        if (stage == 0 || stage == stages - 1) expected.tied[i % tied_values] += part;
        gradient[i] = gradient_word(stage, microbatch, gradient[i], kept[i]);
      }
    }
  }
  return expected;
}

HashingStage::HashingStage(Device& device, Put put, int stage, int stages, bool tied)
    : device_(device),
      put_(std::move(put)),
      stage_(stage),
      stages_(stages),
      tied_(tied),
      gradient_(device.allocate((gradient_values + tied_values) * sizeof(float))),
      loss_(device.allocate(sizeof(double))) {}

void HashingStage::begin_step(std::int64_t /*step*/) {
  reported_ = false;
  put_([gradient = floats_of(gradient_), loss = loss_.data] {
    std::fill_n(gradient, gradient_values + tied_values, 0.0F);
    *reinterpret_cast<double*>(loss) = 0;
  });
}

Payload HashingStage::forward(int microbatch, Payload input) {
  if (is_first()) {
    input = device_.allocate(boundary_bytes);
    put_([to = words_of(input), microbatch] {
      for (std::size_t i = 0; i < words; ++i) to[i] = first_word(microbatch, i);
    });
  }
  Payload output = device_.allocate(boundary_bytes);
  put_([from = words_of(input), to = words_of(output), stage = stage_, microbatch] {
    for (std::size_t i = 0; i < words; ++i) to[i] = forward_word(stage, microbatch, from[i]);
  });
  kept_[microbatch] = std::move(input);
  if (!is_last()) return output;
  put_([from = words_of(output), loss = loss_.data] {
    for (std::size_t i = 0; i < words; ++i) *reinterpret_cast<double*>(loss) += loss_word(from[i]);
  });
  return {};
}

void HashingStage::recompute(int microbatch) {
  if (!kept_.contains(microbatch)) throw RunError("", "R of microbatch " + std::to_string(microbatch) + " without F");
}

Payload HashingStage::input_gradient(int microbatch, Payload output_gradient) {
  Payload kept = std::move(kept_.extract(microbatch).mapped());
  if (is_last()) {
    output_gradient = device_.allocate(boundary_bytes);
    put_([to = words_of(output_gradient), from = words_of(kept), microbatch] {
      for (std::size_t i = 0; i < words; ++i) to[i] = last_gradient(microbatch, from[i]);
    });
  }
  Payload gradient = device_.allocate(boundary_bytes);
  put_([to = words_of(gradient), from = words_of(output_gradient), kept = words_of(kept), stage = stage_, microbatch] {
    for (std::size_t i = 0; i < words; ++i) to[i] = gradient_word(stage, microbatch, from[i], kept[i]);
  });
  weight_work_[microbatch] = {std::move(output_gradient), std::move(kept)};
  return is_first() ? Payload{} : gradient;
}

Parcel HashingStage::evict(int microbatch) { return {std::move(kept_.extract(microbatch).mapped())}; }

void HashingStage::load(int microbatch, Parcel parcel) { kept_[microbatch] = std::move(parcel.at(0)); }

void HashingStage::weight_gradient(int microbatch) {
  const auto [gradient, kept] = std::move(weight_work_.extract(microbatch).mapped());
  if (is_tied()) {
    put_([to = floats_of(gradient_) + gradient_values, from = words_of(gradient), with = words_of(kept)] {
      for (std::size_t i = 0; i < words; ++i) to[i % tied_values] += weight_word(from[i], with[i]);
    });
  }
  std::size_t begin = 0;
  for (const std::size_t count : gradient_parts) {
    put_([to = floats_of(gradient_), from = words_of(gradient), with = words_of(kept), begin, count] {
      for (std::size_t i = 0; i < words; ++i) {
        const std::size_t at = i % gradient_values;
        if (at >= begin && at < begin + count) to[at] += weight_word(from[i], with[i]);
      }
    });
    if (complete_) complete_({floats_of(gradient_) + begin, count});
    begin += count;
  }
  reported_ = reported_ || complete_;
  complete_ = nullptr;
}

void HashingStage::find_squares() {
  const std::size_t count = gradient_values + (tied_ && is_first() ? tied_values : 0);
  put_([found = squares_, from = floats_of(gradient_), count] {
    *found = {};
    found->add({from, count});
  });
}

void HashingStage::scale_gradients(double scale) {
  put_([values = floats_of(gradient_), factor = static_cast<float>(scale)] {
    for (std::size_t i = 0; i < gradient_values; ++i) values[i] *= factor;
  });
}

void HashingStage::optimizer_step() {
  put_([applied = applied_, from = floats_of(gradient_)] { applied->assign(from, from + gradient_values); });
}

std::vector<DeviceFloats> HashingStage::gradients() {
  if (reported_ && !is_tied()) return {};  // none: else a sum of nothing would wait for the buckets
  if (reported_) return {tied_gradient()};
  return {{floats_of(gradient_), gradient_values}, tied_gradient()};
}

DeviceFloats HashingStage::tied_gradient() {
  return {floats_of(gradient_) + gradient_values, is_tied() ? tied_values : 0};
}

void HashingStage::end_step() {
  if (!kept_.empty() || !weight_work_.empty()) throw RunError("", "work is left at the end of the step");
}

double HashingStage::loss() const { return *reinterpret_cast<const double*>(loss_.data); }

}  // namespace plumb::exec::test

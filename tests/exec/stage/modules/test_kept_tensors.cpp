// What a block's graph keeps leaves it whole, and its gradients are the same bits after it came back.
#include "exec/stage/modules/kept_tensors.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <set>

#include "common/base/error.hpp"
#include "exec/host/memory.hpp"
#include "exec/stage/modules/block.hpp"
#include "exec/stage/modules/lora.hpp"
#include "exec/stage/primitives/operations.hpp"
#include "tests/catch.hpp"
#include "tests/exec/stage/models.hpp"

using namespace plumb;
using namespace plumb::exec;

namespace {

constexpr int rank = 911;  // that no other test uses
constexpr std::int64_t sequence = 64;

at::Tensor input_of(int microbatch) {
  return at::sin(at::arange(2 * sequence * 32) * (0.1 + microbatch)).view({2, sequence, 32});
}

Pass pass_of(int microbatch) {
  return {.microbatch = microbatch, .queue = {}, .targets = {}, .routing = nullptr, .lists_kept = true};
}

// In memory that nobody counts.
std::vector<std::vector<std::byte>> bytes_in(const Parcel& parcel) {
  std::vector<std::vector<std::byte>> copies;
  for (const Payload& part : parcel) copies.emplace_back(part.data, part.data + part.size);
  return copies;
}

Parcel parcel_of(const std::vector<std::vector<std::byte>>& copies) {
  Parcel parcel;
  for (const std::vector<std::byte>& copy : copies) {
    std::shared_ptr<void> owner = tracked_buffer(copy.size());
    auto* const data = static_cast<std::byte*>(owner.get());
    std::copy(copy.begin(), copy.end(), data);
    parcel.push_back({.owner = std::move(owner), .data = data, .size = copy.size()});
  }
  return parcel;
}

std::vector<at::Tensor> gradients_of(Block& block, int microbatch, const at::Tensor& output) {
  std::vector<at::Tensor> gradients{block.input_gradient(microbatch, at::ones_like(output))};
  block.weight_gradient(microbatch);
  for (const WeightPtr& weight : block.weights()) gradients.push_back(weight->gradient.clone());
  return gradients;
}

}  // namespace

TEST_CASE("All that a block keeps of a microbatch leaves and comes back, and its gradients are the same bits") {
  track_memory_of_thread(rank);
  const Model model = test::hybrid();
  for (int number = 1; number < head_block(model); ++number) {
    CAPTURE(number);
    Block block(model, number, {.sequence = sequence, .seed = 3}, {});
    Block plain(model, number, {.sequence = sequence, .seed = 3}, {});
    (void)plain.forward(input_of(1), pass_of(1), true);
    (void)block.forward(input_of(1), pass_of(1), true);
    std::set<const void*> stay;
    for (const WeightPtr& weight : block.weights()) stay.insert(weight->value.const_data_ptr());

    at::Tensor expected = plain.forward(input_of(0), Pass(), true);
    const Bytes before = current_memory(rank);
    const at::Tensor output = block.forward(input_of(0), pass_of(0), true);
    CHECK(at::equal(output, expected));
    const Bytes kept = current_memory(rank) - before - Bytes{static_cast<std::int64_t>(output.nbytes())};

    std::vector<at::Tensor> tensors;
    block.kept(0)->take(tensors);
    Parcel parcel;
    const EvictedTensors evicted(std::move(tensors), parcel);
    CHECK(bytes_of(parcel).value > kept.value * 98 / 100);  // allocations of a few bytes are rounded up
    CHECK(bytes_of(parcel) <= kept);
    for (const Payload& part : parcel) CHECK(stay.insert(part.data).second);  // each once, and no weight
    const auto bytes = bytes_in(parcel);
    const Bytes with_parcel = current_memory(rank);
    const Bytes left = bytes_of(parcel);
    parcel.clear();
    CHECK(with_parcel - current_memory(rank) == left);

    CHECK_THROWS_AS(evicted.restored({}), RunError);
    std::vector<at::Tensor> restored = evicted.restored(parcel_of(bytes));
    auto next = restored.begin();
    block.kept(0)->put(next);
    CHECK(next == restored.end());
    restored.clear();
    for (const int microbatch : {0, 1}) {  // the other one has lost nothing
      const std::vector<at::Tensor> wanted = gradients_of(plain, microbatch, output);
      const std::vector<at::Tensor> got = gradients_of(block, microbatch, output);
      for (std::size_t i = 0; i < wanted.size(); ++i) CHECK(at::equal(got[i], wanted[i]));
    }
  }
}

TEST_CASE("saved values for W do not keep the input of earlier operations alive") {
  const auto weight = [](at::IntArrayRef shape) {
    const auto made = c10::make_intrusive<Weight>();
    made->value = at::full(shape, 0.5);
    made->gradient = at::zeros(shape);
    return made;
  };
  const auto adapter = [&](at::IntArrayRef a, at::IntArrayRef b) {
    const auto made = c10::make_intrusive<Adapter>();
    made->a = weight(a);
    made->b = weight(b);
    return made;
  };
  const auto rows = c10::make_intrusive<ExpertRows>(at::tensor({1, 3}, at::kInt));
  const std::function<at::Tensor(const at::Tensor&, const WeightQueuePtr&)> kinds[] = {
      [&](const at::Tensor& x, const WeightQueuePtr& queue) {
        return linear(x, weight({4, 8}), {}, queue);
      },
      [&](const at::Tensor& x, const WeightQueuePtr& queue) {
        return expert_linear(x, weight({2, 4, 8}), rows, queue);
      },
      [&](const at::Tensor& x, const WeightQueuePtr& queue) {
        return adapted_linear(x, weight({4, 8}), {}, adapter({2, 8}, {4, 2}), queue);
      },
      [&](const at::Tensor& x, const WeightQueuePtr& queue) {
        return adapted_expert_linear(x, weight({2, 4, 8}), adapter({2, 2, 8}, {2, 4, 2}), rows, queue);
      }};
  for (const auto& kind : kinds) {
    const auto queue = c10::make_intrusive<WeightQueue>();
    at::Tensor input = at::ones({3, 8}).requires_grad_();
    const c10::weak_intrusive_ptr<c10::TensorImpl> seen(input.getIntrusivePtr());
    {
      const at::Tensor y = kind(rms_norm(input, weight({8}), queue), queue);
      torch::autograd::backward({y}, {at::ones_like(y)});
    }
    input.reset();
    CHECK(seen.expired());
    queue->run();
  }
}

// Softmax over a vocabulary in parts, against LibTorch's over the whole in fp64.
#include <ATen/ATen.h>

#include "exec/stage/vocabulary/part_softmax.hpp"
#include "tests/catch.hpp"

using namespace plumb::exec;

namespace {

constexpr std::int64_t tokens = 7;
constexpr std::int64_t vocabulary = 24;

struct Whole {
  at::Tensor logits;
  at::Tensor targets;
};

// Large logits too: exponentials of these have no number in fp32.
Whole drawn(double size) {
  at::manual_seed(3);
  return {.logits = at::randn({tokens, vocabulary}, at::kFloat) * size,
          .targets = at::randint(vocabulary, {tokens}, at::kLong)};
}

std::vector<PartLogits> in_parts(const Whole& whole, std::int64_t parts) {
  const std::int64_t rows = vocabulary / parts;
  std::vector<PartLogits> all;
  for (std::int64_t part = 0; part < parts; ++part) {
    all.push_back(part_logits(whole.logits.narrow(1, part * rows, rows).clone(), whole.targets, part * rows));
  }
  return all;
}

TokenStatistics of_all(const std::vector<PartLogits>& parts) {
  std::vector<at::Tensor> each;
  for (const PartLogits& part : parts) each.push_back(part.statistics);
  return joined_statistics(at::stack(each));
}

double furthest(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

}  // namespace

TEST_CASE("loss, softmax and gradient of logits in parts are those of the whole") {
  for (const double size : {1.0, 200.0}) {
    const Whole whole = drawn(size);
    const at::Tensor log_softmax = at::log_softmax(whole.logits.to(at::kDouble), 1);
    const at::Tensor at_targets = log_softmax.gather(1, whole.targets.unsqueeze(1));
    const at::Tensor one_hot = at::one_hot(whole.targets, vocabulary).to(at::kDouble);
    for (const std::int64_t parts : {1, 2, 3, 4}) {
      CAPTURE(size, parts);
      std::vector<PartLogits> all = in_parts(whole, parts);
      const TokenStatistics joined = of_all(all);
      CHECK(mean_loss(joined).item<double>() == Approx(-at_targets.mean().item<double>()).epsilon(1e-6));
      std::vector<at::Tensor> softmax;
      std::vector<at::Tensor> gradient;
      for (PartLogits& part : all) {
        PartLogits again = part;
        again.logits = part.logits.clone();
        gradient.push_back(gradient_of_logits(plumb::exec::log_softmax(again, joined), again.targets,
                                              at::scalar_tensor(0.5, at::kDouble)));
        CHECK(!again.logits.defined());
        softmax.push_back(own_softmax(part, at::kFloat));
        CHECK(furthest(softmax.back().sum(1), at::ones({tokens})) < 1e-6);
        softmax.back().mul_(scale_of_part(part, joined));
      }
      CHECK(furthest(at::cat(softmax, 1), log_softmax.exp()) < 1e-5);
      CHECK(furthest(at::cat(gradient, 1), (log_softmax.exp() - one_hot) * 0.5) < 1e-5);
    }
  }
}

TEST_CASE("a target counts in the part that has it alone") {
  const Whole whole = drawn(1);
  const std::vector<PartLogits> parts = in_parts(whole, 3);
  at::Tensor found = at::zeros({tokens});
  for (std::size_t part = 0; part < parts.size(); ++part) {
    const at::Tensor mine = parts[part].targets.mine.flatten();
    CHECK(mine.equal(whole.targets.div(vocabulary / 3, "floor").eq(static_cast<std::int64_t>(part))));
    found += mine.to(at::kFloat);
    CHECK(parts[part].statistics.select(1, 2).masked_select(mine.logical_not()).eq(0).all().item<bool>());
  }
  CHECK(found.equal(at::ones({tokens})));
}

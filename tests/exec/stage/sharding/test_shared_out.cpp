// What a weight is when its parts have travelled as int8.
#include "exec/stage/sharding/shared_out.hpp"

#include <ATen/ATen.h>

#include "tests/catch.hpp"

using namespace plumb::exec;

TEST_CASE("a weight is rounded part by part, so that a large number does so to its own part's block alone") {
  const at::Tensor weight = at::full({2, 100}, 0.3F);
  weight[1][99] = 1000.0F;
  round_in_parts(weight, 2);
  CHECK(at::allclose(weight[0], at::full({100}, 0.3F), 1e-6));
  CHECK(weight[1][0].item<float>() == 0);
  CHECK(weight[1][99].item<float>() == Approx(1000));
}

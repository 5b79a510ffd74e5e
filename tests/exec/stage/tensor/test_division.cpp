// What a rank allocates is what its costs count: the largest part of a vocabulary that the ranks do not divide.
#include "exec/stage/tensor/division.hpp"

#include "common/block_cost/block_work.hpp"
#include "common/model/parameters.hpp"
#include "tests/catch.hpp"
#include "tests/exec/stage/models.hpp"

using namespace plumb;
using namespace plumb::exec;

TEST_CASE("a rank's part of a table is as large as is counted of it, and of weights that ranks divide evenly") {
  Model model = test::llama(2);
  Training training{.sequence = 32, .global_batch = 8};
  training.microbatch = 2;
  const TensorLayout tensor{.degree = 4};
  for (const std::int64_t vocabulary : {256, 257}) {
    model.vocabulary = vocabulary;
    const std::int64_t rows = (vocabulary + 3) / 4;
    for (int position = 0; position < 4; ++position) {
      const Division division(model, 0, tensor, training, position);
      CHECK(division.vocabulary() == rows);
      for (const Parameter& parameter : embedding_parameters(model)) {
        std::int64_t elements = 1;
        for (const std::int64_t size : division.local_shape(parameter)) elements *= size;
        CHECK(elements == stored_elements(division.placed(), parameter.name));
      }
      Scenario scenario{.model = model, .training = training};
      scenario.layout.tensor = tensor;
      CHECK(table_of_rank(scenario) == rows * model.hidden);
    }
  }
}

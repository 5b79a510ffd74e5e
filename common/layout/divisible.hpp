// Which degrees divide what they share out: a tensor degree a model's shapes, data degrees a batch.
#pragma once

#include <cstdint>
#include <string>

#include "common/layout/layout.hpp"
#include "common/model/model.hpp"

namespace plumb {

// Throws InputError (where = "layout") that names the first shape that the tensor degree does not divide: heads,
// kv_heads (which the degree may be a multiple of, too: several ranks then have the same head) and a recurrence's
// heads, hidden, the width of an MLP or of an expert. Costs of such a layout would count parts of heads. Of a grid as
// require_divided_by_grid of common/layout/tensor_grid.hpp says.
void require_divisible(const Model& model, const Layout& layout);

// Throws the same for one shape, such as 8 "heads".
void require_divides(int tensor_degree, std::int64_t shape, const char* name);

// Throws the same where the ranks of a tensor group share out the tokens of a sequence, which their number does not
// divide; the hint names the sequences beside it.
void require_divides_sequence(const TensorLayout& tensor, std::int64_t sequence);

// Whether require_divisible does not throw.
[[nodiscard]] bool is_divisible(const Model& model, const Layout& layout);

// What to say where microbatches of so many sequences, on each data-parallel rank, do not divide a batch.
[[nodiscard]] std::string undivided_batch(const Layout& layout, std::int64_t microbatch, std::int64_t batch);

}  // namespace plumb

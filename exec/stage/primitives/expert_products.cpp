#include "exec/stage/primitives/expert_products.hpp"

#include <ATen/ATen.h>
#include <torch/version.h>

#include <optional>
#include <utility>

#include "exec/stage/primitives/kernel_table.hpp"
#include "exec/stage/primitives/weights.hpp"

namespace plumb::exec {
namespace {

#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 11
constexpr bool has_grouped_mm = true;

at::Tensor grouped_mm(const at::Tensor& a, const at::Tensor& b, const at::Tensor& ends) {
  return at::_grouped_mm(a, b, ends);
}
#else
constexpr bool has_grouped_mm = false;

at::Tensor grouped_mm(const at::Tensor& a, const at::Tensor& /*b*/, const at::Tensor& /*ends*/) { return a; }
#endif

// LibTorch's product by groups has one thread for each.
constexpr std::int64_t most_groups = 1023;

// a · b of each expert, by rows of a and its own b [experts, in, out], or summed over the rows of b, which a has as its
// columns. Nothing where LibTorch's product by groups would go over the experts itself, behind a wait for the device.
std::optional<at::Tensor> by_groups(const at::Tensor& a, const at::Tensor& b, const ExpertRows& rows) {
  if (!computes_by_groups(a) || rows.experts() > most_groups) return {};
  const std::int64_t width = b.dim() == 3 ? a.size(1) : a.size(0);
  if (width % 8 != 0 || b.size(-1) % 8 != 0) return {};
  return grouped_mm(a, b, rows.ends());
}

// Calls work(expert, first row, rows) for each expert that has rows.
template <class Work>
void for_each_expert(const ExpertRows& rows, const Work& work) {
  std::int64_t first = 0;
  std::int64_t expert = 0;
  for (const std::int64_t count : rows.counts()) {
    if (count > 0) work(expert, first, count);
    first += count;
    ++expert;
  }
}

}  // namespace

bool computes_by_groups(const at::Tensor& x) {
  const KernelTable* const kernels = kernel_table(x);
  return has_grouped_mm && kernels != nullptr && x.scalar_type() == at::kBFloat16 &&
         kernels->compute_capability() / 10 == 9;
}

at::Tensor expert_product(const at::Tensor& x, const at::Tensor& matrices, const ExpertRows& rows) {
  if (auto y = by_groups(x, matrices, rows)) return *std::move(y);
  at::Tensor y = at::empty({x.size(0), matrices.size(2)}, x.options());
  for_each_expert(rows, [&](std::int64_t expert, std::int64_t first, std::int64_t count) {
    at::Tensor part = y.narrow(0, first, count);
    at::mm_out(part, x.narrow(0, first, count), matrices.select(0, expert));
  });
  return y;
}

void add_expert_product(const at::Tensor& y, const at::Tensor& x, const at::Tensor& matrices, const ExpertRows& rows) {
  if (const auto more = by_groups(x, matrices, rows)) {
    y.add_(*more);
    return;
  }
  for_each_expert(rows, [&](std::int64_t expert, std::int64_t first, std::int64_t count) {
    y.narrow(0, first, count).addmm_(x.narrow(0, first, count), matrices.select(0, expert));
  });
}

void accumulate_expert_product(const at::Tensor& gradients, const at::Tensor& dy, const at::Tensor& x,
                               const ExpertRows& rows) {
  if (const auto more = by_groups(dy.t(), x, rows)) {
    gradients.add_(*more);
    return;
  }
  for_each_expert(rows, [&](std::int64_t expert, std::int64_t first, std::int64_t count) {
    accumulate_product(gradients.select(0, expert), dy.narrow(0, first, count), x.narrow(0, first, count));
  });
}

}  // namespace plumb::exec

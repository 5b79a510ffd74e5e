#include "exec/stage/tensor/tensor_group.hpp"

#include <ATen/ATen.h>

#include <optional>

#include "common/base/error.hpp"
#include "common/program/decomposed.hpp"
#include "exec/host/pauses.hpp"
#include "exec/stage/tensor/scattered_parts.hpp"
#include "exec/transport/collectives/pieces.hpp"

namespace plumb::exec {
namespace {

constexpr int tokens_dimension = 1;  // of values

std::span<std::byte> bytes_of(const at::Tensor& x) {
  return {static_cast<std::byte*>(x.mutable_data_ptr()), x.nbytes()};
}

// Whole parts of a contiguous tensor along its first dimension.
std::vector<std::span<std::byte>> parts_of(const at::Tensor& x) {
  return equal_parts(bytes_of(x), static_cast<std::size_t>(x.size(0)),
                     x.nbytes() / static_cast<std::size_t>(x.size(0)));
}

std::vector<std::span<const std::byte>> const_parts(const std::vector<std::span<std::byte>>& parts) {
  return {parts.begin(), parts.end()};
}

// Rows [n, 3] of each rank, in their order.
at::Tensor joined(const at::Tensor& of_ranks) {
  const at::Tensor largest = std::get<0>(of_ranks.select(-1, 0).max(0));
  at::Tensor sum = at::zeros_like(largest);
  at::Tensor target = at::zeros_like(largest);
  for (const at::Tensor& rows : of_ranks.unbind(0)) {
    sum.add_((rows.select(-1, 0) - largest).exp_().mul_(rows.select(-1, 1)));
    target.add_(rows.select(-1, 2));
  }
  return at::stack({largest, sum, target}, -1);
}

// Counts how long the rank is with its group: waits for it, and copies what goes and comes.
class Waits {
 public:
  explicit Waits(Collectives& collectives) : collectives_(collectives) {}
  Waits(const Waits&) = delete;
  Waits& operator=(const Waits&) = delete;
  ~Waits() { collectives_.within_actions().tensor += not_hidden(begin_, Clock::now()); }

 private:
  Collectives& collectives_;
  Clock::time_point begin_ = Clock::now();
};

}  // namespace

ElementType element_type(const at::Tensor& x) {
  switch (x.scalar_type()) {
    case at::kFloat:
      return ElementType::fp32;
    case at::kDouble:
      return ElementType::fp64;
    case at::kBFloat16:
      return ElementType::bf16;
    default:
      throw RunError("tensor group", std::string("does not add values of type ") + at::toString(x.scalar_type()));
  }
}

Clock::time_point TensorGroup::deadline() const { return after(unpaused_now(), place_.patience); }

std::vector<int> TensorGroup::ranks_at(const std::vector<int>& positions) const {
  std::vector<int> ranks;
  for (const int position : positions) ranks.push_back(place_.ranks.at(static_cast<std::size_t>(position)));
  return ranks;
}

std::int64_t TensorGroup::place_among(const std::vector<int>& positions) const {
  return static_cast<std::int64_t>(position_in(positions, place_.position));
}

void TensorGroup::sum_over(const std::vector<int>& positions, const at::Tensor& x) {
  const Waits waits(*collectives_);
  collectives_->all_reduce(ranks_at(positions), bytes_of(x), element_type(x), deadline());
}

void TensorGroup::sum_in_place(const at::Tensor& x, const std::vector<int>& positions) {
  if (!x.is_contiguous()) throw RunError("tensor group", "sums contiguous values in place");
  sum_over(positions, x);
}

at::Tensor TensorGroup::moved(const at::Tensor& x, const LocalMove& move) {
  if (!move) return x;
  const Collective collective = *move.move->move.collective;
  ticks_.tick(*move.move, collective, move.group);
  switch (collective) {
    case Collective::all_reduce:
      return summed(x, move);
    case Collective::all_gather:
      return gathered(x, move);
    case Collective::reduce_scatter:
      return summed_part(x, move);
    case Collective::all_to_all:
      break;
  }
  throw RunError("tensor group", "this collective is not executed");
}

at::Tensor TensorGroup::summed(const at::Tensor& x, const LocalMove& move) {
  at::Tensor sum = x.detach().clone(at::MemoryFormat::Contiguous);
  sum_over(move.group, sum);
  return sum;
}

// Each part goes where it belongs as it comes: two of all of them would be there otherwise.
at::Tensor TensorGroup::gathered(const at::Tensor& x, const LocalMove& move) {
  const Waits waits(*collectives_);
  const at::Tensor own = x.detach().contiguous();
  const std::int64_t ranks = std::ssize(move.group);
  const std::int64_t size = own.size(move.dimension);
  std::vector<std::int64_t> sizes = own.sizes().vec();
  sizes[static_cast<std::size_t>(move.dimension)] *= ranks;
  at::Tensor all = at::empty(sizes, own.options().requires_grad(false));
  const auto put = [&](std::int64_t whose, const at::Tensor& part) {
    all.narrow(move.dimension, whose * size, size).copy_(part);
  };
  const std::int64_t place = place_among(move.group);
  GatherInPieces gather(collectives_->transport(), ranks_at(move.group), bytes_of(own));
  put(place, own);
  for (std::int64_t distance = 1; distance < ranks; ++distance) {
    const Payload come = gather.next(deadline());
    put((place + ranks - distance) % ranks, at::from_blob(come.data, own.sizes(), own.options().requires_grad(false)));
  }
  return all;
}

// Each part leaves as a copy of its own: all of them would be there twice otherwise.
at::Tensor TensorGroup::summed_part(const at::Tensor& x, const LocalMove& move) {
  const Waits waits(*collectives_);
  const ScatteredParts parts(x, move);
  const std::int64_t place = place_among(move.group);
  const at::Tensor own = parts.part(place).clone(at::MemoryFormat::Contiguous);
  ScatterInPieces scatter(collectives_->transport(), ranks_at(move.group), own.nbytes());
  const std::int64_t ranks = std::ssize(move.group);
  for (std::int64_t distance = 1; distance < ranks; ++distance) {
    const std::int64_t whose = (place + distance) % ranks;
    const at::Tensor part = parts.part(whose).contiguous();
    scatter.give(static_cast<std::size_t>(whose), bytes_of(part));
  }
  scatter.finish(bytes_of(own), bytes_of(own), element_type(own), deadline());
  return parts.as_given(own);
}

std::vector<std::int64_t> TensorGroup::begin_pieces(const LocalMove& move, Collective executed) {
  if (!collectives_) throw RunError("tensor group", "moves pieces between hosts alone");
  ticks_.tick_in_pieces(*move.move, executed, move.group);
  if (move.dimension != tokens_dimension) throw RunError("tensor group", "pieces are of tokens");
  const int ranks = static_cast<int>(move.group.size());
  const int own = static_cast<int>(place_among(move.group));
  std::vector<std::int64_t> order;
  for (int number = 0; number < ranks; ++number) order.push_back(whose_piece(executed, ranks, own, number));
  return order;
}

void TensorGroup::gather_in_pieces(const at::Tensor& x, const LocalMove& move, const UsePiece& use) {
  const at::Tensor own = x.detach().contiguous();
  std::optional<GatherInPieces> gather;
  TimesBeside step;  // of the ring
  for (const std::int64_t whose : begin_pieces(move, Collective::all_gather)) {
    at::Tensor piece = own;
    Payload come;
    if (!gather) {
      step.begun = Clock::now();
      gather.emplace(collectives_->transport(), ranks_at(move.group), bytes_of(own));
      step.started = Clock::now();
    } else {
      step.wanted = Clock::now();
      come = gather->next(deadline());
      step.ended = Clock::now();
      step.arrived = gather->last_arrival();
      collectives_->within_actions().tensor += time_of(step);
      step.begun = step.started = step.ended;
      piece = at::from_blob(come.data, own.sizes(), own.options().requires_grad(false));
    }
    ticks_.tick_piece(static_cast<int>(whose));
    use(whose, piece);
  }
}

at::Tensor TensorGroup::scatter_in_pieces(const LocalMove& move, std::size_t bytes, const MakePiece& make) {
  const std::vector<std::int64_t> order = begin_pieces(move, Collective::reduce_scatter);
  ScatterInPieces scatter(collectives_->transport(), ranks_at(move.group), bytes);
  TimesBeside way;  // from the first piece that leaves
  at::Tensor own;
  for (const std::int64_t whose : order) {
    const at::Tensor piece = make(whose);
    ticks_.tick_piece(static_cast<int>(whose));
    if (whose == order.back()) {
      own = piece;
      continue;
    }
    if (whose == order.front()) way.begun = Clock::now();
    scatter.give(static_cast<std::size_t>(whose), bytes_of(piece));
    if (whose == order.front()) way.started = Clock::now();
  }
  way.wanted = Clock::now();
  at::Tensor sum = at::empty_like(own);
  scatter.finish(bytes_of(own), bytes_of(sum), element_type(own), deadline());
  way.ended = Clock::now();
  way.arrived = scatter.last_arrival();
  collectives_->within_actions().tensor += time_of(way);
  return sum;
}

at::Tensor TensorGroup::joined_statistics(const at::Tensor& rows, const LocalMove& move) {
  ticks_.tick(*move.move, Collective::all_reduce, move.group);
  return joined_rows(rows, move.group);
}

at::Tensor TensorGroup::joined_rows(const at::Tensor& rows, const std::vector<int>& positions) {
  const Waits waits(*collectives_);
  const std::vector<int> ranks = ranks_at(positions);
  const auto own = static_cast<std::size_t>(place_among(positions));
  const at::Tensor mine = rows.detach().contiguous();
  const std::size_t width = mine.nbytes() / static_cast<std::size_t>(mine.size(0));
  const auto give = equal_parts(bytes_of(mine), ranks.size(), width);
  const auto count = static_cast<std::int64_t>(give[own].size() / width);
  const at::Tensor of_ranks = at::empty({std::ssize(ranks), count, mine.size(1)}, mine.options());
  std::vector<std::span<std::byte>> take(ranks.size());
  if (count > 0) take = parts_of(of_ranks);
  collectives_->all_to_all(ranks, const_parts(give), take, deadline());
  at::Tensor all = at::empty_like(mine);
  const auto parts = equal_parts(bytes_of(all), ranks.size(), width);
  const std::size_t first = begin_of_part(static_cast<std::size_t>(mine.size(0)), ranks.size(), own);
  all.narrow(0, static_cast<std::int64_t>(first), count).copy_(joined(of_ranks));
  collectives_->all_gather(ranks, parts, deadline());
  return all;
}

}  // namespace plumb::exec

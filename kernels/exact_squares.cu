// Each thread has a column of digits of its own in shared memory, [digit][thread], which no other thread touches and
// whose words lie in banks of their own: an addition is three words read and written, without conflicts. A block goes
// over chunks in steps of the grid and writes one part; then one block adds up the parts.
#include "kernels/device/device.cuh"
#include "kernels/exact_squares.hpp"

namespace plumb::kernels {
namespace {

using namespace device;
using Word = unsigned long long;  // CUDA's 64-bit word, by that name

constexpr int threads = 256;
constexpr int pack = 4;
constexpr int packs_of_thread = 16;
constexpr int chunk = threads * pack * packs_of_thread;  // elements
constexpr int most_tensors = 160;                        // parameters of a kernel: at most 4 KiB
constexpr int digits = static_cast<int>(ExactSquares::digits);
constexpr int rows = digits + 1;  // the last: whether any value was not finite
constexpr int digit_bits = 32;
constexpr Word digit_mask = 0xffffffffULL;
constexpr int blocks_of_processor = 5;  // that have room for 42 KiB of shared memory each, of sm_90's 227
constexpr int most_parts = 1024;

static_assert(sizeof(Word) == sizeof(std::uint64_t));

struct Batch {
  SquaresTensor tensors[most_tensors];
  int first_chunk[most_tensors + 1];  // of each tensor; then the number of chunks
  int count;
};
static_assert(sizeof(Batch) < 4000);

using Columns = Word[rows][threads];

// As ExactSquares::add_square: fraction · 2^(exponent − 150), with exponent 1 for subnormals.
__device__ __forceinline__ void add_square(Columns& columns, int thread, float value) {
  const std::uint32_t bits = bits_of(value);
  const int biased = static_cast<int>(bits >> 23U & 0xffU);
  if (biased == 0xff) {
    columns[digits][thread] = 1;
    return;
  }
  const Word fraction = (bits & 0x7fffffU) | (biased == 0 ? 0U : 0x800000U);
  const int place = 2 * (biased > 1 ? biased - 1 : 0);
  const int shift = place % digit_bits;
  const int digit = place / digit_bits;
  const Word square = fraction * fraction;
  const Word low = (square & digit_mask) << shift;
  const Word high = (square >> digit_bits) << shift;
  columns[digit][thread] += low & digit_mask;
  columns[digit + 1][thread] += (low >> digit_bits) + (high & digit_mask);
  columns[digit + 2][thread] += high >> digit_bits;
}

__device__ __forceinline__ void carry(Columns& columns, int thread) {
  Word carried = 0;
  for (int digit = 0; digit < digits; ++digit) {
    const Word value = columns[digit][thread] + carried;
    columns[digit][thread] = value & digit_mask;
    carried = value >> digit_bits;
  }
}

// Into the first thread's column. Digits below 2^32 become such below 2^40.
__device__ __forceinline__ void add_columns(Columns& columns, int thread) {
  for (int half = threads / 2; half > 0; half /= 2) {
    sync_block();
    if (thread < half) {
      for (int row = 0; row < rows; ++row) columns[row][thread] += columns[row][thread + half];
    }
  }
  sync_block();
}

__global__ void __launch_bounds__(threads) squares_kernel(const __grid_constant__ Batch batch, Word* parts) {
  __shared__ Columns columns;
  const int thread = static_cast<int>(threadIdx.x);
  for (int row = 0; row < rows; ++row) columns[row][thread] = 0;
  const int chunks = batch.first_chunk[batch.count];
  for (int at_chunk = static_cast<int>(blockIdx.x); at_chunk < chunks; at_chunk += static_cast<int>(gridDim.x)) {
    const int low = place_of(at_chunk, batch.first_chunk, batch.count);
    const SquaresTensor tensor = batch.tensors[low];
    const std::int64_t begin = static_cast<std::int64_t>(at_chunk - batch.first_chunk[low]) * chunk;
    if (aligned_to<16>(tensor.values) && begin + chunk <= tensor.size) {
#pragma unroll 4
      for (int i = 0; i < packs_of_thread; ++i) {
        const Pack<float, pack> values = load<pack>(tensor.values + begin + (i * threads + thread) * pack);
        for (int j = 0; j < pack; ++j) add_square(columns, thread, values.at[j]);
      }
    } else {
      const std::int64_t end = begin + chunk < tensor.size ? begin + chunk : tensor.size;
      for (std::int64_t at = begin + thread; at < end; at += threads) add_square(columns, thread, tensor.values[at]);
    }
  }
  carry(columns, thread);
  add_columns(columns, thread);
  if (thread < rows) parts[static_cast<int>(blockIdx.x) * rows + thread] = columns[thread][0];
}

// numbers (+)= the parts, each of digits below 2^40.
__global__ void __launch_bounds__(threads) add_parts_kernel(const Word* parts, int count, bool first, Word* numbers) {
  __shared__ Columns columns;
  const int thread = static_cast<int>(threadIdx.x);
  for (int row = 0; row < rows; ++row) columns[row][thread] = 0;
  for (int part = thread; part < count; part += threads) {
    for (int row = 0; row < rows; ++row) columns[row][thread] += parts[part * rows + row];
  }
  carry(columns, thread);
  add_columns(columns, thread);
  if (thread == 0) {
    if (!first) {
      for (int row = 0; row < rows; ++row) columns[row][0] += numbers[row];
    }
    carry(columns, 0);
    for (int row = 0; row < rows; ++row) numbers[row] = columns[row][0];
  }
}

int parts_of(int chunks) {
  const int blocks = std::min(processors() * blocks_of_processor, most_parts);
  return std::min(chunks, blocks);
}

void launch_batch(const Batch& batch, bool first, Word* parts, Word* numbers, Stream stream) {
  const int count = parts_of(batch.first_chunk[batch.count]);
  if (count > 0) launch(squares_kernel, dim3(static_cast<unsigned>(count)), threads, 0, stream, batch, parts);
  launch(add_parts_kernel, dim3(1), threads, 0, stream, parts, count, first, numbers);
}

}  // namespace

std::int64_t exact_squares_workspace() { return std::int64_t{most_parts} * rows; }

void exact_squares(std::span<const SquaresTensor> tensors, std::uint64_t* workspace, std::uint64_t* numbers,
                   Stream stream) {
  auto* const parts = reinterpret_cast<Word*>(workspace);
  auto* const sum = reinterpret_cast<Word*>(numbers);
  Batch batch = {};
  bool first = true;
  for (const SquaresTensor& tensor : tensors) {
    require(tensor.size >= 0 && tensor.size < (std::int64_t{1} << 40), "0 <= size < 2^40");
    if (tensor.size == 0) continue;
    if (batch.count == most_tensors) {
      launch_batch(batch, first, parts, sum, stream);
      first = false;
      batch.count = 0;
    }
    batch.tensors[batch.count] = tensor;
    batch.first_chunk[batch.count + 1] = batch.first_chunk[batch.count] + ceil_div(tensor.size, chunk);
    ++batch.count;
  }
  launch_batch(batch, first, parts, sum, stream);
}

}  // namespace plumb::kernels

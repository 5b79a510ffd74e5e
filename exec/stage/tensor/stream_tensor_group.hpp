// A tensor group whose collectives move on the streams of a device.
#pragma once

#include <vector>

#include "exec/device/device.hpp"
#include "exec/stage/tensor/tensor_group.hpp"

namespace plumb::exec {

// Each starts when the compute stream has made what it reads, and what is put there behind it starts when it has ended:
// memory of both that is let go of then is used again only behind that, so nothing of it is held. No call waits for the
// device. Sums are NCCL's, in an order of its own.
class StreamTensorGroup final : public TensorGroup {
 public:
  // `transport` (Transport::collective) and `device`, whose compute stream is the thread's, must outlive this.
  StreamTensorGroup(Transport& transport, Device& device, Place place)
      : TensorGroup(nullptr, std::move(place)), transport_(transport), device_(device) {}

 private:
  void sum_over(const std::vector<int>& positions, const at::Tensor& x) override;
  [[nodiscard]] at::Tensor gathered(const at::Tensor& x, const LocalMove& move) override;
  [[nodiscard]] at::Tensor summed_part(const at::Tensor& x, const LocalMove& move) override;
  // An all-reduce of the maxima, and one of the sums and the targets: together the bytes of one of all three.
  [[nodiscard]] at::Tensor joined_rows(const at::Tensor& rows, const std::vector<int>& positions) override;

  // Of the whole group or a part of it.
  void run(const std::vector<int>& positions, CollectiveCall call);

  Transport& transport_;
  Device& device_;
};

}  // namespace plumb::exec

// A rank's part of a head whose vocabulary is divided over a pipeline (Yeung et al., arXiv 2411.05288).
#pragma once

#include <map>
#include <memory>
#include <span>

#include "exec/stage/head_part_moves.hpp"
#include "exec/stage/torch_stage.hpp"
#include "exec/stage/vocabulary/part_softmax.hpp"

namespace plumb::exec {

// The passes S and T of common/schedule/vocabulary_parts.hpp, with one barrier or two. Written out, since what they
// make depends on what other ranks have made meanwhile, which autograd does not know. b sequences of s tokens, hidden
// width h, v rows of the vocabulary here.
//
//   S, F: of the last stage's output x [b, s, h] the logits x·Wᵀ + bias [b·s, v] and their statistics [b·s, 3], fp32
//   one barrier, I: A = softmax of the part · W [b, s, h], that stays here; S's last action gives the statistics
//   join_statistics: the loss; with one barrier gives this part's summand of the gradient of x, A scaled less W's rows
//   two barriers, T, B: gives the summand, and adds to the gradients of W and bias
//   one barrier, T, W: adds to these
//
// Where a tensor group shares the part out, its ranks make all of it of their own rows of Wᵀ, together: x is gathered
// if each has other tokens; the statistics are joined, so that the part's softmax is that of all their rows; gradients
// of x are added up; and with one barrier W's rows of the targets, which are not scaled, apart from these.
class HeadPart final : public TorchStage {
 public:
  // Of the model's part (ModelPart::vocabulary, vocabulary_and_target_rows) the block is its head
  // alone. `settings.table`: of a tied model, that of the embedding's part on the same rank, which has its gradient and
  // updates it; else null.
  HeadPart(TorchStageSettings settings, std::shared_ptr<const Corpus> corpus, int barriers);

  [[nodiscard]] Payload forward(int microbatch, Payload input) override;
  [[nodiscard]] Payload input_gradient(int microbatch, Payload output_gradient) override;
  [[nodiscard]] Payload join_statistics(int microbatch, std::span<const Payload> of_parts) override;
  [[nodiscard]] Payload backward(int microbatch, Payload output_gradient) override;
  void weight_gradient(int microbatch) override;
  // Throw RunError: nothing of a part is redone or moved.
  void recompute(int microbatch) override;
  [[nodiscard]] Parcel evict(int microbatch) override;
  void load(int microbatch, Parcel parcel) override;
  void end_step() override;

 private:
  void tell_complete();
  [[noreturn]] void refuse(const char* action, int microbatch) const;
  // Hidden states of the tokens that this rank has stand as [b, s, h], all others as [b·s, …].
  struct Microbatch {
    at::Tensor x;
    PartLogits part;
    at::Tensor softmax;      // with one barrier, of the part's own rows, [b·s, v]
    at::Tensor gradient;     // A, until the statistics are joined,
    at::Tensor target_rows;  // and W's rows of the targets that the tensor group has, if there is one
    TokenStatistics of_all;
  };

  [[nodiscard]] Microbatch& under_way(int microbatch, const char* action);
  [[nodiscard]] Microbatch ended(int microbatch, const char* action);
  [[nodiscard]] double gradient_scale(int microbatch) const;
  [[nodiscard]] at::Tensor logits_of(const at::Tensor& x) const;
  [[nodiscard]] at::Tensor summand(const Microbatch& of, double scale) const;

  [[nodiscard]] Block& head() { return *blocks_.front(); }

  int barriers_;
  std::int64_t first_row_;  // of the vocabulary that this rank has
  PartMoves moves_;
  WeightPtr table_;
  WeightPtr bias_;  // null: it has none
  std::map<int, Microbatch> microbatches_;
};

}  // namespace plumb::exec

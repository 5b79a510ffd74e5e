// Builds the list of a layer's operations from its parameters; only operations*.cpp include it.
#pragma once

#include <string>
#include <vector>

#include "common/model/operations.hpp"
#include "common/model/parameters.hpp"

namespace plumb {

inline constexpr double fp32_bytes = 4;
inline constexpr double index_bytes = 8;  // int64 token ids and expert indices

// Shapes are whole numbers, costs are not.
[[nodiscard]] inline double real(std::int64_t value) { return static_cast<double>(value); }

// FLOPs of a core (attention, recurrence), which has no weights.
struct CoreFlops {
  double forward = 0;
  double backward = 0;
};

struct KeptBytes {
  double until_input_gradient = 0;
  double until_weight_gradient = 0;
  double as_input = 0;  // of the first: the output, where only the weight gradients of the matmuls behind it need it
};

// `prefix` is that of the parameters' names, such as "layers.3."; operations are named without it.
class OperationList {
 public:
  OperationList(const Model& model, const OperationContext& context, std::string prefix,
                std::vector<Parameter> parameters);

  [[nodiscard]] double element() const { return element_; }    // bytes of one activation
  [[nodiscard]] double hidden() const { return hidden_; }      // elements
  [[nodiscard]] double sequence() const { return sequence_; }  // tokens
  [[nodiscard]] std::int64_t tokens() const { return static_cast<std::int64_t>(sequence_); }
  // That a query of a slice's last token can see, of a whole sequence all.
  [[nodiscard]] std::int64_t keys() const { return context_.before + tokens(); }
  // Of the two ends of a sequence, those that this part of it has.
  [[nodiscard]] int ends() const { return (context_.before == 0 ? 1 : 0) + (context_.after == 0 ? 1 : 0); }
  [[nodiscard]] const OperationContext& context() const { return context_; }
  [[nodiscard]] bool has_rotary() const { return rotary_; }

  // It multiplies the output of the norm that began the branch, unless told otherwise.
  // The weights of "PREFIX NAME.weight": 2 FLOPs per element and token in each of F, I and W; W needs the gradient of
  // the output. Of experts, top_k meet a token. `share`: the part of the tokens that it multiplies.
  Operation& matmul(const std::string& name, std::int64_t top_k = 1, double share = 1);
  // The same, of the output before it.
  Operation& matmul_of_latest(const std::string& name, std::int64_t top_k = 1);
  // Input and output are kept; the output, as a matmul's input, until W.
  Operation& norm(const std::string& name, NormKind kind);
  // Its output is added to the residual, so only its input is kept.
  Operation& post_norm(const std::string& name, NormKind kind);
  Operation& core(const std::string& name, OperationKind kind, CoreFlops flops, KeptBytes kept);
  // Reads and writes `forward` elements of a token in F, `backward` in I.
  struct Elements {
    double forward = 0;
    double backward = 0;
  };
  Operation& pass(const std::string& name, OperationKind kind, Elements elements, KeptBytes kept);
  // Addition of a branch to the residual, with its dropout.
  Operation& residual(const std::string& name);
  // A depthwise convolution, whose output is kept; its input too, and both until W.
  Operation& convolution(const std::string& name, double channels, double kernel);
  Operation& add(Operation operation);

  [[nodiscard]] std::vector<Operation> take() && { return std::move(operations_); }

 private:
  [[nodiscard]] bool has_bias(const std::string& name) const;
  Operation& norm_pass(const std::string& name, NormKind kind, KeptBytes kept);

  OperationContext context_;
  bool rotary_;
  double element_;
  double hidden_;
  double sequence_;
  std::string prefix_;
  std::vector<Parameter> parameters_;
  std::vector<Operation> operations_;
  std::string normed_;  // the norm whose output the branch begins with
  std::string latest_;  // the latest operation that is no matmul of weights
};

void add_mixer(OperationList& list, const Mixer& mixer);
void add_mlp(OperationList& list, const Mlp& mlp);
void add_recurrence(OperationList& list, const GatedDelta& delta);
void add_recurrence(OperationList& list, const ChannelGatedDelta& delta);
void add_recurrence(OperationList& list, const Lightning& lightning);
void add_recurrence(OperationList& list, const Mamba& mamba);
void add_recurrence(OperationList& list, const Mamba2& mamba);

}  // namespace plumb

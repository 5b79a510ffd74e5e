#include "common/block_cost/block_work.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <tuple>
#include <utility>
#include <vector>

#include "common/block_cost/analytic_cost.hpp"
#include "common/model/divided_vocabulary.hpp"

namespace plumb {
namespace {

// All that the answer depends on.
struct Question {
  std::size_t block = 0;
  Slice slice;
  TensorLayout tensor;
  std::int64_t sequence = 0;
  std::int64_t microbatch = 0;
  ElementType precision = ElementType::bf16;
  std::optional<Lora> lora;
  Model model;
  Software software;
  bool framework_on_host = false;  // all that the machine is asked for
  bool operator==(const Question&) const = default;
};

// Of the layers the one that the block is or, behind the head, is made of: wherever it stands in whichever model.
// Adapters of other layers decide how far a backward goes.
void leave_other_layers_out(Question& question) {
  Model& model = question.model;
  model.name.clear();
  if (question.lora || model.layers.empty()) return;
  const bool head = question.block > model.layers.size();
  if (question.block == 0) {
    model.layers.clear();
  } else {
    model.layers = {head ? model.layers.back() : model.layers[question.block - 1]};
    question.block = head ? 2 : 1;
  }
}

Question question_of(const Scenario& scenario, std::size_t block, Slice slice) {
  const KernelContext context = kernel_context(scenario, slice);
  slice.tokens = tokens_of(context);
  Question question{.block = block,
                    .slice = slice,
                    .tensor = scenario.layout.tensor,
                    .sequence = scenario.training.sequence,
                    .microbatch = scenario.training.microbatch,
                    .precision = scenario.training.precision,
                    .lora = scenario.training.lora,
                    .model = scenario.model,
                    .software = scenario.software,
                    .framework_on_host = context.framework_on_host};
  if (scenario.layout.vocabulary_barriers > 0) question.model = without_vocabulary(std::move(question.model));
  leave_other_layers_out(question);
  return question;
}

BlockWork made(const Question& question) {
  Scenario scenario{.model = question.model, .software = question.software};
  scenario.training.sequence = question.sequence;
  scenario.training.microbatch = question.microbatch;
  scenario.training.precision = question.precision;
  scenario.training.lora = question.lora;
  scenario.layout.tensor = question.tensor;
  KernelContext context = kernel_context(scenario, question.slice);
  context.framework_on_host = question.framework_on_host;
  BlockWork work{.shapes = shapes_of_block(scenario, question.block, operation_context(context)), .program = {}};
  work.program = block_program(work.shapes.operations, context, work.shapes.placed);
  return work;
}

struct Answer {
  Question question;
  std::shared_ptr<const BlockWork> work;
};

// What sets most questions of one model apart, and is compared fast.
using Bucket = std::tuple<std::size_t, Slice, int, bool, std::int64_t, std::int64_t>;

Bucket bucket_of(const Question& of) {
  return {of.block, of.slice, of.tensor.degree, of.tensor.sequence_parallel, of.sequence, of.microbatch};
}

// Shared by all threads, of which most ask for what another has made.
class Answers {
 public:
  [[nodiscard]] std::shared_ptr<const BlockWork> find(const Question& question) const {
    const std::shared_lock lock(mutex_);
    const auto bucket = buckets_.find(bucket_of(question));
    if (bucket == buckets_.end()) return nullptr;
    const auto found = std::ranges::find(bucket->second, question, &Answer::question);
    return found != bucket->second.end() ? found->work : nullptr;
  }

  void add(Answer answer) {
    constexpr std::size_t most = 2048;
    const std::unique_lock lock(mutex_);
    if (count_ == most) {
      buckets_.clear();
      count_ = 0;
    }
    buckets_[bucket_of(answer.question)].push_back(std::move(answer));
    ++count_;
  }

 private:
  mutable std::shared_mutex mutex_;
  std::map<Bucket, std::vector<Answer>> buckets_;
  std::size_t count_ = 0;
};

std::shared_ptr<const BlockWork> work_of(Question question) {
  static Answers remembered;
  if (auto work = remembered.find(question)) return work;
  auto work = std::make_shared<const BlockWork>(made(question));
  remembered.add({.question = std::move(question), .work = work});
  return work;
}

}  // namespace

std::shared_ptr<const BlockWork> work_of_block(const Scenario& scenario, std::size_t block, Slice slice) {
  return work_of(question_of(scenario, block, slice));
}

std::int64_t table_of_rank(const Scenario& scenario) {
  if (scenario.model.vision) return 0;
  // Whatever the tokens: of so many that every layout divides them.
  Question question = question_of(scenario, 0, {});
  question.microbatch = question.sequence = question.slice.tokens = question.tensor.degree;
  return stored_elements(work_of(std::move(question))->shapes.placed, "embedding.weight");
}

}  // namespace plumb

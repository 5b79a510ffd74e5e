#include "common/search/fast_evaluator.hpp"

namespace plumb {

class FastEvaluator::Impl {
 public:
  explicit Impl(const Scenario& scenario) : scenario_(scenario) {}
  Seconds time_bound(const Family&) { return {}; }
  Bytes memory_bound(const Family&) { return {}; }
  Estimate weigh(const Family& family, const SplitChoice& split) { return weigh_slowly(scenario_, family, split); }

 private:
  const Scenario scenario_;
};

FastEvaluator::FastEvaluator(const Scenario& scenario) : impl_(std::make_unique<Impl>(scenario)) {}
FastEvaluator::~FastEvaluator() = default;
FastEvaluator::FastEvaluator(FastEvaluator&&) noexcept = default;
FastEvaluator& FastEvaluator::operator=(FastEvaluator&&) noexcept = default;

Seconds FastEvaluator::time_bound(const Family& family) { return impl_->time_bound(family); }
Bytes FastEvaluator::memory_bound(const Family& family) { return impl_->memory_bound(family); }
Estimate FastEvaluator::weigh(const Family& family, const SplitChoice& split) { return impl_->weigh(family, split); }

}  // namespace plumb

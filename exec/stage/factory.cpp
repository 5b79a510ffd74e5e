#include "exec/stage/factory.hpp"

#include "common/base/error.hpp"

namespace plumb::exec {
namespace {

InputError not_built() { return InputError("stages", "training is not built yet", "run with --emulate"); }

}  // namespace

void begin_rank_thread(int /*rank*/) {}
std::vector<std::unique_ptr<Stage>> make_stages(const Plan& /*plan*/, int /*rank*/, const StageOptions& /*options*/) {
  throw not_built();
}
NamedGradients gradients(const std::vector<std::unique_ptr<Stage>>& /*stages*/) { throw not_built(); }
CheckResult check_against_reference(const Plan& /*plan*/, const StageOptions& /*options*/,
                                    const std::vector<double>& /*losses*/, const NamedGradients& /*gradients*/) {
  throw not_built();
}
Payload allocate_payload(std::size_t bytes) {
  auto buffer = std::make_shared<std::vector<std::byte>>(bytes);
  return {.owner = buffer, .data = buffer->data(), .size = bytes};
}
void memory_moved(const std::byte* /*data*/, int /*to_rank*/) {}
Bytes peak_bytes(int /*rank*/) { return {}; }
void reset_peak(int /*rank*/) {}

}  // namespace plumb::exec

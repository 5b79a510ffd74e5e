#include "common/capability/framework.hpp"

namespace plumb {

const std::vector<std::string>& framework_names() {
  static const std::vector<std::string> names = {"megatron", "torchtitan", "plumb-exec"};
  return names;
}

const std::string& name_of(Framework framework) { return framework_names().at(static_cast<std::size_t>(framework)); }

Purpose purpose_of(Framework framework, bool on_gpus) {
  switch (framework) {
    case Framework::megatron:
      return Purpose::megatron;
    case Framework::torchtitan:
      return Purpose::torchtitan;
    case Framework::plumb_exec:
      break;
  }
  return on_gpus ? Purpose::devices : Purpose::hosts;
}

}  // namespace plumb

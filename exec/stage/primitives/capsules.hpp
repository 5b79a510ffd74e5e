// Weights and queues travel through an autograd node as capsules.
#pragma once

#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/custom_function.h>

namespace plumb::exec {

// Null is not kept, and found as null.
inline void keep(torch::autograd::AutogradContext* context, const char* name,
                 const c10::intrusive_ptr<torch::CustomClassHolder>& object) {
  if (object) {
    context->saved_data[name] = c10::IValue::make_capsule(object);
  }
}

template <class Object>
[[nodiscard]] c10::intrusive_ptr<Object> kept(torch::autograd::AutogradContext* context, const char* name) {
  const auto found = context->saved_data.find(name);
  if (found == context->saved_data.end()) {
    return {};
  }
  return c10::static_intrusive_pointer_cast<Object>(found->second.toCapsule());
}

}  // namespace plumb::exec

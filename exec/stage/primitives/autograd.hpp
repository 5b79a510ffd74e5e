// What an autograd function of ours is written with; weights and queues travel through its node as capsules.
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/custom_function.h>

namespace plumb::exec {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::Variable;
using torch::autograd::variable_list;

// Null is not kept, and found as null.
inline void keep(AutogradContext* context, const char* name,
                 const c10::intrusive_ptr<torch::CustomClassHolder>& object) {
  if (object) {
    context->saved_data[name] = c10::IValue::make_capsule(object);
  }
}

template <class Object>
[[nodiscard]] c10::intrusive_ptr<Object> kept(AutogradContext* context, const char* name) {
  const auto found = context->saved_data.find(name);
  if (found == context->saved_data.end()) {
    return {};
  }
  return c10::static_intrusive_pointer_cast<Object>(found->second.toCapsule());
}

}  // namespace plumb::exec

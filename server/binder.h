// Ties each op message to its layer: which field of the message is which field of the argument
// struct, by protobuf's descriptors and the layers' field tables. Built once at start, where it
// finds whatever does not fit; constant and thread-safe after.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "kernels/layer.h"

namespace kernelbox::server {

// One field of an op message and of its argument struct.
struct FieldPlan {
  const google::protobuf::FieldDescriptor* descriptor = nullptr;
  const char* name = nullptr;
  FieldKind kind = FieldKind::kIn;
  size_t offset = 0;
  // Tensors only.
  bool optional = false;
  bool list = false;
  // Attributes only: what an absent field means; integers, flags and enums use default_int.
  double default_double = 0;
  int64_t default_int = 0;
  bool has_default = false;
};

struct OpPlan {
  // Op.kind's field, such as "linear_backward".
  std::string name;
  const google::protobuf::FieldDescriptor* member = nullptr;
  const Layer* layer = nullptr;
  std::vector<FieldPlan> inputs;
  std::vector<FieldPlan> in_outs;
  std::vector<FieldPlan> outputs;
  std::vector<FieldPlan> attributes;
};

class Binder {
 public:
  // `op` describes the message with the oneof `kind`; `layers` is the registry's head. `problems`
  // gets a sentence for each fault: an op without layer or a layer without op, fields that do not
  // agree one to one in name, role and type, a default that is no value of its type, a backward
  // message that breaks the naming rule, a layer with data errors and in-out tensors. The binder
  // may be used only if there are none.
  Binder(const google::protobuf::Descriptor& op, const Layer* layers,
         std::vector<std::string>& problems);

  // The plan of an op message; null if its kind is not set.
  const OpPlan* Find(const google::protobuf::Message& op) const;

  // Writes the attributes of `message` (Op.kind's member) into `args`. Lists of integers stay the
  // message's. INVALID_ATTRIBUTE for an enum's number that has no name, MISSING_FIELD for an enum
  // that has no default and is not given.
  [[nodiscard]] static absl::Status BindAttributes(const OpPlan& plan,
                                                   const google::protobuf::Message& message,
                                                   void* args);

  // One for each member of the oneof, in order.
  const std::vector<OpPlan>& plans() const { return plans_; }
  // The size of the largest argument struct.
  size_t max_args_bytes() const { return max_args_bytes_; }

 private:
  const google::protobuf::OneofDescriptor* kind_ = nullptr;
  std::vector<OpPlan> plans_;  // by index in the oneof
  size_t max_args_bytes_ = 0;
};

// The elements of a repeated field, contiguous. (GetRepeatedFieldRef, which protobuf recommends,
// has no pointer to them and a virtual call for each.)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
template <class T>
const google::protobuf::RepeatedField<T>& RepeatedOf(const google::protobuf::Message& message,
                                                     const FieldPlan& field) {
  return message.GetReflection()->GetRepeatedField<T>(message, field.descriptor);
}
#pragma GCC diagnostic pop

// The rule that makes gradients generic, for binder.cc: a message <X>Backward has only fields of
// X by the same name and type, d_<output of X> as inputs and d_<input of X> as outputs.
void CheckNamingRule(const google::protobuf::Descriptor& forward,
                     const google::protobuf::Descriptor& backward,
                     std::vector<std::string>& problems);

}  // namespace kernelbox::server

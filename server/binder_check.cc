// The naming rule of backward messages; see binder.h.
#include <string_view>

#include "absl/strings/str_cat.h"
#include "kernelbox/v1/options.pb.h"
#include "server/binder.h"

namespace kernelbox::server {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

v1::FieldSpec SpecOf(const FieldDescriptor& field) {
  return field.options().GetExtension(v1::field);
}

bool IsInput(v1::Role role) { return role == v1::ROLE_INPUT || role == v1::ROLE_OPTIONAL_INPUT; }
bool IsOutput(v1::Role role) { return role == v1::ROLE_OUTPUT || role == v1::ROLE_OPTIONAL_OUTPUT; }

// What is wrong with one field of a backward message; empty if nothing is.
std::string FaultOf(const FieldDescriptor& field, const Descriptor& forward) {
  const v1::FieldSpec spec = SpecOf(field);
  if (const FieldDescriptor* same = forward.FindFieldByName(field.name()); same != nullptr) {
    const v1::FieldSpec same_spec = SpecOf(*same);
    if (same->type() != field.type() || same->label() != field.label()) {
      return "has another type than forward's field";
    }
    if (same_spec.role() == v1::ROLE_ATTRIBUTE) {
      if (spec.role() != v1::ROLE_ATTRIBUTE) return "is an attribute of forward";
      if (spec.default_value() != same_spec.default_value()) {
        return "has another default than forward's field";
      }
      return "";
    }
    return IsInput(spec.role()) ? "" : "is a tensor of forward, so it must be an input";
  }
  constexpr std::string_view kGradient = "d_";
  const std::string_view name = field.name();
  if (name.substr(0, kGradient.size()) != kGradient) {
    return "is neither a field of forward nor the gradient of one";
  }
  const FieldDescriptor* of = forward.FindFieldByName(std::string(name.substr(kGradient.size())));
  if (of == nullptr) return "is the gradient of no field of forward";
  if (of->is_repeated() != field.is_repeated()) return "must be a list if forward's field is one";
  const v1::Role role = SpecOf(*of).role();
  if (IsOutput(role) && IsInput(spec.role())) return "";
  if (IsInput(role) && IsOutput(spec.role())) return "";
  return "must be an input if it is the gradient of an output, an output if of an input";
}

}  // namespace

void CheckNamingRule(const Descriptor& forward, const Descriptor& backward,
                     std::vector<std::string>& problems) {
  for (int i = 0; i < backward.field_count(); ++i) {
    const FieldDescriptor& field = *backward.field(i);
    if (std::string fault = FaultOf(field, forward); !fault.empty()) {
      problems.push_back(absl::StrCat(backward.name(), ".", field.name(), " ", fault));
    }
  }
}

}  // namespace kernelbox::server

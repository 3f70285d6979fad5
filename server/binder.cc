#include "server/binder.h"

#include <algorithm>
#include <string_view>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "kernelbox/v1/options.pb.h"
#include "kernelbox/v1/types.pb.h"
#include "server/error.h"

namespace kernelbox::server {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// The numbers of the enums in kernels/ are those on the wire.
static_assert(static_cast<int>(DType::kFloat32) == v1::D_TYPE_FLOAT32);
static_assert(static_cast<int>(DType::kFloat16) == v1::D_TYPE_FLOAT16);
static_assert(static_cast<int>(DType::kBFloat16) == v1::D_TYPE_BFLOAT16);
static_assert(static_cast<int>(DType::kFloat64) == v1::D_TYPE_FLOAT64);
static_assert(static_cast<int>(DType::kInt32) == v1::D_TYPE_INT32);
static_assert(static_cast<int>(DType::kInt64) == v1::D_TYPE_INT64);
static_assert(static_cast<int>(DType::kUInt8) == v1::D_TYPE_UINT8);
static_assert(static_cast<int>(DType::kBool) == v1::D_TYPE_BOOL);
static_assert(v1::DType_ARRAYSIZE == static_cast<int>(DType::kBool) + 1);
static_assert(static_cast<int>(Layout::kContiguous) == v1::LAYOUT_CONTIGUOUS);
static_assert(static_cast<int>(Layout::kChannelsLast) == v1::LAYOUT_CHANNELS_LAST);
static_assert(v1::Layout_ARRAYSIZE == static_cast<int>(Layout::kChannelsLast) + 1);

// What a FieldKind asks of the message's field.
struct Expectation {
  v1::Role role;
  FieldDescriptor::Type type;
  bool repeated;
};

Expectation ExpectationOf(FieldKind kind) {
  constexpr auto kHandle = FieldDescriptor::TYPE_UINT64;
  switch (kind) {
    case FieldKind::kIn:
      return {v1::ROLE_INPUT, kHandle, false};
    case FieldKind::kOptionalIn:
      return {v1::ROLE_OPTIONAL_INPUT, kHandle, false};
    case FieldKind::kOut:
      return {v1::ROLE_OUTPUT, kHandle, false};
    case FieldKind::kOptionalOut:
      return {v1::ROLE_OPTIONAL_OUTPUT, kHandle, false};
    case FieldKind::kInOut:
      return {v1::ROLE_IN_OUT, kHandle, false};
    case FieldKind::kOptionalInOut:
      return {v1::ROLE_OPTIONAL_IN_OUT, kHandle, false};
    case FieldKind::kInList:
      return {v1::ROLE_INPUT, kHandle, true};
    case FieldKind::kOptionalInList:
      return {v1::ROLE_OPTIONAL_INPUT, kHandle, true};
    case FieldKind::kInOutList:
      return {v1::ROLE_IN_OUT, kHandle, true};
    case FieldKind::kOptionalInOutList:
      return {v1::ROLE_OPTIONAL_IN_OUT, kHandle, true};
    case FieldKind::kDouble:
    case FieldKind::kOptionalDouble:
      return {v1::ROLE_ATTRIBUTE, FieldDescriptor::TYPE_DOUBLE, false};
    case FieldKind::kInt:
    case FieldKind::kOptionalInt:
      return {v1::ROLE_ATTRIBUTE, FieldDescriptor::TYPE_INT64, false};
    case FieldKind::kBool:
      return {v1::ROLE_ATTRIBUTE, FieldDescriptor::TYPE_BOOL, false};
    case FieldKind::kEnum:
      return {v1::ROLE_ATTRIBUTE, FieldDescriptor::TYPE_ENUM, false};
    case FieldKind::kIntList:
      return {v1::ROLE_ATTRIBUTE, FieldDescriptor::TYPE_INT64, true};
  }
  return {v1::ROLE_UNSPECIFIED, kHandle, false};
}

std::string Describe(const Expectation& expectation) {
  return absl::StrCat(expectation.repeated ? "a repeated " : "a ",
                      FieldDescriptor::TypeName(expectation.type), " with ",
                      v1::Role_Name(expectation.role));
}

// Reads the notation of FieldSpec.default_value into the plan.
bool ParseDefault(const std::string& text, FieldPlan& plan) {
  switch (plan.descriptor->type()) {
    case FieldDescriptor::TYPE_DOUBLE:
      return absl::SimpleAtod(text, &plan.default_double);
    case FieldDescriptor::TYPE_INT64:
      return absl::SimpleAtoi(text, &plan.default_int);
    case FieldDescriptor::TYPE_BOOL:
      plan.default_int = text == "true";
      return text == "true" || text == "false";
    case FieldDescriptor::TYPE_ENUM: {
      const EnumValueDescriptor* value = plan.descriptor->enum_type()->FindValueByName(text);
      if (value == nullptr || value->number() == 0) return false;
      plan.default_int = value->number();
      return true;
    }
    default:
      return false;
  }
}

void PlanAttribute(const v1::FieldSpec& spec, const std::string& where, FieldPlan& plan,
                   std::vector<std::string>& problems) {
  const bool none_is_a_value =
      plan.kind == FieldKind::kOptionalDouble || plan.kind == FieldKind::kOptionalInt;
  const bool presence = plan.descriptor->has_optional_keyword();
  plan.has_default = !spec.default_value().empty();
  if (plan.has_default && !ParseDefault(spec.default_value(), plan)) {
    problems.push_back(absl::StrCat(where, ": the default \"", spec.default_value(),
                                    "\" is not a value of its type"));
  }
  if (presence != (plan.has_default || none_is_a_value)) {
    problems.push_back(absl::StrCat(
        where, presence ? " is optional, so it needs a default or the type Optional<>"
                        : " has a default or the type Optional<>, so it must be optional"));
  }
  if (plan.has_default && none_is_a_value) {
    problems.push_back(absl::StrCat(where, " has a default, so its type is not Optional<>"));
  }
}

// The message's field and the struct's field as one plan.
void PlanField(const FieldDescriptor& descriptor, const Field& field, OpPlan& op,
               std::vector<std::string>& problems) {
  const std::string where = absl::StrCat(op.layer->name, ".", field.name);
  const v1::FieldSpec& spec = descriptor.options().GetExtension(v1::field);
  const Expectation wanted = ExpectationOf(field.kind);
  const Expectation found = {spec.role(), descriptor.type(), descriptor.is_repeated()};
  if (wanted.role != found.role || wanted.type != found.type || wanted.repeated != found.repeated) {
    problems.push_back(absl::StrCat(where, ": the layer wants ", Describe(wanted),
                                    ", the message has ", Describe(found)));
    return;
  }
  FieldPlan plan;
  plan.descriptor = &descriptor;
  plan.name = field.name;
  plan.kind = field.kind;
  plan.offset = field.offset;
  plan.list = wanted.repeated;
  switch (wanted.role) {
    case v1::ROLE_OPTIONAL_INPUT:
    case v1::ROLE_INPUT:
      plan.optional = wanted.role == v1::ROLE_OPTIONAL_INPUT;
      op.inputs.push_back(plan);
      break;
    case v1::ROLE_OPTIONAL_OUTPUT:
    case v1::ROLE_OUTPUT:
      plan.optional = wanted.role == v1::ROLE_OPTIONAL_OUTPUT;
      op.outputs.push_back(plan);
      break;
    case v1::ROLE_OPTIONAL_IN_OUT:
    case v1::ROLE_IN_OUT:
      plan.optional = wanted.role == v1::ROLE_OPTIONAL_IN_OUT;
      op.in_outs.push_back(plan);
      break;
    default:
      PlanAttribute(spec, where, plan, problems);
      op.attributes.push_back(plan);
      break;
  }
}

void PlanFields(const Descriptor& message, OpPlan& op, std::vector<std::string>& problems) {
  for (int i = 0; i < message.field_count(); ++i) {
    const std::string& name = message.field(i)->name();
    const Field* end = op.layer->fields + op.layer->field_count;
    const Field* field =
        std::find_if(op.layer->fields, end, [&](const Field& other) { return name == other.name; });
    if (field == end) {
      problems.push_back(absl::StrCat(message.name(), ".", name, ": the layer has no such field"));
    } else {
      PlanField(*message.field(i), *field, op, problems);
    }
  }
  for (int i = 0; i < op.layer->field_count; ++i) {
    const char* name = op.layer->fields[i].name;
    if (message.FindFieldByName(name) == nullptr) {
      problems.push_back(
          absl::StrCat(message.name(), ".", name, ": the message has no such field"));
    }
  }
  if (op.layer->has_data_errors && !op.in_outs.empty()) {
    problems.push_back(absl::StrCat(message.name(),
                                    " can find faults in its data, so it must have no in-out "
                                    "tensors: they would be half changed"));
  }
}

absl::Status BindEnum(const FieldPlan& plan, const Reflection& reflection, const Message& message,
                      int32_t& value) {
  value = reflection.GetEnumValue(message, plan.descriptor);
  if (value == 0) {
    if (!plan.has_default) {
      return MakeError(v1::ERROR_REASON_MISSING_FIELD, absl::StrCat(plan.name, " is missing"),
                       {{"field", plan.name}});
    }
    value = static_cast<int32_t>(plan.default_int);
  } else if (plan.descriptor->enum_type()->FindValueByNumber(value) == nullptr) {
    return FieldError(v1::ERROR_REASON_INVALID_ATTRIBUTE, plan.name,
                      absl::StrCat("a value of ", plan.descriptor->enum_type()->name()),
                      absl::StrCat(value));
  }
  return absl::OkStatus();
}

}  // namespace

Binder::Binder(const Descriptor& op, const Layer* layers, std::vector<std::string>& problems)
    : kind_(op.FindOneofByName("kind")) {
  if (kind_ == nullptr) {
    problems.push_back(absl::StrCat(op.full_name(), " has no oneof \"kind\""));
    return;
  }
  const auto find_layer = [&](const std::string& name) -> const Layer* {
    const Layer* found = nullptr;
    for (const Layer* layer = layers; layer != nullptr; layer = layer->next) {
      if (name != layer->name) continue;
      if (found != nullptr) problems.push_back(absl::StrCat(name, " is registered twice"));
      found = layer;
    }
    return found;
  };
  const auto find_message = [&](std::string_view name) -> const Descriptor* {
    for (int i = 0; i < kind_->field_count(); ++i) {
      if (kind_->field(i)->message_type()->name() == name) return kind_->field(i)->message_type();
    }
    return nullptr;
  };

  for (int i = 0; i < kind_->field_count(); ++i) {
    const FieldDescriptor& member = *kind_->field(i);
    const Descriptor& message = *member.message_type();
    OpPlan plan;
    plan.name = member.name();
    plan.member = &member;
    plan.layer = find_layer(message.name());
    if (plan.layer == nullptr) {
      problems.push_back(absl::StrCat(message.name(), " has no layer"));
    } else {
      PlanFields(message, plan, problems);
      max_args_bytes_ = std::max(max_args_bytes_, plan.layer->args_bytes);
    }
    plans_.push_back(std::move(plan));

    constexpr std::string_view kBackward = "Backward";
    const std::string_view name = message.name();
    if (name.size() > kBackward.size() &&
        name.substr(name.size() - kBackward.size()) == kBackward) {
      const std::string_view forward_name = name.substr(0, name.size() - kBackward.size());
      if (const Descriptor* forward = find_message(forward_name); forward != nullptr) {
        CheckNamingRule(*forward, message, problems);
      } else {
        problems.push_back(absl::StrCat(std::string(name), " has no forward message"));
      }
    }
  }
  for (const Layer* layer = layers; layer != nullptr; layer = layer->next) {
    if (find_message(layer->name) == nullptr) {
      problems.push_back(absl::StrCat(layer->name, " is a layer without an op in the oneof"));
    }
  }
}

const OpPlan* Binder::Find(const Message& op) const {
  const FieldDescriptor* member = op.GetReflection()->GetOneofFieldDescriptor(op, kind_);
  if (member == nullptr) return nullptr;
  return &plans_[static_cast<size_t>(member->index_in_oneof())];
}

absl::Status Binder::BindAttributes(const OpPlan& plan, const Message& message, void* args) {
  const Reflection& reflection = *message.GetReflection();
  for (const FieldPlan& field : plan.attributes) {
    void* place = static_cast<char*>(args) + field.offset;
    const bool use_default = field.has_default && !reflection.HasField(message, field.descriptor);
    switch (field.kind) {
      case FieldKind::kDouble:
        *static_cast<double*>(place) =
            use_default ? field.default_double : reflection.GetDouble(message, field.descriptor);
        break;
      case FieldKind::kInt:
        *static_cast<int64_t*>(place) =
            use_default ? field.default_int : reflection.GetInt64(message, field.descriptor);
        break;
      case FieldKind::kBool:
        *static_cast<bool*>(place) =
            use_default ? field.default_int != 0 : reflection.GetBool(message, field.descriptor);
        break;
      case FieldKind::kEnum:
        KB_RETURN_IF_NOT_OK(BindEnum(field, reflection, message, *static_cast<int32_t*>(place)));
        break;
      case FieldKind::kOptionalDouble: {
        auto& value = *static_cast<Optional<double>*>(place);
        value.present = reflection.HasField(message, field.descriptor);
        value.value = reflection.GetDouble(message, field.descriptor);
        break;
      }
      case FieldKind::kOptionalInt: {
        auto& value = *static_cast<Optional<int64_t>*>(place);
        value.present = reflection.HasField(message, field.descriptor);
        value.value = reflection.GetInt64(message, field.descriptor);
        break;
      }
      case FieldKind::kIntList: {
        const auto& items = RepeatedOf<int64_t>(message, field);
        auto& list = *static_cast<IntList*>(place);
        list.items = items.data();
        list.count = items.size();
        break;
      }
      default:
        break;
    }
  }
  return absl::OkStatus();
}

}  // namespace kernelbox::server

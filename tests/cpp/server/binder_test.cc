// Binder: what fits is bound, what does not fit is found at start.
#include "server/binder.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "google/protobuf/dynamic_message.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "kernelbox/v1/layers.pb.h"
#include "kernelbox/v1/options.pb.h"
#include "server/error.h"

namespace kernelbox::server {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

enum class Color : int32_t { kRed = 1, kBlue = 2 };

struct Scale {
  In x;
  OptionalInList more;
  Out y;
  double factor;
  int64_t times;
  bool flag;
  Color color;
  Optional<double> limit;
  IntList sizes;
};
struct ScaleBackward {
  In x, d_y;
  OptionalOut d_x;
  double factor;
};

template <class A>
Layer LayerOf(const char* name, const std::vector<Field>& fields, const Layer* next) {
  Layer layer = {};
  layer.name = name;
  layer.fields = fields.data();
  layer.field_count = static_cast<int>(fields.size());
  layer.args_bytes = sizeof(A);
  layer.construct = [](void* args) { new (args) A(); };
  layer.next = next;
  return layer;
}

// A description of the messages, as text, to be changed by each test.
constexpr char kFile[] = R"pb(
  name: "test.proto"
  package: "test"
  syntax: "proto3"
  dependency: "kernelbox/v1/options.proto"
  enum_type {
    name: "Color"
    value { name: "COLOR_UNSPECIFIED" number: 0 }
    value { name: "COLOR_RED" number: 1 }
    value { name: "COLOR_BLUE" number: 2 }
  }
  message_type {
    name: "Op"
    oneof_decl { name: "kind" }
    field {
      name: "scale"
      number: 1
      type: TYPE_MESSAGE
      type_name: ".test.Scale"
      label: LABEL_OPTIONAL
      oneof_index: 0
    }
    field {
      name: "scale_backward"
      number: 2
      type: TYPE_MESSAGE
      type_name: ".test.ScaleBackward"
      label: LABEL_OPTIONAL
      oneof_index: 0
    }
  }
  message_type {
    name: "Scale"
    field {
      name: "x"
      number: 1
      type: TYPE_UINT64
      label: LABEL_OPTIONAL
      options {
        [kernelbox.v1.field] { role: ROLE_INPUT }
      }
    }
    field {
      name: "more"
      number: 2
      type: TYPE_UINT64
      label: LABEL_REPEATED
      options {
        [kernelbox.v1.field] { role: ROLE_OPTIONAL_INPUT }
      }
    }
    field {
      name: "y"
      number: 3
      type: TYPE_UINT64
      label: LABEL_OPTIONAL
      options {
        [kernelbox.v1.field] { role: ROLE_OUTPUT }
      }
    }
    field {
      name: "factor"
      number: 4
      type: TYPE_DOUBLE
      label: LABEL_OPTIONAL
      proto3_optional: true
      oneof_index: 0
      options {
        [kernelbox.v1.field] { role: ROLE_ATTRIBUTE default_value: "1e-5" }
      }
    }
    field {
      name: "times"
      number: 5
      type: TYPE_INT64
      label: LABEL_OPTIONAL
      options {
        [kernelbox.v1.field] { role: ROLE_ATTRIBUTE }
      }
    }
    field {
      name: "flag"
      number: 6
      type: TYPE_BOOL
      label: LABEL_OPTIONAL
      proto3_optional: true
      oneof_index: 1
      options {
        [kernelbox.v1.field] { role: ROLE_ATTRIBUTE default_value: "true" }
      }
    }
    field {
      name: "color"
      number: 7
      type: TYPE_ENUM
      type_name: ".test.Color"
      label: LABEL_OPTIONAL
      proto3_optional: true
      oneof_index: 2
      options {
        [kernelbox.v1.field] { role: ROLE_ATTRIBUTE default_value: "COLOR_BLUE" }
      }
    }
    field {
      name: "limit"
      number: 8
      type: TYPE_DOUBLE
      label: LABEL_OPTIONAL
      proto3_optional: true
      oneof_index: 3
      options {
        [kernelbox.v1.field] { role: ROLE_ATTRIBUTE }
      }
    }
    field {
      name: "sizes"
      number: 9
      type: TYPE_INT64
      label: LABEL_REPEATED
      options {
        [kernelbox.v1.field] { role: ROLE_ATTRIBUTE }
      }
    }
    oneof_decl { name: "_factor" }
    oneof_decl { name: "_flag" }
    oneof_decl { name: "_color" }
    oneof_decl { name: "_limit" }
  }
  message_type {
    name: "ScaleBackward"
    field {
      name: "x"
      number: 1
      type: TYPE_UINT64
      label: LABEL_OPTIONAL
      options {
        [kernelbox.v1.field] { role: ROLE_INPUT }
      }
    }
    field {
      name: "d_y"
      number: 2
      type: TYPE_UINT64
      label: LABEL_OPTIONAL
      options {
        [kernelbox.v1.field] { role: ROLE_INPUT }
      }
    }
    field {
      name: "d_x"
      number: 3
      type: TYPE_UINT64
      label: LABEL_OPTIONAL
      options {
        [kernelbox.v1.field] { role: ROLE_OPTIONAL_OUTPUT }
      }
    }
    field {
      name: "factor"
      number: 4
      type: TYPE_DOUBLE
      label: LABEL_OPTIONAL
      proto3_optional: true
      oneof_index: 0
      options {
        [kernelbox.v1.field] { role: ROLE_ATTRIBUTE default_value: "1e-5" }
      }
    }
    oneof_decl { name: "_factor" }
  }
)pb";

class BinderTest : public ::testing::Test {
 protected:
  BinderTest() {
    scale_fields_ = {
        KB_EXPAND(KB_FIELDS(Scale, x, more, y, factor, times, flag, color, limit, sizes))};
    backward_fields_ = {KB_EXPAND(KB_FIELDS(ScaleBackward, x, d_y, d_x, factor))};
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(kFile, &file_));
  }

  google::protobuf::FieldDescriptorProto& FieldOf(int message, const std::string& name) {
    for (auto& field : *file_.mutable_message_type(message)->mutable_field()) {
      if (field.name() == name) return field;
    }
    ADD_FAILURE() << name;
    return *file_.mutable_message_type(message)->mutable_field(0);
  }
  v1::FieldSpec& SpecOf(int message, const std::string& name) {
    return *FieldOf(message, name).mutable_options()->MutableExtension(v1::field);
  }

  const google::protobuf::Descriptor& Op() {
    pool_ = std::make_unique<google::protobuf::DescriptorPool>(
        google::protobuf::DescriptorPool::generated_pool());
    const google::protobuf::FileDescriptor* file = pool_->BuildFile(file_);
    EXPECT_NE(file, nullptr);
    return *file->FindMessageTypeByName("Op");
  }

  std::vector<std::string> Problems() {
    backward_ = LayerOf<ScaleBackward>("ScaleBackward", backward_fields_, nullptr);
    scale_ = LayerOf<Scale>("Scale", scale_fields_, &backward_);
    scale_.has_data_errors = data_errors_;
    std::vector<std::string> problems;
    binder_ = std::make_unique<Binder>(Op(), &scale_, problems);
    return problems;
  }

  google::protobuf::FileDescriptorProto file_;
  std::vector<Field> scale_fields_;
  std::vector<Field> backward_fields_;
  bool data_errors_ = false;
  Layer scale_;
  Layer backward_;
  std::unique_ptr<google::protobuf::DescriptorPool> pool_;
  std::unique_ptr<Binder> binder_;
};

TEST_F(BinderTest, WhatFitsHasNoProblems) {
  EXPECT_THAT(Problems(), IsEmpty());
  ASSERT_EQ(binder_->plans().size(), 2u);
  EXPECT_EQ(binder_->plans()[0].name, "scale");
  EXPECT_EQ(binder_->plans()[0].inputs.size(), 2u);
  EXPECT_EQ(binder_->plans()[0].outputs.size(), 1u);
  EXPECT_EQ(binder_->plans()[0].attributes.size(), 6u);
}

TEST_F(BinderTest, BindsAttributesAndDefaults) {
  ASSERT_THAT(Problems(), IsEmpty());
  google::protobuf::DynamicMessageFactory factory;
  const auto* op_type = binder_->plans()[0].member->containing_type();
  const std::unique_ptr<google::protobuf::Message> op(factory.GetPrototype(op_type)->New());
  const auto bind = [&](const std::string& text, Scale& args) {
    op->Clear();
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, op.get()));
    const OpPlan* plan = binder_->Find(*op);
    if (plan == nullptr) return absl::NotFoundError("no kind");
    return Binder::BindAttributes(*plan, op->GetReflection()->GetMessage(*op, plan->member), &args);
  };
  Scale args;
  EXPECT_EQ(bind("", args), absl::NotFoundError("no kind"));

  ASSERT_TRUE(bind("scale {}", args).ok());
  EXPECT_EQ(args.factor, 1e-5);
  EXPECT_EQ(args.times, 0);
  EXPECT_TRUE(args.flag);
  EXPECT_EQ(args.color, Color::kBlue);
  EXPECT_FALSE(args.limit.present);
  EXPECT_EQ(args.sizes.count, 0);

  ASSERT_TRUE(bind("scale { factor: 0 times: -4 flag: false color: COLOR_RED limit: 2 sizes: 7 "
                   "sizes: 8 }",
                   args)
                  .ok());
  EXPECT_EQ(args.factor, 0);
  EXPECT_EQ(args.times, -4);
  EXPECT_FALSE(args.flag);
  EXPECT_EQ(args.color, Color::kRed);
  EXPECT_TRUE(args.limit.present);
  EXPECT_EQ(args.limit.value, 2);
  ASSERT_EQ(args.sizes.count, 2);
  EXPECT_EQ(args.sizes[1], 8);

  ASSERT_TRUE(bind("scale { color: COLOR_UNSPECIFIED }", args).ok());
  EXPECT_EQ(args.color, Color::kBlue);
  const absl::Status unknown = bind("scale { color: 9 }", args);
  EXPECT_EQ(ReasonOf(unknown), v1::ERROR_REASON_INVALID_ATTRIBUTE);
  EXPECT_EQ(unknown.message(), "color must be a value of Color, given 9");
}

TEST_F(BinderTest, FindsAnOpWithoutLayerAndALayerWithoutOp) {
  std::vector<std::string> problems;
  Layer other = LayerOf<Scale>("Other", scale_fields_, nullptr);
  const Binder binder(Op(), &other, problems);
  EXPECT_THAT(problems, ElementsAre("Scale has no layer", "ScaleBackward has no layer",
                                    "Other is a layer without an op in the oneof"));
}

TEST_F(BinderTest, FindsALayerRegisteredTwice) {
  std::vector<std::string> problems;
  Layer last = LayerOf<ScaleBackward>("ScaleBackward", backward_fields_, nullptr);
  Layer second = LayerOf<Scale>("Scale", scale_fields_, &last);
  Layer first = LayerOf<Scale>("Scale", scale_fields_, &second);
  const Binder binder(Op(), &first, problems);
  EXPECT_THAT(problems, ElementsAre("Scale is registered twice"));
}

TEST_F(BinderTest, FindsFieldsThatOneSideLacks) {
  scale_fields_.pop_back();
  backward_fields_.push_back({"extra", FieldKind::kIn, 0});
  EXPECT_THAT(Problems(), ElementsAre("Scale.sizes: the layer has no such field",
                                      "ScaleBackward.extra: the message has no such field"));
}

TEST_F(BinderTest, FindsFieldsOfAnotherRoleOrType) {
  SpecOf(1, "y").set_role(v1::ROLE_OPTIONAL_OUTPUT);
  FieldOf(1, "times").set_type(google::protobuf::FieldDescriptorProto::TYPE_DOUBLE);
  FieldOf(1, "more").set_label(google::protobuf::FieldDescriptorProto::LABEL_OPTIONAL);
  EXPECT_THAT(Problems(),
              ElementsAre("Scale.more: the layer wants a repeated uint64 with "
                          "ROLE_OPTIONAL_INPUT, the message has a uint64 with ROLE_OPTIONAL_INPUT",
                          "Scale.y: the layer wants a uint64 with ROLE_OUTPUT, the message has a "
                          "uint64 with ROLE_OPTIONAL_OUTPUT",
                          "Scale.times: the layer wants a int64 with ROLE_ATTRIBUTE, the message "
                          "has a double with ROLE_ATTRIBUTE"));
}

TEST_F(BinderTest, FindsDefaultsThatAreNoValues) {
  SpecOf(1, "factor").set_default_value("1e-5x");
  SpecOf(1, "flag").set_default_value("yes");
  SpecOf(1, "color").set_default_value("COLOR_UNSPECIFIED");
  SpecOf(1, "times").set_default_value("3");
  const std::vector<std::string> problems = Problems();
  EXPECT_THAT(problems, Contains("Scale.factor: the default \"1e-5x\" is not a value of its type"));
  EXPECT_THAT(problems, Contains("Scale.flag: the default \"yes\" is not a value of its type"));
  EXPECT_THAT(problems, Contains("Scale.color: the default \"COLOR_UNSPECIFIED\" is not a value "
                                 "of its type"));
  EXPECT_THAT(problems, Contains(HasSubstr("Scale.times has a default")));
}

TEST_F(BinderTest, FindsABrokenNamingRule) {
  FieldOf(2, "d_x").set_name("d_z");
  FieldOf(2, "d_y").set_name("gradient");
  SpecOf(2, "factor").set_default_value("1");
  SpecOf(2, "x").set_role(v1::ROLE_IN_OUT);
  const std::vector<std::string> problems = Problems();
  EXPECT_THAT(problems, Contains("ScaleBackward.d_z is the gradient of no field of forward"));
  EXPECT_THAT(problems,
              Contains("ScaleBackward.gradient is neither a field of forward nor the gradient of "
                       "one"));
  EXPECT_THAT(problems, Contains("ScaleBackward.factor has another default than forward's field"));
  EXPECT_THAT(problems, Contains("ScaleBackward.x is a tensor of forward, so it must be an input"));
}

TEST_F(BinderTest, FindsABackwardWithoutForward) {
  file_.mutable_message_type(0)->mutable_field()->DeleteSubrange(0, 1);
  EXPECT_THAT(Problems(), ElementsAre("ScaleBackward has no forward message",
                                      "Scale is a layer without an op in the oneof"));
}

TEST_F(BinderTest, FindsDataErrorsWithInOutTensors) {
  data_errors_ = true;
  SpecOf(1, "x").set_role(v1::ROLE_IN_OUT);
  scale_fields_[0].kind = FieldKind::kInOut;
  EXPECT_THAT(Problems(), Contains(HasSubstr("so it must have no in-out tensors")));
}

TEST(BinderOfThisServerTest, OpsAndLayersFit) {
  std::vector<std::string> problems;
  const Binder binder(*v1::Op::descriptor(), Layer::Head(), problems);
  EXPECT_THAT(problems, IsEmpty());
}

}  // namespace
}  // namespace kernelbox::server

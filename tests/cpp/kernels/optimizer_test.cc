// SGD and AdamW against torch.optim's documented formulas.
#include <gtest/gtest.h>

#include <cmath>

#include "compare.h"

namespace kernelbox::testing {
namespace {

DType StateDType(DType dtype) {
  return dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
}

std::vector<Array> Draw(Random& random, DType dtype, const std::vector<Shape>& shapes) {
  std::vector<Array> arrays;
  for (const Shape& shape : shapes) arrays.push_back(random.Normal(dtype, shape));
  return arrays;
}

std::vector<Array> Zeros(DType dtype, const std::vector<Shape>& shapes) {
  std::vector<Array> arrays;
  for (const Shape& shape : shapes) arrays.push_back(Array(dtype, shape, 0.0));
  return arrays;
}

const std::vector<Shape> kShapes = {{5, 3}, {}, {0}, {4099}, {1}, {4096}, {31}};

struct SgdOptions {
  double momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false, maximize = false;
};

void Apply(const SgdOptions& o, double lr, bool first, double& p, double g, double& b) {
  if (o.maximize) g = -g;
  g += o.weight_decay * p;
  if (o.momentum != 0) {
    b = first ? g : o.momentum * b + (1 - o.dampening) * g;
    g = o.nesterov ? g + o.momentum * b : b;
  }
  p -= lr * g;
}

LayerCall SgdCall(const SgdOptions& o, DType lr_dtype) {
  LayerCall call("SGD");
  call.With("lr", Array::Scalar(lr_dtype, 0.125))
      .With("step", Array::Ints({}, {0}))
      .Set("momentum", o.momentum)
      .Set("dampening", o.dampening)
      .Set("weight_decay", o.weight_decay)
      .Set("nesterov", o.nesterov)
      .Set("maximize", o.maximize);
  return call;
}

// Steps taken one by one from what the layer itself gave, so that rounding does not add up.
TEST(SGD, StepsAsTorch) {
  const SgdOptions options[] = {{},
                                {0, 0, 0.1, false, false},
                                {0.9, 0, 0, false, false},
                                {0.9, 0.5, 0.1, false, false},
                                {0.9, 0, 0.1, true, false},
                                {0.5, 0.25, 0.01, false, true}};
  Random random(71);
  for (DType dtype : ComputedDTypes()) {
    for (DType grad_dtype : ComputedDTypes()) {
      if ((grad_dtype == DType::kFloat64) != (dtype == DType::kFloat64)) continue;
      for (const SgdOptions& o : options) {
        for (bool misaligned : {false, true}) {
          LayerCall call = SgdCall(o, StateDType(dtype));
          call.With("params", Draw(random, dtype, kShapes)).Misaligned(misaligned);
          if (o.momentum != 0) call.With("momentum_buffers", Zeros(dtype, kShapes));
          for (int64_t step = 0; step < 3; ++step) {
            SCOPED_TRACE(std::string(NameOf(dtype)) + " with " + NameOf(grad_dtype) + " step " +
                         std::to_string(step));
            call.With("grads", Draw(random, grad_dtype, kShapes));
            const Result result = call.Run();
            ASSERT_TRUE(result.status.ok()) << result.status.field << result.status.expected;
            EXPECT_EQ(result["step"].Integers()[0], step + 1);
            for (size_t t = 0; t < kShapes.size(); ++t) {
              const Array& param = call.tensors().at("params")[t];
              const Array& grad = call.tensors().at("grads")[t];
              std::vector<double> p = param.Values();
              std::vector<double> b(p.size());
              std::vector<double> scale;
              if (o.momentum != 0) b = call.tensors().at("momentum_buffers")[t].Values();
              for (size_t i = 0; i < p.size(); ++i) {
                const double g = grad[static_cast<int64_t>(i)];
                scale.push_back(std::abs(p[i]) + 2 * std::abs(b[i]) + 2 * std::abs(g));
                Apply(o, 0.125, step == 0, p[i], g, b[i]);
              }
              ExpectClose(result.fields.at("params")[t], p, 6, scale);
              if (o.momentum != 0)
                ExpectClose(result.fields.at("momentum_buffers")[t], b, 6, scale);
            }
            call.With("params", result.fields.at("params")).With("step", result["step"]);
            if (o.momentum != 0) {
              call.With("momentum_buffers", result.fields.at("momentum_buffers"));
            }
          }
        }
      }
    }
  }
}

struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0.01;
  bool amsgrad = false, maximize = false;
};

void Apply(const AdamWOptions& o, double lr, double step, double& p, double g, double& m, double& v,
           double& most) {
  if (o.maximize) g = -g;
  p *= 1 - lr * o.weight_decay;
  m = o.beta1 * m + (1 - o.beta1) * g;
  v = o.beta2 * v + (1 - o.beta2) * g * g;
  most = std::max(most, v);
  const double correction1 = 1 - std::pow(o.beta1, step);
  const double correction2 = 1 - std::pow(o.beta2, step);
  const double denominator = std::sqrt((o.amsgrad ? most : v) / correction2) + o.eps;
  p -= lr * (m / correction1) / denominator;
}

TEST(AdamW, StepsAsTorch) {
  const AdamWOptions options[] = {{},
                                  {0.5, 0.9, 1e-4, 0.3, false, false},
                                  {0.9, 0.99, 1e-8, 0.01, true, false},
                                  {0.0, 0.0, 1e-3, 0.0, true, true}};
  const double lr = 0.0625;
  Random random(72);
  for (DType dtype : ComputedDTypes()) {
    for (DType grad_dtype : ComputedDTypes()) {
      if ((grad_dtype == DType::kFloat64) != (dtype == DType::kFloat64)) continue;
      for (const AdamWOptions& o : options) {
        for (bool misaligned : {false, true}) {
          const DType state = StateDType(dtype);
          LayerCall call("AdamW");
          call.With("params", Draw(random, dtype, kShapes))
              .With("exp_avgs", Zeros(state, kShapes))
              .With("exp_avg_sqs", Zeros(state, kShapes))
              .With("lr", Array::Scalar(state, lr))
              .With("step", Array::Ints({}, {0}))
              .Set("beta1", o.beta1)
              .Set("beta2", o.beta2)
              .Set("eps", o.eps)
              .Set("weight_decay", o.weight_decay)
              .Set("amsgrad", o.amsgrad)
              .Set("maximize", o.maximize)
              .Misaligned(misaligned);
          if (o.amsgrad) call.With("max_exp_avg_sqs", Zeros(state, kShapes));
          for (int64_t step = 1; step <= 3; ++step) {
            SCOPED_TRACE(std::string(NameOf(dtype)) + " with " + NameOf(grad_dtype) + " step " +
                         std::to_string(step));
            call.With("grads", Draw(random, grad_dtype, kShapes));
            const Result result = call.Run();
            ASSERT_TRUE(result.status.ok()) << result.status.field << result.status.expected;
            EXPECT_EQ(result["step"].Integers()[0], step);
            for (size_t t = 0; t < kShapes.size(); ++t) {
              const auto before = [&](const char* field) {
                return call.tensors().at(field)[t].Values();
              };
              std::vector<double> p = before("params");
              std::vector<double> m = before("exp_avgs");
              std::vector<double> v = before("exp_avg_sqs");
              std::vector<double> most =
                  o.amsgrad ? before("max_exp_avg_sqs") : std::vector<double>(p.size());
              std::vector<double> p_scale;
              std::vector<double> m_scale;
              for (size_t i = 0; i < p.size(); ++i) {
                const double g = call.tensors().at("grads")[t][static_cast<int64_t>(i)];
                m_scale.push_back(std::abs(m[i]) + std::abs(g));
                p_scale.push_back(std::abs(p[i]));
                Apply(o, lr, static_cast<double>(step), p[i], g, m[i], v[i], most[i]);
                // The step's size: lr times a ratio whose numerator is as exact as m.
                const double root = std::sqrt(o.amsgrad ? most[i] : v[i]) + o.eps;
                p_scale.back() += lr * m_scale.back() / root;
              }
              // 1 - beta, rounded to float32, is 1e-4 of beta2's last place off and is magnified
              // where 1 - beta2^t is small.
              ExpectClose(result.fields.at("params")[t], p, 16, p_scale);
              ExpectClose(result.fields.at("exp_avgs")[t], m, 6, m_scale);
              ExpectClose(result.fields.at("exp_avg_sqs")[t], v, 6);
              if (o.amsgrad) ExpectClose(result.fields.at("max_exp_avg_sqs")[t], most, 6);
            }
            for (const auto& [field, arrays] : result.fields) call.With(field, arrays);
          }
        }
      }
    }
  }
}

// More tensors than one launch takes, each of another size.
TEST(Optimizers, TakeThousandsOfTensors) {
  std::vector<Shape> shapes;
  for (int64_t i = 0; i < 2500; ++i) shapes.push_back({i % 7});
  Random random(73);
  const SgdOptions o{0.9, 0, 0, false, false};
  LayerCall call = SgdCall(o, DType::kFloat32);
  call.With("params", Draw(random, DType::kFloat32, shapes))
      .With("grads", Draw(random, DType::kFloat32, shapes))
      .With("momentum_buffers", Zeros(DType::kFloat32, shapes));
  const Result result = call.Run();
  EXPECT_EQ(result["step"].Integers()[0], 1);
  for (size_t t = 0; t < shapes.size(); ++t) {
    const Array& grad = call.tensors().at("grads")[t];
    std::vector<double> p = call.tensors().at("params")[t].Values();
    for (size_t i = 0; i < p.size(); ++i) p[i] -= 0.125 * grad[static_cast<int64_t>(i)];
    ExpectClose(result.fields.at("params")[t], p, 2, std::vector<double>(p.size(), 4));
    ExpectSame(result.fields.at("momentum_buffers")[t], grad);
  }
}

// Parameters of several dtypes in one call; gradients of others.
TEST(Optimizers, MixDTypes) {
  Random random(74);
  LayerCall call = SgdCall({}, DType::kFloat32);
  const DType dtypes[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};
  std::vector<Array> params;
  std::vector<Array> grads;
  for (DType param : dtypes) {
    for (DType grad : dtypes) {
      params.push_back(random.Normal(param, {37}));
      grads.push_back(random.Normal(grad, {37}));
    }
  }
  const Result result = call.With("params", params).With("grads", grads).Run();
  for (size_t t = 0; t < params.size(); ++t) {
    std::vector<double> p = params[t].Values();
    for (size_t i = 0; i < p.size(); ++i) p[i] -= 0.125 * grads[t][static_cast<int64_t>(i)];
    ExpectClose(result.fields.at("params")[t], p, 4, std::vector<double>(p.size(), 4));
  }
}

TEST(Optimizers, TakeNoTensorsAtAll) {
  const Result sgd = SgdCall({}, DType::kFloat32).Run();
  ASSERT_TRUE(sgd.status.ok());
  EXPECT_EQ(sgd["step"].Integers()[0], 1);
  const Result adamw = LayerCall("AdamW")
                           .With("lr", Array::Scalar(DType::kFloat32, 1))
                           .With("step", Array::Ints({}, {41}))
                           .Run();
  ASSERT_TRUE(adamw.status.ok());
  EXPECT_EQ(adamw["step"].Integers()[0], 42);
}

TEST(SGD, RefusesWhatDoesNotFit) {
  const auto good = [] {
    LayerCall call = SgdCall({0.9, 0, 0, false, false}, DType::kFloat32);
    for (const char* field : {"params", "grads", "momentum_buffers"}) {
      call.With(field, std::vector<Array>{Array(DType::kFloat32, {2}, 1.0),
                                          Array(DType::kFloat16, {3}, 1.0)});
    }
    return call;
  };
  EXPECT_TRUE(good().Infer().ok());
  const Array two(DType::kFloat32, {2}, 1.0);
  ExpectError(good().With("grads", std::vector<Array>{two}).Infer(), Reason::kInvalidShape, "grads",
              "2 tensors, one for each of params", "1");
  ExpectError(good().With("grads", std::vector<Array>{two, two}).Infer(), Reason::kInvalidShape,
              "grads[1]", "[3], the shape of params[1]", "[2]");
  ExpectError(good().With("grads", {two, Array::Ints({3}, {1, 2, 3})}).Infer(),
              Reason::kInvalidDType, "grads[1]", "float32", "int64");
  ExpectError(good().With("params", {two, Array::Ints({3}, {1, 2, 3})}).Infer(),
              Reason::kInvalidDType, "params[1]", "float32", "int64");
  ExpectError(good().With("momentum_buffers", {two, Array(DType::kFloat32, {3}, 1.0)}).Infer(),
              Reason::kInvalidDType, "momentum_buffers[1]", "float16", "float32");
  ExpectError(good().Without("momentum_buffers").Infer(), Reason::kInvalidShape, "momentum_buffers",
              "2 tensors", "0");
  ExpectError(good().Set("momentum", 0.0).Infer(), Reason::kInvalidShape, "momentum_buffers",
              "momentum is 0", "2");
  ExpectError(good().Set("momentum", -0.1).Infer(), Reason::kInvalidAttribute, "momentum");
  ExpectError(good().Set("momentum", NAN).Infer(), Reason::kInvalidAttribute, "momentum");
  ExpectError(good().Set("dampening", NAN).Infer(), Reason::kInvalidAttribute, "dampening");
  ExpectError(good().Set("weight_decay", -1.0).Infer(), Reason::kInvalidAttribute, "weight_decay");
  ExpectError(good().Set("nesterov", true).Set("dampening", 0.1).Infer(), Reason::kInvalidAttribute,
              "nesterov");
  ExpectError(good().With("lr", Array::Scalar(DType::kFloat16, 1)).Infer(), Reason::kInvalidDType,
              "lr", "float32 or float64", "float16");
  ExpectError(good().With("lr", Array(DType::kFloat32, {1}, 1.0)).Infer(), Reason::kInvalidShape,
              "lr", "[]", "[1]");
  ExpectError(good().With("step", Array::Scalar(DType::kFloat32, 0)).Infer(), Reason::kInvalidDType,
              "step", "int64");
  ExpectError(good().With("step", Array::Ints({1}, {0})).Infer(), Reason::kInvalidShape, "step");
}

TEST(AdamW, RefusesWhatDoesNotFit) {
  const auto good = [] {
    LayerCall call("AdamW");
    const Array two(DType::kFloat32, {2}, 1.0);
    call.With("params", std::vector<Array>{Array(DType::kBFloat16, {2}, 1.0)})
        .With("grads", std::vector<Array>{two})
        .With("exp_avgs", std::vector<Array>{two})
        .With("exp_avg_sqs", std::vector<Array>{two})
        .With("lr", Array::Scalar(DType::kFloat32, 1))
        .With("step", Array::Ints({}, {0}));
    return call;
  };
  EXPECT_TRUE(good().Infer().ok());
  const std::vector<Array> half = {Array(DType::kBFloat16, {2}, 1.0)};
  ExpectError(good().With("exp_avgs", half).Infer(), Reason::kInvalidDType, "exp_avgs[0]",
              "float32", "bfloat16");
  ExpectError(good().Without("exp_avg_sqs").Infer(), Reason::kInvalidShape, "exp_avg_sqs",
              "1 tensors");
  ExpectError(good().Set("amsgrad", true).Infer(), Reason::kInvalidShape, "max_exp_avg_sqs");
  ExpectError(good().With("max_exp_avg_sqs", half).Infer(), Reason::kInvalidShape,
              "max_exp_avg_sqs", "amsgrad is false");
  for (const char* beta : {"beta1", "beta2"}) {
    ExpectError(good().Set(beta, 1.0).Infer(), Reason::kInvalidAttribute, beta, "[0, 1)");
    ExpectError(good().Set(beta, -0.1).Infer(), Reason::kInvalidAttribute, beta, "[0, 1)");
    ExpectError(good().Set(beta, NAN).Infer(), Reason::kInvalidAttribute, beta, "[0, 1)");
  }
  ExpectError(good().Set("eps", -1e-8).Infer(), Reason::kInvalidAttribute, "eps");
  ExpectError(good().Set("weight_decay", INFINITY).Infer(), Reason::kInvalidAttribute,
              "weight_decay");
}

}  // namespace
}  // namespace kernelbox::testing

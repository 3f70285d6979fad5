#include "samples.h"

#include <functional>
#include <map>

#include "kernels/attributes.h"

namespace kernelbox::testing {
namespace {

using Calls = std::vector<LayerCall>;

Array RngState() { return Array::Ints({2}, {-0x123456789abcdef, 0xfffffffffd}); }

DType StateDType(DType dtype) {
  return dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
}

Calls Pointwise(const std::string& layer, DType dtype) {
  Random random(1);
  Calls calls;
  for (const Shape& shape : {Shape{}, Shape{0}, Shape{31}, Shape{3, 5, 7}, Shape{70001}}) {
    calls.push_back(LayerCall(layer).With("x", random.Normal(dtype, shape)));
  }
  return calls;
}

Calls Gelu(DType dtype) {
  Calls calls = Pointwise("GELU", dtype);
  Calls tanh = calls;
  for (LayerCall& call : tanh) {
    calls.push_back(call.Set("approximate", GeluApproximate::kTanh));
  }
  return calls;
}

Calls Dropout(DType dtype) {
  Calls calls;
  for (LayerCall& call : Pointwise("Dropout", dtype)) {
    call.With("rng_state", RngState()).Ask("rng_used").Set("p", 0.3);
    calls.push_back(call);
    calls.push_back(call.Set("training", false));
  }
  return calls;
}

Calls Linear(DType dtype) {
  Random random(2);
  Calls calls;
  const Activation activations[] = {Activation::kNone, Activation::kRelu, Activation::kGelu,
                                    Activation::kGeluTanh};
  // Rows, out and in features; empty ones too.
  for (const auto& [m, n, k] : {std::tuple<int64_t, int64_t, int64_t>{3, 5, 7},
                                {33, 64, 31},
                                {128, 96, 64},
                                {1, 1, 1},
                                {257, 130, 65},
                                {0, 5, 7},
                                {5, 0, 7},
                                {5, 7, 0}}) {
    for (Activation activation : activations) {
      LayerCall call("Linear");
      call.With("x", random.Normal(dtype, {m, k}))
          .With("weight", random.Normal(dtype, {n, k}, 0.3))
          .With("bias", random.Normal(dtype, {n}))
          .Set("activation", activation);
      calls.push_back(call);
      calls.push_back(call.Ask("pre_activation"));
    }
  }
  LayerCall master("Linear");
  master.With("x", random.Normal(dtype, {2, 9, 24}))
      .With("weight", random.Normal(StateDType(dtype), {10, 24}, 0.3))
      .Ask("pre_activation")
      .Set("activation", Activation::kRelu);
  calls.push_back(master);
  calls.push_back(master.With("bias", random.Normal(StateDType(dtype), {10})));
  return calls;
}

Calls CrossEntropy(DType dtype) {
  Random random(3);
  Calls calls;
  const DType state = StateDType(dtype);
  for (const Shape& shape : {Shape{7}, Shape{5, 10}, Shape{33, 3}, Shape{9, 2500}, Shape{2, 4, 5},
                             Shape{2, 11, 3, 7}, Shape{0, 4}, Shape{300, 17}}) {
    Shape rows = shape;
    const size_t dim = shape.size() == 1 ? 0 : 1;
    rows.erase(rows.begin() + static_cast<std::ptrdiff_t>(dim));
    for (Reduction reduction : {Reduction::kNone, Reduction::kMean, Reduction::kSum}) {
      LayerCall call("CrossEntropyLoss");
      call.With("x", random.Normal(dtype, shape, 2))
          .With("target", random.Indices(rows, shape[dim]))
          .Set("reduction", reduction)
          .Set("ignore_index", 1)
          .Ask("log_sum_exp")
          .Ask("total_weight");
      calls.push_back(call);
      call.With("weight", random.Uniform(state, {shape[dim]}, 0.1, 2)).Set("label_smoothing", 0.2);
      calls.push_back(call);
    }
  }
  return calls;
}

std::vector<Array> Tensors(Random& random, DType dtype, double scale) {
  std::vector<Array> arrays;
  for (const Shape& shape : {Shape{5, 3}, Shape{}, Shape{0}, Shape{10001}, Shape{31}}) {
    arrays.push_back(random.Normal(dtype, shape, scale));
  }
  return arrays;
}

Calls Sgd(DType dtype) {
  Random random(4);
  LayerCall call("SGD");
  call.With("params", Tensors(random, dtype, 1))
      .With("grads", Tensors(random, dtype, 1))
      .With("lr", Array::Scalar(StateDType(dtype), 0.1))
      .With("step", Array::Ints({}, {3}))
      .Set("weight_decay", 0.01);
  Calls calls = {call};
  call.With("momentum_buffers", Tensors(random, dtype, 1)).Set("momentum", 0.9);
  calls.push_back(call);
  calls.push_back(call.Set("nesterov", true).Set("maximize", true));
  return calls;
}

Calls AdamW(DType dtype) {
  Random random(5);
  LayerCall call("AdamW");
  std::vector<Array> squares = Tensors(random, StateDType(dtype), 1);
  for (Array& square : squares) {
    for (int64_t i = 0; i < square.Count(); ++i) square.Set(i, square[i] * square[i]);
  }
  call.With("params", Tensors(random, dtype, 1))
      .With("grads", Tensors(random, dtype, 1))
      .With("exp_avgs", Tensors(random, StateDType(dtype), 1))
      .With("exp_avg_sqs", squares)
      .With("lr", Array::Scalar(StateDType(dtype), 0.01))
      .With("step", Array::Ints({}, {7}));
  Calls calls = {call};
  calls.push_back(call.With("max_exp_avg_sqs", squares).Set("amsgrad", true));
  return calls;
}

Calls Cast(DType dtype) {
  Calls calls;
  for (LayerCall& call : Pointwise("Cast", dtype)) {
    for (DType to : {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kFloat64}) {
      calls.push_back(call.Set("dtype", to));
    }
  }
  return calls;
}

Calls Fill(DType dtype) {
  Calls calls;
  for (const Shape& shape : {Shape{}, Shape{0, 3}, Shape{70001}}) {
    calls.push_back(LayerCall("Fill").Set("shape", shape).Set("dtype", dtype).Set("value", 0.1));
  }
  return calls;
}

Calls RandomFill(const std::string& layer, DType dtype) {
  Calls calls;
  for (const Shape& shape : {Shape{}, Shape{0}, Shape{7, 3}, Shape{70001}}) {
    calls.push_back(
        LayerCall(layer).With("rng_state", RngState()).Set("shape", shape).Set("dtype", dtype));
  }
  return calls;
}

Calls Add(DType dtype) {
  Random random(6);
  Calls calls;
  const std::pair<Shape, Shape> shapes[] = {{{}, {}},
                                            {{70001}, {70001}},
                                            {{257, 33}, {33}},
                                            {{257, 33}, {257, 1}},
                                            {{31}, {5, 1}},
                                            {{2, 3, 4}, {3, 1}},
                                            {{1}, {40000}},
                                            {{0, 3}, {1, 3}},
                                            {{7, 1, 5}, {1, 9, 1}},
                                            {{2, 1, 3, 1, 5}, {1, 4, 1, 6, 1}},
                                            {{2048, 3}, {1, 3}}};
  for (const auto& [a, b] : shapes) {
    calls.push_back(LayerCall("Add")
                        .With("a", random.Normal(dtype, a))
                        .With("b", random.Normal(dtype, b))
                        .Set("alpha", -0.7));
  }
  return calls;
}

const std::map<std::string, std::function<Calls(DType)>>& Makers() {
  static const std::map<std::string, std::function<Calls(DType)>> makers = {
      {"ReLU", [](DType dtype) { return Pointwise("ReLU", dtype); }},
      {"GELU", Gelu},
      {"Dropout", Dropout},
      {"Linear", Linear},
      {"CrossEntropyLoss", CrossEntropy},
      {"SGD", Sgd},
      {"AdamW", AdamW},
      {"Cast", Cast},
      {"Fill", Fill},
      {"Uniform", [](DType dtype) { return RandomFill("Uniform", dtype); }},
      {"Normal", [](DType dtype) { return RandomFill("Normal", dtype); }},
      {"Add", Add},
  };
  return makers;
}

}  // namespace

Calls Samples(const std::string& layer, DType dtype) {
  const std::string suffix = "Backward";
  if (layer.size() <= suffix.size() ||
      layer.compare(layer.size() - suffix.size(), suffix.size(), suffix) != 0) {
    return Makers().at(layer)(dtype);
  }
  Calls calls;
  Random random(7);
  for (LayerCall& call : Makers().at(layer.substr(0, layer.size() - suffix.size()))(dtype)) {
    // Backward reads what forward's optional outputs hold.
    for (int i = 0; i < call.layer().field_count; ++i) {
      const Field& field = call.layer().fields[i];
      if (field.kind == FieldKind::kOptionalOut) call.Ask(field.name);
    }
    const Result forward = call.Run(Backend::kCpu);
    const Array& y = forward["y"];
    calls.push_back(BackwardOf(call, forward, {{"d_y", random.Normal(y.dtype, y.shape)}}));
  }
  return calls;
}

}  // namespace kernelbox::testing

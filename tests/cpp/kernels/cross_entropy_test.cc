#include <gtest/gtest.h>

#include <cmath>

#include "compare.h"
#include "kernels/attributes.h"

namespace kernelbox::testing {
namespace {

DType LossDType(DType dtype) {
  return dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
}

// Logits, targets and options, and the loss by its definition in double.
struct Case {
  Array x;
  Array target;
  Array weight;
  bool has_weight = false;
  int64_t ignore_index = -100;
  Reduction reduction = Reduction::kMean;
  double smoothing = 0;

  int64_t Classes() const { return x.shape[x.shape.size() == 1 ? 0 : 1]; }
  int64_t Rows() const { return target.Count(); }
  int64_t Inner() const {
    int64_t inner = 1;
    for (size_t d = 2; d < x.shape.size(); ++d) inner *= x.shape[d];
    return inner;
  }
  // The place of logit c of a row; rows are in C order of the targets.
  int64_t Place(int64_t row, int64_t c) const {
    if (x.layout == Layout::kChannelsLast) return row * Classes() + c;
    return row / Inner() * Classes() * Inner() + c * Inner() + row % Inner();
  }
  double Weight(int64_t c) const { return has_weight ? weight[c] : 1; }
  int64_t Target(int64_t row) const { return static_cast<int64_t>(target[row]); }
  bool Ignored(int64_t row) const {
    return target.Integers()[static_cast<size_t>(row)] == ignore_index;
  }

  std::vector<double> Logits(int64_t row) const {
    std::vector<double> logits;
    for (int64_t c = 0; c < Classes(); ++c) logits.push_back(x[Place(row, c)]);
    return logits;
  }
  static double LogSumExp(const std::vector<double>& logits) {
    double most = -INFINITY;
    for (double logit : logits) most = std::max(most, logit);
    if (std::isinf(most)) return most;
    double sum = 0;
    for (double logit : logits) sum += std::exp(logit - most);
    return most + std::log(sum);
  }

  double Loss(int64_t row) const {
    if (Ignored(row)) return 0;
    const std::vector<double> logits = Logits(row);
    const double log_sum_exp = LogSumExp(logits);
    const int64_t t = Target(row);
    double loss = (1 - smoothing) * Weight(t) * (log_sum_exp - logits[static_cast<size_t>(t)]);
    if (smoothing == 0) return loss;
    for (int64_t c = 0; c < Classes(); ++c) {
      loss += smoothing / static_cast<double>(Classes()) * Weight(c) *
              (log_sum_exp - logits[static_cast<size_t>(c)]);
    }
    return loss;
  }
  double TotalWeight() const {
    double total = 0;
    for (int64_t row = 0; row < Rows(); ++row) {
      if (!Ignored(row)) total += Weight(Target(row));
    }
    return total;
  }

  LayerCall Call() const {
    LayerCall call("CrossEntropyLoss");
    call.With("x", x).With("target", target);
    if (has_weight) call.With("weight", weight);
    return call.Set("ignore_index", ignore_index)
        .Set("reduction", reduction)
        .Set("label_smoothing", smoothing)
        .Ask("log_sum_exp")
        .Ask("total_weight");
  }
};

void CheckForward(const Case& c, bool misaligned) {
  LayerCall call = c.Call();
  const Result result = call.Misaligned(misaligned).Run();
  ASSERT_TRUE(result.status.ok()) << result.status.field << ": " << result.status.expected << ", "
                                  << result.status.given;
  std::vector<double> losses;
  std::vector<double> scale;
  std::vector<double> log_sums;
  std::vector<double> log_scale;
  double sum = 0;
  double size = 0;
  for (int64_t row = 0; row < c.Rows(); ++row) {
    losses.push_back(c.Loss(row));
    const std::vector<double> logits = c.Logits(row);
    log_sums.push_back(Case::LogSumExp(logits));
    // lse - x cancels: what is off is in proportion to the two.
    double largest = 1;
    for (double logit : logits) {
      if (std::isfinite(logit)) largest = std::max(largest, std::abs(logit));
    }
    log_scale.push_back(largest + std::log(static_cast<double>(c.Classes())));
    scale.push_back(3 * log_scale.back() + std::abs(losses.back()));
    sum += losses.back();
    size += scale.back();
  }
  // Sums of exponents, of up to C terms in blocks.
  const double steps = 8 + static_cast<double>(c.Classes()) / 64;
  ExpectClose(result["log_sum_exp"], log_sums, steps, log_scale);
  const double adding = static_cast<double>(c.Rows()) / 16;  // the reference's own sum, in order
  const double total = c.TotalWeight();
  ExpectClose(result["total_weight"], {total}, 4 + adding);
  if (c.reduction == Reduction::kNone) {
    EXPECT_EQ(result["y"].shape, c.target.shape);
    ExpectClose(result["y"], losses, steps, scale);
  } else if (c.reduction == Reduction::kSum) {
    EXPECT_EQ(result["y"].shape, Shape{});
    ExpectClose(result["y"], {sum}, steps + adding, {size});
  } else {
    ExpectClose(result["y"], {sum / total}, steps + adding, {size / total});
  }
}

void CheckBackward(const Case& c, bool misaligned) {
  const Result forward = c.Call().Run();
  Random random(61);
  const Array d_y = random.Normal(LossDType(c.x.dtype), forward["y"].shape);
  LayerCall call = BackwardOf(c.Call(), forward, {{"d_y", d_y}});
  const Result result = call.Misaligned(misaligned).Run();
  ASSERT_TRUE(result.status.ok()) << result.status.field << ": " << result.status.expected;
  std::vector<double> expected(static_cast<size_t>(c.x.Count()));
  std::vector<double> scale(expected.size());
  const double total = c.TotalWeight();
  double weights = 0;
  for (int64_t k = 0; k < c.Classes(); ++k) weights += c.Weight(k);
  for (int64_t row = 0; row < c.Rows(); ++row) {
    const std::vector<double> logits = c.Logits(row);
    const double lse = Case::LogSumExp(logits);
    double g = d_y[c.reduction == Reduction::kNone ? row : 0];
    if (c.reduction == Reduction::kMean) g /= total;
    const int64_t t = c.Target(row);
    const bool ignored = c.Ignored(row);
    for (int64_t k = 0; k < c.Classes(); ++k) {
      const double p = std::exp(logits[static_cast<size_t>(k)] - lse);
      const double direct = ignored ? 0 : (1 - c.smoothing) * c.Weight(t) * (p - (k == t));
      const double uniform = c.smoothing == 0 ? 0
                                              : c.smoothing / static_cast<double>(c.Classes()) *
                                                    (p * weights - c.Weight(k));
      const auto place = static_cast<size_t>(c.Place(row, k));
      expected[place] = ignored ? 0 : g * (direct + uniform);
      // exp(x - lse) magnifies the rounding of x - lse by its size.
      const double magnified = std::isfinite(lse) ? 1 + std::abs(lse) : 1;
      scale[place] = std::abs(g) * (1 + (c.smoothing > 0 ? 2 : 0)) * magnified * 2;
    }
  }
  ExpectClose(result["d_x"], expected, 8, scale);
}

Case Make(DType dtype, const Shape& shape, Random& random, double scale = 2) {
  Case c;
  c.x = random.Normal(dtype, shape, scale);
  Shape rows = shape;
  const size_t dim = shape.size() == 1 ? 0 : 1;
  rows.erase(rows.begin() + static_cast<std::ptrdiff_t>(dim));
  c.target = random.Indices(rows, shape[dim]);
  return c;
}

const Shape kShapes[] = {{7},        {1},           {5, 10},         {33, 1},   {31, 127},
                         {3, 2047},  {3, 2048},     {2, 2501},       {2, 4, 5}, {2, 3, 1},
                         {1, 5, 33}, {2, 11, 3, 7}, {2, 3, 2, 2, 3}, {0, 4},    {300, 17}};

TEST(CrossEntropyLoss, IsTheDefinition) {
  Random random(62);
  for (DType dtype : ComputedDTypes()) {
    for (const Shape& shape : kShapes) {
      for (Reduction reduction : {Reduction::kNone, Reduction::kMean, Reduction::kSum}) {
        for (double smoothing : {0.0, 0.1, 1.0}) {
          for (bool weighted : {false, true}) {
            Case c = Make(dtype, shape, random);
            c.reduction = reduction;
            c.smoothing = smoothing;
            c.has_weight = weighted;
            c.ignore_index = weighted ? 1 : -100;
            c.weight = random.Uniform(LossDType(dtype), {c.Classes()}, 0.1, 3);
            SCOPED_TRACE(std::string(NameOf(dtype)) + " rank " + std::to_string(shape.size()) +
                         " C " + std::to_string(c.Classes()) + " reduction " +
                         std::to_string(static_cast<int>(reduction)) + " smoothing " +
                         std::to_string(smoothing) + (weighted ? " weighted" : ""));
            for (bool misaligned : {false, true}) {
              CheckForward(c, misaligned);
              CheckBackward(c, misaligned);
            }
            if (HasFailure()) return;
          }
        }
      }
    }
  }
}

TEST(CrossEntropyLoss, BackwardIsTheDerivative) {
  Random random(63);
  for (Reduction reduction : {Reduction::kNone, Reduction::kMean, Reduction::kSum}) {
    for (const Shape& shape : {Shape{4}, Shape{3, 5}, Shape{2, 3, 4}}) {
      Case c = Make(DType::kFloat64, shape, random);
      c.reduction = reduction;
      c.smoothing = 0.15;
      c.ignore_index = 2;
      c.has_weight = true;
      c.weight = random.Uniform(DType::kFloat64, {c.Classes()}, 0.1, 3);
      if (c.TotalWeight() > 0) CheckGradient(c.Call(), "y", {"x"});
    }
  }
}

TEST(CrossEntropyLoss, TakesInt32Targets) {
  Random random(64);
  Case c = Make(DType::kFloat32, {9, 4}, random);
  const Result wide = c.Call().Run();
  c.target = Array::Ints({9}, c.target.Integers(), DType::kInt32);
  ExpectSame(c.Call().Run()["y"], wide["y"]);
}

TEST(CrossEntropyLoss, ReadsChannelsLast) {
  Random random(65);
  for (DType dtype : ComputedDTypes()) {
    Case c = Make(dtype, {2, 5, 3, 4}, random);
    c.x.layout = Layout::kChannelsLast;
    CheckForward(c, false);
    CheckBackward(c, false);
    const Result forward = c.Call().Run();
    const Array d_y(LossDType(dtype), {}, 1.0);
    EXPECT_EQ(BackwardOf(c.Call(), forward, {{"d_y", d_y}}).Run()["d_x"].layout,
              Layout::kChannelsLast);
  }
}

// Sums near the top of float16, and logits whose exponents overflow float32.
TEST(CrossEntropyLoss, SurvivesLargeLogits) {
  Random random(66);
  for (DType dtype : ComputedDTypes()) {
    for (const Shape& shape : {Shape{4, 50}, Shape{4, 3000}, Shape{2, 50, 3}}) {
      Case c = Make(dtype, shape, random);
      c.x = random.Uniform(dtype, shape, -6e4, 6e4);
      c.reduction = Reduction::kSum;
      CheckForward(c, false);
      for (double shift : {3e4, -3e4}) {
        Case moved = Make(dtype, shape, random, 100);
        for (int64_t i = 0; i < moved.x.Count(); ++i) moved.x.Set(i, moved.x[i] + shift);
        CheckForward(moved, false);
      }
    }
  }
}

TEST(CrossEntropyLoss, MasksWithMinusInfinity) {
  for (DType dtype : ComputedDTypes()) {
    for (int64_t classes : {3, 70, 2500}) {
      Case c;
      c.x = Array(dtype, {3, classes}, -INFINITY);
      c.target = Array::Ints({3}, {1, 1, 0});
      c.reduction = Reduction::kNone;
      c.x.Set(1, 2.0);                       // row 0: its target alone
      c.x.Set(0, 1.0);                       // and one more
      c.x.Set(classes + 2, 5.0);             // row 1: not its target
      const Result result = c.Call().Run();  // row 2: nothing
      EXPECT_NEAR(result["y"][0], std::log1p(std::exp(-1.0)), 1e-6);
      EXPECT_EQ(result["y"][1], INFINITY);
      EXPECT_TRUE(std::isnan(result["y"][2]));
      EXPECT_EQ(result["log_sum_exp"][2], -INFINITY);
      const Array d_y(LossDType(dtype), {3}, 1.0);
      const Array d_x = BackwardOf(c.Call(), result, {{"d_y", d_y}}).Run()["d_x"];
      EXPECT_NEAR(d_x[1], 1 / (1 + std::exp(-1.0)) - 1, 2 * Epsilon(dtype));
      EXPECT_EQ(d_x[2], 0);
      EXPECT_EQ(d_x[classes + 1], -1);
      EXPECT_EQ(d_x[classes + 2], 1);
      EXPECT_TRUE(std::isnan(d_x[2 * classes]));
    }
  }
}

TEST(CrossEntropyLoss, OfNothingIsNaNAsInTorch) {
  Random random(67);
  for (const bool empty : {false, true}) {
    Case c = Make(DType::kFloat32, {empty ? 0 : 3, 4}, random);
    c.ignore_index = 2;
    for (int64_t i = 0; i < c.Rows(); ++i) c.target.Set(i, 2);
    const Result mean = c.Call().Run();
    EXPECT_TRUE(std::isnan(mean["y"][0]));
    EXPECT_EQ(mean["total_weight"][0], 0);
    const Array d_y = Array::Scalar(DType::kFloat32, 1);
    const Array d_x = BackwardOf(c.Call(), mean, {{"d_y", d_y}}).Run()["d_x"];
    ExpectSame(d_x, Array(DType::kFloat32, c.x.shape, 0.0));
    c.reduction = Reduction::kSum;
    EXPECT_EQ(c.Call().Run()["y"][0], 0);
    c.reduction = Reduction::kNone;
    ExpectSame(c.Call().Run()["y"], Array(DType::kFloat32, c.target.shape, 0.0));
  }
}

// ignore_index need not be a class; a weight is never looked up for it.
TEST(CrossEntropyLoss, IgnoresAnyIndex) {
  Random random(68);
  for (int64_t ignored : {int64_t{-100}, int64_t{1} << 40, int64_t{-1}, int64_t{3}}) {
    Case c = Make(DType::kFloat32, {9, 4}, random);
    c.ignore_index = ignored;
    c.has_weight = true;
    c.weight = random.Uniform(DType::kFloat32, {4}, 0.1, 3);
    std::vector<int64_t> targets = c.target.Integers();
    targets[2] = targets[7] = ignored;
    c.target = Array::Ints({9}, targets);
    CheckForward(c, false);
    CheckBackward(c, false);
  }
}

TEST(CrossEntropyLoss, RefusesTargetsOutOfRange) {
  Random random(69);
  for (const Shape& shape : {Shape{6, 4}, Shape{6, 3000}, Shape{2, 4, 3}}) {
    for (int64_t bad : {int64_t{-1}, shape[1], INT64_MAX, INT64_MIN}) {
      Case c = Make(DType::kFloat32, shape, random);
      const Result forward = c.Call().Run();
      c.target = Array::Ints(c.target.shape, c.target.Integers());
      std::vector<int64_t> targets = c.target.Integers();
      targets[4] = bad;
      c.target = Array::Ints(c.target.shape, targets);
      const std::string expected = "[0, " + std::to_string(shape[1]) + ") or ignore_index, -100";
      const std::string given = std::to_string(bad) + " at element 4";
      ExpectError(c.Call().Run().status, Reason::kValueOutOfRange, "target", expected, given);
      const Array d_y = Array::Scalar(DType::kFloat32, 1);
      ExpectError(BackwardOf(c.Call(), forward, {{"d_y", d_y}}).Run().status,
                  Reason::kValueOutOfRange, "target", expected, given);
    }
  }
}

TEST(CrossEntropyLoss, RefusesWhatDoesNotFit) {
  LayerCall call("CrossEntropyLoss");
  call.With("x", Array(DType::kFloat16, {3, 4}, 1.0)).With("target", Array::Ints({3}, {0, 1, 2}));
  EXPECT_TRUE(call.Infer().ok());
  ExpectError(call.Set("label_smoothing", 1.5).Infer(), Reason::kInvalidAttribute,
              "label_smoothing");
  ExpectError(call.Set("label_smoothing", NAN).Infer(), Reason::kInvalidAttribute,
              "label_smoothing");
  call.Set("label_smoothing", 0.0);
  ExpectError(call.Set("reduction", 4).Infer(), Reason::kInvalidAttribute, "reduction");
  call.Set("reduction", 0);
  ExpectError(call.With("weight", Array(DType::kFloat32, {3}, 1.0)).Infer(), Reason::kInvalidShape,
              "weight", "[4]", "[3]");
  ExpectError(call.With("weight", Array(DType::kFloat16, {4}, 1.0)).Infer(), Reason::kInvalidDType,
              "weight", "float32", "float16");
  call.Without("weight");
  ExpectError(call.With("target", Array::Ints({4}, {0, 1, 2, 3})).Infer(), Reason::kInvalidShape,
              "target", "[3]", "[4]");
  ExpectError(call.With("target", Array(DType::kFloat32, {3}, 1.0)).Infer(), Reason::kInvalidDType,
              "target", "int32 or int64", "float32");
  call.With("target", Array::Ints({}, {0})).With("x", Array::Scalar(DType::kFloat32, 1));
  ExpectError(call.Infer(), Reason::kInvalidShape, "x", "[N, C]", "[]");
  call.With("x", Array::Ints({3}, {1, 2, 3}));
  ExpectError(call.Infer(), Reason::kInvalidDType, "x");

  Random random(70);
  Case c = Make(DType::kFloat32, {3, 4}, random);
  const Result forward = c.Call().Run();
  const Array scalar = Array::Scalar(DType::kFloat32, 1);
  LayerCall backward = BackwardOf(c.Call(), forward, {{"d_y", scalar}});
  EXPECT_TRUE(backward.Infer().ok());
  LayerCall bad = backward;
  ExpectError(bad.With("d_y", Array(DType::kFloat32, {3}, 1.0)).Infer(), Reason::kInvalidShape,
              "d_y", "[]", "[3]");
  bad = backward;
  ExpectError(bad.With("log_sum_exp", scalar).Infer(), Reason::kInvalidShape, "log_sum_exp",
              "the shape of target");
  bad = backward;
  ExpectError(bad.With("total_weight", Array(DType::kFloat64, {}, 1.0)).Infer(),
              Reason::kInvalidDType, "total_weight", "float32", "float64");
}

}  // namespace
}  // namespace kernelbox::testing

// Cast and Fill.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "compare.h"

namespace kernelbox::testing {
namespace {

const DType kAll[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kFloat64,
                      DType::kInt32,   DType::kInt64,   DType::kUInt8,    DType::kBool};

std::vector<double> Numbers() {
  std::vector<double> numbers = AwkwardNumbers();
  for (double value : {65504.0,
                       65519.9,
                       65520.0,
                       3e38,
                       1e39,
                       1e300,
                       2147483647.0,
                       2147483648.0,
                       -2147483649.0,
                       9.3e18,
                       -9.3e18,
                       255.0,
                       256.0,
                       -1.0,
                       255.9,
                       0x1p-24,
                       0x1p-25,
                       1 + 0x1p-8 + 0x1p-40,
                       1 + 0x1p-11 + 0x1p-40,
                       1e-40,
                       4e-46,
                       16777217.0}) {
    numbers.push_back(value);
    numbers.push_back(-value);
  }
  return numbers;
}

TEST(Cast, BetweenEveryTwoDTypes) {
  for (DType from : kAll) {
    const std::vector<double> numbers = Numbers();
    const Array x(from, {static_cast<int64_t>(numbers.size())}, numbers);
    for (DType to : kAll) {
      for (bool misaligned : {false, true}) {
        SCOPED_TRACE(std::string(NameOf(from)) + " to " + NameOf(to));
        const Result result =
            LayerCall("Cast").With("x", x).Set("dtype", to).Misaligned(misaligned).Run();
        ASSERT_TRUE(result.status.ok());
        // Stored by the reference's own rounding.
        const Array expected(to, x.shape, x.Values());
        for (int64_t i = 0; i < x.Count(); ++i) {
          if (std::isnan(expected[i])) {
            EXPECT_TRUE(std::isnan(result["y"][i]));
          } else {
            EXPECT_EQ(result["y"][i], expected[i]) << x[i];
          }
        }
      }
    }
  }
}

TEST(Cast, KeepsEveryBitOfItsOwnDType) {
  for (DType dtype : kAll) {
    if (dtype == DType::kBool) continue;  // its bytes are 0 and 1
    Array x(dtype, {64}, 0.0);
    for (size_t i = 0; i < x.bytes.size(); ++i) x.bytes[i] = static_cast<uint8_t>(i * 37 + 0x71);
    ExpectSame(LayerCall("Cast").With("x", x).Set("dtype", dtype).Run()["y"], x);
  }
}

// Every 16-bit number both ways, on the tested backend.
TEST(Cast, EveryHalf) {
  for (DType half : {DType::kFloat16, DType::kBFloat16}) {
    Array x(half, {65536}, 0.0);
    for (int i = 0; i < 65536; ++i) {
      x.bytes[static_cast<size_t>(i) * 2] = static_cast<uint8_t>(i & 0xff);
      x.bytes[static_cast<size_t>(i) * 2 + 1] = static_cast<uint8_t>(i >> 8);
    }
    const Array wide = LayerCall("Cast").With("x", x).Set("dtype", DType::kFloat32).Run()["y"];
    const Array back = LayerCall("Cast").With("x", wide).Set("dtype", half).Run()["y"];
    for (int64_t i = 0; i < 65536; ++i) {
      if (std::isnan(x[i])) {
        ASSERT_TRUE(std::isnan(wide[i]) && std::isnan(back[i])) << i;
      } else {
        ASSERT_EQ(wide[i], x[i]) << i;
        ASSERT_EQ(back[i], x[i]) << i;
      }
    }
  }
}

TEST(Cast, WideIntegersAreExact) {
  const std::vector<int64_t> values = {INT64_MAX, INT64_MIN, INT64_MAX - 1,
                                       1,         -1,        (int64_t{1} << 53) + 1};
  const Array x = Array::Ints({6}, values);
  EXPECT_EQ(LayerCall("Cast").With("x", x).Set("dtype", DType::kInt64).Run()["y"].Integers(),
            values);
  EXPECT_EQ(LayerCall("Cast").With("x", x).Set("dtype", DType::kInt32).Run()["y"].Integers(),
            (std::vector<int64_t>{INT32_MAX, INT32_MIN, INT32_MAX, 1, -1, INT32_MAX}));
}

TEST(Cast, BackwardIsACastBack) {
  Random random(31);
  for (DType from : {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kFloat64}) {
    for (DType to : {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kFloat64}) {
      const Array d_y = random.Normal(to, {7, 3});
      const Result result =
          LayerCall("CastBackward").With("x", Array(from, {7, 3}, 0.0)).With("d_y", d_y).Run();
      ExpectSame(result["d_x"], Array(from, {7, 3}, d_y.Values()));
    }
  }
}

TEST(Cast, RefusesWhatDoesNotFit) {
  LayerCall call("Cast");
  call.With("x", Array(DType::kFloat32, {2}, 1.0));
  ExpectError(call.Infer(), Reason::kInvalidAttribute, "dtype", "a dtype", "0");
  ExpectError(call.Set("dtype", 99).Infer(), Reason::kInvalidAttribute, "dtype", "a dtype", "99");
  LayerCall backward("CastBackward");
  backward.With("x", Array::Ints({2}, {1, 2})).With("d_y", Array(DType::kFloat32, {2}, 1.0));
  ExpectError(backward.Infer(), Reason::kInvalidDType, "x", "float32", "int64");
  backward.With("x", Array(DType::kFloat32, {3}, 1.0));
  ExpectError(backward.Infer(), Reason::kInvalidShape, "d_y", "[3]", "[2]");
  backward.With("d_y", Array::Ints({3}, {1, 2, 3}));
  ExpectError(backward.Infer(), Reason::kInvalidDType, "d_y");
}

TEST(Fill, EveryDType) {
  for (DType dtype : kAll) {
    for (double value : {0.0, 1.0, 3.0, -0.1, static_cast<double>(NAN)}) {
      const bool integer = !IsFloating(dtype);
      if (integer && (value < 0 || std::isnan(value))) continue;
      if (dtype == DType::kBool && value > 1) continue;
      for (int64_t size : OddSizes()) {
        const Result result = LayerCall("Fill")
                                  .Set("shape", Shape{size})
                                  .Set("dtype", dtype)
                                  .Set("value", value)
                                  .Misaligned(size % 2 == 1)
                                  .Run();
        ASSERT_TRUE(result.status.ok());
        if (std::isnan(value)) {
          for (double got : result["y"].Values()) EXPECT_TRUE(std::isnan(got));
        } else {
          ExpectSame(result["y"], Array(dtype, {size}, value));
        }
      }
    }
  }
}

TEST(Fill, MoreThanTwoDimensionsAndNone) {
  ExpectSame(LayerCall("Fill").Set("shape", Shape{2, 0, 3}).Set("dtype", DType::kInt32).Run()["y"],
             Array(DType::kInt32, {2, 0, 3}, 0.0));
  ExpectSame(LayerCall("Fill")
                 .Set("shape", Shape{})
                 .Set("dtype", DType::kInt64)
                 .Set("value", -7.0)
                 .Run()["y"],
             Array::Ints({}, {-7}));
}

TEST(Fill, RefusesWhatTheDTypeCannotHold) {
  const struct {
    DType dtype;
    double value;
  } bad[] = {{DType::kInt32, 0.5},       {DType::kInt32, 0x1p31}, {DType::kUInt8, -1},
             {DType::kUInt8, 256},       {DType::kInt64, 0x1p63}, {DType::kInt64, NAN},
             {DType::kInt32, INFINITY},  {DType::kBool, 2},       {DType::kFloat16, 65520},
             {DType::kBFloat16, 3.4e38}, {DType::kFloat32, 1e39}};
  for (const auto& [dtype, value] : bad) {
    LayerCall call("Fill");
    call.Set("shape", Shape{2}).Set("dtype", dtype).Set("value", value);
    ExpectError(call.Infer(), Reason::kInvalidAttribute, "value", NameOf(dtype));
  }
  LayerCall call("Fill");
  call.Set("shape", Shape{2}).Set("dtype", DType::kFloat16);
  EXPECT_TRUE(call.Set("value", 65519.0).Infer().ok());
  EXPECT_TRUE(call.Set("value", -INFINITY).Infer().ok());
  call.Set("value", -0x1p63).Set("dtype", DType::kInt64);
  EXPECT_TRUE(call.Infer().ok());
  ExpectError(call.Set("dtype", 0).Infer(), Reason::kInvalidAttribute, "dtype");
  ExpectError(call.Set("dtype", DType::kFloat32).Set("shape", Shape{-1}).Infer(),
              Reason::kInvalidShape, "shape");
}

}  // namespace
}  // namespace kernelbox::testing

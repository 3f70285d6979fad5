// Arrays on the host in every dtype, and rounding to each written from the formats' definitions,
// apart from the code under test.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "kernels/tensor.h"

namespace kernelbox::testing {

using Shape = std::vector<int64_t>;

// The number that `dtype` stores for `value`: rounded to nearest even for floating dtypes,
// truncated and saturated for integers.
double Rounded(DType dtype, double value);
// Bits of a float16 or bfloat16 and back.
uint16_t HalfBits(DType dtype, double value);
double HalfValue(DType dtype, uint16_t bits);
// The distance from 1 to the next number; twice the largest relative error of rounding.
double Epsilon(DType dtype);
// The smallest positive number.
double Tiniest(DType dtype);

struct Array {
  DType dtype = DType::kFloat32;
  Shape shape;
  std::vector<uint8_t> bytes;
  Layout layout = Layout::kContiguous;

  Array() = default;
  Array(DType array_dtype, Shape array_shape, const std::vector<double>& values);
  // All of one value.
  Array(DType array_dtype, Shape array_shape, double value);

  static Array Scalar(DType dtype, double value) { return Array(dtype, {}, value); }
  static Array Ints(Shape shape, const std::vector<int64_t>& values, DType dtype = DType::kInt64);

  int64_t Count() const;
  std::vector<double> Values() const;
  std::vector<int64_t> Integers() const;
  double operator[](int64_t i) const;
  void Set(int64_t i, double value);
};

int64_t CountOf(const Shape& shape);

// Reproducible random input.
class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}

  Array Normal(DType dtype, const Shape& shape, double scale = 1);
  Array Uniform(DType dtype, const Shape& shape, double low, double high);
  // int64 (or int32) in [0, bound).
  Array Indices(const Shape& shape, int64_t bound, DType dtype = DType::kInt64);

 private:
  std::mt19937_64 engine_;
};

}  // namespace kernelbox::testing

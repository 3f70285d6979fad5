#include "array.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

namespace kernelbox::testing {
namespace {

// A binary floating format: bits of fraction, exponents of the smallest normal number and of the
// largest.
struct Format {
  int fraction;
  int least;
  int most;
};

constexpr Format kFloat16Format{10, -14, 15};
constexpr Format kBFloat16Format{7, -126, 127};

Format FormatOf(DType dtype) { return dtype == DType::kFloat16 ? kFloat16Format : kBFloat16Format; }

// By definition: the multiple of the last place's worth that is nearest, ties to even.
double RoundTo(Format format, double value) {
  if (!std::isfinite(value) || value == 0) return value;
  const int exponent = std::max(std::ilogb(value), format.least);
  const double place = std::ldexp(1.0, exponent - format.fraction);
  const double rounded = std::nearbyint(value / place) * place;
  const double largest = (2 - std::ldexp(1.0, -format.fraction)) * std::ldexp(1.0, format.most);
  return std::abs(rounded) > largest ? std::copysign(INFINITY, value) : rounded;
}

template <class T>
double Saturated(double value) {
  if (std::isnan(value)) return 0;
  if (value >= std::ldexp(1.0, std::numeric_limits<T>::digits)) {
    return static_cast<double>(std::numeric_limits<T>::max());
  }
  if (value < static_cast<double>(std::numeric_limits<T>::min())) {
    return static_cast<double>(std::numeric_limits<T>::min());
  }
  return std::trunc(value);
}

template <class T>
void Put(uint8_t* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

template <class T>
T Get(const uint8_t* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// value must be one that Saturated gave; 2^63 - 1 is no double.
int64_t ToInt64(double value) {
  return value >= 0x1p63 ? std::numeric_limits<int64_t>::max() : static_cast<int64_t>(value);
}

}  // namespace

double Rounded(DType dtype, double value) {
  switch (dtype) {
    case DType::kFloat16:
    case DType::kBFloat16:
      return RoundTo(FormatOf(dtype), value);
    case DType::kFloat32:
      return static_cast<double>(static_cast<float>(value));
    case DType::kInt32:
      return Saturated<int32_t>(value);
    case DType::kInt64:
      return Saturated<int64_t>(value);
    case DType::kUInt8:
      return Saturated<uint8_t>(value);
    case DType::kBool:
      return value != 0 ? 1 : 0;
    default:
      return value;
  }
}

uint16_t HalfBits(DType dtype, double value) {
  const Format format = FormatOf(dtype);
  const int exponent_bits = 15 - format.fraction;
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const uint16_t infinity = static_cast<uint16_t>(((1 << exponent_bits) - 1) << format.fraction);
  if (std::isnan(value)) return static_cast<uint16_t>(sign | infinity | 1 << (format.fraction - 1));
  const double rounded = std::abs(RoundTo(format, value));
  if (std::isinf(rounded)) return sign | infinity;
  if (rounded < std::ldexp(1.0, format.least)) {  // subnormal or 0
    return static_cast<uint16_t>(
        sign | static_cast<int>(std::ldexp(rounded, format.fraction - format.least)));
  }
  const int exponent = std::ilogb(rounded);
  const int fraction =
      static_cast<int>(std::ldexp(std::ldexp(rounded, -exponent) - 1, format.fraction));
  return static_cast<uint16_t>(sign | (exponent - format.least + 1) << format.fraction | fraction);
}

double HalfValue(DType dtype, uint16_t bits) {
  const Format format = FormatOf(dtype);
  const int exponent = (bits & 0x7fff) >> format.fraction;
  const int fraction = bits & ((1 << format.fraction) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == format.most - format.least + 2) {
    return fraction != 0 ? std::numeric_limits<double>::quiet_NaN() : sign * INFINITY;
  }
  const double whole = exponent == 0 ? 0 : std::ldexp(1.0, format.fraction);
  const int scale = std::max(exponent, 1) + format.least - 1 - format.fraction;
  return sign * std::ldexp(whole + fraction, scale);
}

double Epsilon(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return 0x1p-10;
    case DType::kBFloat16:
      return 0x1p-7;
    case DType::kFloat32:
      return 0x1p-23;
    default:
      return 0x1p-52;
  }
}

double Tiniest(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return 0x1p-24;
    case DType::kBFloat16:
      return 0x1p-133;
    case DType::kFloat32:
      return 0x1p-149;
    default:
      return 0x1p-1074;
  }
}

int64_t CountOf(const Shape& shape) {
  int64_t count = 1;
  for (int64_t dim : shape) count *= dim;
  return count;
}

Array::Array(DType array_dtype, Shape array_shape, const std::vector<double>& values)
    : dtype(array_dtype), shape(std::move(array_shape)) {
  bytes.resize(static_cast<size_t>(Count()) * SizeOf(dtype));
  for (int64_t i = 0; i < Count(); ++i) Set(i, values.at(static_cast<size_t>(i)));
}

Array::Array(DType array_dtype, Shape array_shape, double value)
    : Array(array_dtype, array_shape,
            std::vector<double>(static_cast<size_t>(CountOf(array_shape)), value)) {}

Array Array::Ints(Shape shape, const std::vector<int64_t>& values, DType dtype) {
  Array array(dtype, std::move(shape), 0.0);
  for (size_t i = 0; i < values.size(); ++i) {
    if (dtype == DType::kInt64) {
      Put(&array.bytes[i * 8], values[i]);
    } else {
      Put(&array.bytes[i * 4], static_cast<int32_t>(values[i]));
    }
  }
  return array;
}

int64_t Array::Count() const { return CountOf(shape); }

double Array::operator[](int64_t i) const {
  const uint8_t* at = bytes.data() + static_cast<size_t>(i) * SizeOf(dtype);
  switch (dtype) {
    case DType::kFloat16:
    case DType::kBFloat16:
      return HalfValue(dtype, Get<uint16_t>(at));
    case DType::kFloat32:
      return static_cast<double>(Get<float>(at));
    case DType::kInt32:
      return static_cast<double>(Get<int32_t>(at));
    case DType::kInt64:
      return static_cast<double>(Get<int64_t>(at));
    case DType::kUInt8:
    case DType::kBool:
      return static_cast<double>(*at);
    default:
      return Get<double>(at);
  }
}

void Array::Set(int64_t i, double value) {
  uint8_t* at = bytes.data() + static_cast<size_t>(i) * SizeOf(dtype);
  const double rounded = Rounded(dtype, value);
  switch (dtype) {
    case DType::kFloat16:
    case DType::kBFloat16:
      return Put(at, HalfBits(dtype, value));
    case DType::kFloat32:
      return Put(at, static_cast<float>(rounded));
    case DType::kInt32:
      return Put(at, static_cast<int32_t>(rounded));
    case DType::kInt64:
      return Put(at, ToInt64(rounded));
    case DType::kUInt8:
    case DType::kBool:
      return Put(at, static_cast<uint8_t>(rounded));
    default:
      return Put(at, rounded);
  }
}

std::vector<double> Array::Values() const {
  std::vector<double> values;
  for (int64_t i = 0; i < Count(); ++i) values.push_back((*this)[i]);
  return values;
}

std::vector<int64_t> Array::Integers() const {
  std::vector<int64_t> values;
  for (int64_t i = 0; i < Count(); ++i) {
    values.push_back(dtype == DType::kInt64 ? Get<int64_t>(&bytes[static_cast<size_t>(i) * 8])
                                            : static_cast<int64_t>((*this)[i]));
  }
  return values;
}

Array Random::Normal(DType dtype, const Shape& shape, double scale) {
  std::normal_distribution<double> draw(0, scale);
  Array array(dtype, shape, 0.0);
  for (int64_t i = 0; i < array.Count(); ++i) array.Set(i, draw(engine_));
  return array;
}

Array Random::Uniform(DType dtype, const Shape& shape, double low, double high) {
  std::uniform_real_distribution<double> draw(low, high);
  Array array(dtype, shape, 0.0);
  for (int64_t i = 0; i < array.Count(); ++i) array.Set(i, draw(engine_));
  return array;
}

Array Random::Indices(const Shape& shape, int64_t bound, DType dtype) {
  std::uniform_int_distribution<int64_t> draw(0, bound - 1);
  std::vector<int64_t> values(static_cast<size_t>(CountOf(shape)));
  for (int64_t& value : values) value = draw(engine_);
  return Array::Ints(shape, values, dtype);
}

}  // namespace kernelbox::testing

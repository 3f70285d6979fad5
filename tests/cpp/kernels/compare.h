// Comparison of a layer's results with references in double.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "array.h"
#include "call.h"

namespace kernelbox::testing {

// Dtypes that the tested backend computes in.
std::vector<DType> ComputedDTypes();

// Each element is what rounding the reference to the array's dtype allows, half a last place, and
// besides `steps` roundings of the accumulator (float32, or float64 for float64) relative to
// `scale`: the size of the terms that went into it, the reference's own when left out; and `extra`,
// where something on the way was rounded to 16 bits. NaN and infinity must be met exactly.
void ExpectClose(const Array& got, const std::vector<double>& reference, double steps,
                 const std::vector<double>& scale = {}, const std::vector<double>& extra = {});
// The same bits.
void ExpectSame(const Array& got, const Array& expected);

// The status is an error with this reason and field, whose texts hold these words.
void ExpectError(const Status& status, Reason reason, const std::string& field,
                 const std::string& expected = "", const std::string& given = "");

// In float64 on cpu: backward's gradients of sum(gradient * output) agree with central differences
// of forward. `inputs` are the forward's fields to be checked.
void CheckGradient(const LayerCall& call, const std::string& output,
                   const std::vector<std::string>& inputs);

// Values on both sides of everything: used by element-wise tests.
std::vector<double> AwkwardNumbers();
// Sizes that blocks, warps and packs do not divide.
std::vector<int64_t> OddSizes();

}  // namespace kernelbox::testing

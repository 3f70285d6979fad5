// What holds for every layer in the registry, whatever it computes. LayerCall::Run itself checks
// that two runs give the same bits and that nothing is written beside the outputs.
#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <set>

#include "compare.h"
#include "samples.h"

namespace kernelbox::testing {
namespace {

std::vector<std::string> LayerNames() {
  std::set<std::string> names;
  for (const Layer* layer = Layer::Head(); layer != nullptr; layer = layer->next) {
    names.insert(layer->name);
  }
  return {names.begin(), names.end()};
}

class EachLayer : public ::testing::TestWithParam<std::string> {
 protected:
  // Calls check(sample) for every sample of the layer in every dtype.
  template <class Check>
  void ForEachSample(Check check) {
    for (DType dtype : ComputedDTypes()) {
      const std::vector<LayerCall> samples = Samples(GetParam(), dtype);
      ASSERT_FALSE(samples.empty());
      for (size_t i = 0; i < samples.size(); ++i) {
        SCOPED_TRACE(GetParam() + " " + NameOf(dtype) + " sample " + std::to_string(i));
        check(samples[i]);
        if (HasFailure()) return;
      }
    }
  }
};

TEST_P(EachLayer, RunsOnceAndAgain) {
  ForEachSample([](const LayerCall& sample) {
    const Result result = sample.Run();
    EXPECT_TRUE(result.status.ok())
        << result.status.field << ": " << result.status.expected << ", not " << result.status.given;
  });
}

TEST_P(EachLayer, TakesMisalignedTensors) {
  ForEachSample([](const LayerCall& sample) {
    const Result aligned = sample.Run();
    LayerCall moved = sample;
    const Result result = moved.Misaligned().Run();
    ASSERT_TRUE(result.status.ok()) << result.status.field << ": " << result.status.expected;
    for (const auto& [name, arrays] : aligned.fields) {
      for (size_t i = 0; i < arrays.size(); ++i) {
        SCOPED_TRACE(name);
        const Array& got = result.fields.at(name)[i];
        if (!IsFloating(got.dtype)) {
          ExpectSame(got, arrays[i]);
          continue;
        }
        // Sums may be taken in another order.
        double largest = 0;
        for (double value : arrays[i].Values()) {
          if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
        }
        const std::vector<double> scale(static_cast<size_t>(got.Count()), largest);
        const std::vector<double> place(scale.size(), largest * Epsilon(got.dtype));
        ExpectClose(got, arrays[i].Values(), 32, scale, place);
      }
    }
  });
}

TEST_P(EachLayer, IsTheSameOnAnyNumberOfThreads) {
  if (TestedBackend() == Backend::kCuda) GTEST_SKIP() << "of the cpu backend";
  if (GetParam().rfind("Linear", 0) == 0) GTEST_SKIP() << "OpenBLAS shares sums out by threads";
  const int threads = omp_get_max_threads();
  ForEachSample([](const LayerCall& sample) {
    omp_set_num_threads(1);
    const Result one = sample.Run();
    omp_set_num_threads(3);
    const Result three = sample.Run();
    for (const auto& [name, arrays] : one.fields) {
      for (size_t i = 0; i < arrays.size(); ++i) ExpectSame(three.fields.at(name)[i], arrays[i]);
    }
  });
  omp_set_num_threads(threads);
}

TEST_P(EachLayer, LeavesInOutsAloneAfterAFailedInput) {
  if (TestedBackend() == Backend::kCpu) GTEST_SKIP() << "cpu never starts such an op";
  ForEachSample([](const LayerCall& sample) {
    LayerCall guarded = sample;
    const Result result = guarded.Guarded().Run();
    ASSERT_TRUE(result.status.ok());
    for (const auto& [name, arrays] : sample.tensors()) {
      if (!result.Has(name)) continue;
      for (size_t i = 0; i < arrays.size(); ++i) ExpectSame(result.fields.at(name)[i], arrays[i]);
    }
  });
}

// Both backends from one input. Integers and random states must be the same; the rest as close as
// float32 sums in another order are, and one last place.
TEST_P(EachLayer, AgreesWithTheOtherBackend) {
  if (!CudaAvailable()) GTEST_SKIP() << "no CUDA device";
  for (DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    for (const LayerCall& sample : Samples(GetParam(), dtype)) {
      const Result cpu = sample.Run(Backend::kCpu);
      const Result cuda = sample.Run(Backend::kCuda);
      ASSERT_TRUE(cpu.status.ok() && cuda.status.ok());
      for (const auto& [name, arrays] : cpu.fields) {
        for (size_t i = 0; i < arrays.size(); ++i) {
          SCOPED_TRACE(GetParam() + " " + NameOf(dtype) + " " + name);
          const Array& got = cuda.fields.at(name)[i];
          if (!IsFloating(got.dtype)) {
            ExpectSame(got, arrays[i]);
            continue;
          }
          const std::vector<double> values = arrays[i].Values();
          double largest = 0;
          for (double value : values) {
            if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
          }
          const std::vector<double> scale(values.size(), largest);
          std::vector<double> place;
          // 16-bit inputs of a second product may differ by a place of their own.
          for (size_t k = 0; k < values.size(); ++k) place.push_back(Epsilon(dtype) * largest);
          ExpectClose(got, values, 64, scale,
                      dtype == DType::kFloat32 ? std::vector<double>() : place);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Registry, EachLayer, ::testing::ValuesIn(LayerNames()),
                         [](const auto& info) { return info.param; });

TEST(Registry, HasTheLayers) { EXPECT_GE(LayerNames().size(), 19u); }

}  // namespace
}  // namespace kernelbox::testing

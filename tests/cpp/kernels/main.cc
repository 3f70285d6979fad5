// kernel_tests [--backend=cpu|cuda] [gtest flags]. KERNELBOX_TEST_BACKEND says the same.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "block.h"

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  const char* from_environment = std::getenv("KERNELBOX_TEST_BACKEND");
  std::string backend = from_environment == nullptr ? "cpu" : from_environment;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.rfind("--backend=", 0) == 0) backend = argument.substr(10);
  }
  using kernelbox::testing::Backend;
  if (backend == "cuda") {
    if (!kernelbox::testing::CudaAvailable()) {
      std::fprintf(stderr, "--backend=cuda: no CUDA device, or built without CUDA\n");
      return 2;
    }
    kernelbox::testing::SetTestedBackend(Backend::kCuda);
  } else if (backend != "cpu") {
    std::fprintf(stderr, "--backend is cpu or cuda, not %s\n", backend.c_str());
    return 2;
  }
  return RUN_ALL_TESTS();
}

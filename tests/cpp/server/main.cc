// The server's tests. KERNELBOX_TEST_LOG=debug shows the servers' logs.
#include <cstdlib>

#include "gtest/gtest.h"
#include "spdlog/spdlog.h"

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  const char* level = std::getenv("KERNELBOX_TEST_LOG");
  spdlog::set_level(level != nullptr ? spdlog::level::from_str(level) : spdlog::level::off);
  return RUN_ALL_TESTS();
}

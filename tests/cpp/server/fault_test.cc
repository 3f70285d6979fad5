// Faults that only the data shows, on a device that runs behind the server or not: the same
// errors in the same places, and nothing computed from a failed input.
#include <cstring>

#include "tests/cpp/server/client.h"
#include "tests/cpp/server/fake_device.h"

namespace kernelbox::server {
namespace {

std::string Int64s(const std::vector<int64_t>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * 8);
}

v1::TensorSpec Int64(const std::vector<int64_t>& shape) {
  v1::TensorSpec spec = Float32(shape);
  spec.set_dtype(v1::D_TYPE_INT64);
  return spec;
}

class FaultTest : public EveryBackendTest {
 protected:
  static constexpr uint64_t kLogits = 1;
  static constexpr uint64_t kGoodTarget = 2;
  static constexpr uint64_t kBadTarget = 3;
  static constexpr uint64_t kRngState = 4;

  void SetUp() override {
    EveryBackendTest::SetUp();
    ASSERT_EQ(ReasonOf(client_->Upload(kLogits, Float32({2, 3}), Bytes({1, 2, 3, 3, 2, 1}))), "OK");
    ASSERT_EQ(ReasonOf(client_->Upload(kGoodTarget, Int64({2}), Int64s({0, 1}))), "OK");
    ASSERT_EQ(ReasonOf(client_->Upload(kBadTarget, Int64({2}), Int64s({0, 7}))), "OK");
    ASSERT_EQ(ReasonOf(client_->Upload(kRngState, Int64({2}), Int64s({5, 6}))), "OK");
  }

  static v1::Op Loss(uint64_t target, uint64_t y, uint64_t id) {
    v1::Op op;
    op.set_id(id);
    op.mutable_cross_entropy_loss()->set_x(kLogits);
    op.mutable_cross_entropy_loss()->set_target(target);
    op.mutable_cross_entropy_loss()->set_y(y);
    return op;
  }
  static v1::Op Add(uint64_t a, uint64_t b, uint64_t y, uint64_t id) {
    v1::Op op;
    op.set_id(id);
    op.mutable_add()->set_a(a);
    op.mutable_add()->set_b(b);
    op.mutable_add()->set_y(y);
    return op;
  }
  // Dropout of x to y, which moves kRngState on.
  static v1::Op Dropout(uint64_t x, uint64_t y, uint64_t id) {
    v1::Op op;
    op.set_id(id);
    op.mutable_dropout()->set_x(x);
    op.mutable_dropout()->set_rng_state(kRngState);
    op.mutable_dropout()->set_y(y);
    return op;
  }
  std::string RngState() {
    std::string bytes;
    EXPECT_EQ(ReasonOf(client_->Download(kRngState, &bytes)), "OK");
    return bytes;
  }
  // The answer's failed ops must be these, all because of op `origin`.
  static void ExpectFailed(const v1::ExecuteResponse& response, const std::vector<uint64_t>& ops,
                           uint64_t origin) {
    std::vector<uint64_t> failed;
    for (const v1::OpResult& result : response.results()) {
      failed.push_back(result.op_id());
      EXPECT_EQ(ReasonOf(result.error()), "VALUE_OUT_OF_RANGE");
      EXPECT_EQ(result.error().op_id(), origin);
      EXPECT_EQ(result.error().op(), "cross_entropy_loss");
      EXPECT_EQ(result.error().metadata().at("field"), "target");
    }
    EXPECT_EQ(failed, ops);
    EXPECT_EQ(response.failed_ops(), ops.size());
  }
};
KB_ON_EVERY_BACKEND(FaultTest);

TEST_P(FaultTest, WhatReadsAFailedTensorFailsWithTheOriginsError) {
  ExecuteStream stream(*client_);
  stream.Send({Loss(kBadTarget, 10, 100), ReLU(10, 11, 101), Loss(kGoodTarget, 12, 102),
               ReLU(11, 13, 103), ReLU(12, 14, 104)});
  const v1::ExecuteResponse response = stream.Receive();
  ExpectFailed(response, {100, 101, 103}, 100);
  EXPECT_EQ(response.completed_ops(), 2u);
  EXPECT_EQ(ReasonOf(stream.End()), "OK");
  EXPECT_EQ(client_->DownloadFloats(14).size(), 1u);
  for (const uint64_t handle : {10, 11, 13}) {
    EXPECT_EQ(client_->Describe(handle).error().op_id(), 100u);
    std::string bytes;
    EXPECT_EQ(ReasonOf(client_->Download(handle, &bytes)), "VALUE_OUT_OF_RANGE");
  }
  const v1::SyncResponse sync = client_->Sync();
  EXPECT_EQ(sync.failed_ops(), 3u);
  EXPECT_EQ(sync.errors_size(), 1);
}

TEST_P(FaultTest, RunFailsWithIt) {
  const Failure failure = FailureOf(client_->Run(Loss(kBadTarget, 10, 100)));
  EXPECT_EQ(failure.code, grpc::StatusCode::OUT_OF_RANGE);
  EXPECT_EQ(failure.reason, "VALUE_OUT_OF_RANGE");
  EXPECT_EQ(failure.metadata.at("op_id"), "100");
  EXPECT_EQ(ReasonOf(client_->Run(ReLU(10, 11))), "VALUE_OUT_OF_RANGE");
}

TEST_P(FaultTest, EitherOfTwoFaultsIsEnough) {
  ExecuteStream stream(*client_);
  stream.Send({Loss(kGoodTarget, 10, 100), Loss(kBadTarget, 11, 101), Loss(kGoodTarget, 12, 102),
               Add(10, 12, 13, 103), Add(12, 11, 14, 104), Add(13, 14, 15, 105),
               Add(13, 10, 16, 106)});
  ExpectFailed(stream.Receive(), {101, 104, 105}, 101);
  EXPECT_EQ(ReasonOf(stream.End()), "OK");
  EXPECT_EQ(client_->DownloadFloats(16).size(), 1u);
}

TEST_P(FaultTest, TensorsAreNotUpdatedFromAFailedOne) {
  const std::string before = RngState();
  ExecuteStream stream(*client_);
  stream.Send({Loss(kBadTarget, 10, 100), Dropout(10, 11, 101)});
  ExpectFailed(stream.Receive(), {100, 101}, 100);
  EXPECT_EQ(RngState(), before) << "it keeps its value";
  stream.Send({Loss(kGoodTarget, 12, 102), Dropout(12, 13, 103)});
  EXPECT_EQ(stream.Receive().completed_ops(), 2u);
  EXPECT_EQ(ReasonOf(stream.End()), "OK");
  EXPECT_NE(RngState(), before);
}

TEST_P(FaultTest, FailedTensorsCanBeFreedAtOnce) {
  const uint64_t before = client_->MemoryUsed();
  ExecuteStream stream(*client_);
  for (int i = 0; i < 20; ++i) {
    stream.Send({Loss(kBadTarget, 10, 100), ReLU(10, 11, 101), Loss(kGoodTarget, 12, 102),
                 Add(11, 12, 13, 103)},
                {10, 11, 12, 13});
  }
  for (int i = 0; i < 20; ++i) {
    const v1::ExecuteResponse response = stream.Receive();
    ExpectFailed(response, {100, 101, 103}, 100);
    EXPECT_EQ(response.free_errors_size(), 0);
  }
  EXPECT_EQ(ReasonOf(stream.End()), "OK");
  EXPECT_EQ(client_->WaitForMemory(before), before);
}

TEST_P(FaultTest, OutputsAreReportedOnlyIfTheyAreGood) {
  ExecuteStream stream(*client_);
  stream.Send({Loss(kBadTarget, 10, 100), Loss(kGoodTarget, 11, 101)}, {}, "", v1::REPORT_ALL);
  const v1::ExecuteResponse response = stream.Receive();
  ASSERT_EQ(response.results_size(), 2);
  EXPECT_EQ(response.results(0).outputs_size(), 0);
  EXPECT_EQ(ReasonOf(response.results(0).error()), "VALUE_OUT_OF_RANGE");
  ASSERT_EQ(response.results(1).outputs_size(), 1);
  EXPECT_EQ(response.results(1).outputs(0).field(), "y");
  EXPECT_FALSE(response.results(1).has_error());
  EXPECT_EQ(ReasonOf(stream.End()), "OK");
}

// A device that runs behind the server, held still.
class BehindTest : public ServerTest {
 protected:
  void SetUp() override {
    Start("fake");
    ASSERT_EQ(ReasonOf(client_->UploadFloats(1, {-1, 1})), "OK");
  }
};

TEST_F(BehindTest, OpsAreLaunchedAheadAndFinishInOrder) {
  FakeLayers::gate().Close();
  ExecuteStream stream(*client_);
  for (uint64_t i = 0; i < 10; ++i) stream.Send({ReLU(1 + i, 2 + i)}, {1 + i});
  FakeLayers::gate().WaitForHeld(1);
  std::this_thread::sleep_for(kArrives);
  FakeLayers::gate().Open();
  for (uint64_t i = 0; i < 10; ++i) EXPECT_EQ(stream.Receive().sequence(), i + 1);
  EXPECT_EQ(ReasonOf(stream.End()), "OK");
  EXPECT_EQ(client_->DownloadFloats(11), (std::vector<float>{0, 1}));
}

TEST_F(BehindTest, ClosingASessionWaitsForTheDevice) {
  FakeLayers::gate().Close();
  ExecuteStream stream(*client_);
  stream.Send({ReLU(1, 2)});
  FakeLayers::gate().WaitForHeld(1);
  std::thread close([this] { EXPECT_EQ(ReasonOf(client_->CloseSession()), "OK"); });
  std::this_thread::sleep_for(kArrives);
  EXPECT_GT(client_->Info().devices(0).memory_reserved_bytes(), 0u);
  FakeLayers::gate().Open();
  close.join();
  EXPECT_EQ(stream.Receive().completed_ops(), 1u);
  EXPECT_EQ(client_->Info().devices(0).memory_reserved_bytes(), 0u);
}

TEST_F(BehindTest, AFailedDeviceFailsEverythingAndIsNotReady) {
  FakeLayers::gate().Close();
  ExecuteStream stream(*client_);
  stream.Send({ReLU(1, 2)});
  FakeLayers::gate().WaitForHeld(1);
  BreakFakeDevices(true);
  const Failure failure = FailureOf(stream.End());
  EXPECT_EQ(failure.code, grpc::StatusCode::INTERNAL);
  EXPECT_EQ(failure.reason, "DEVICE_ERROR");
  EXPECT_EQ(ReasonOf(client_->Run(ReLU(1, 3))), "DEVICE_ERROR");
  std::string bytes;
  EXPECT_EQ(ReasonOf(client_->Download(1, &bytes)), "DEVICE_ERROR");
  EXPECT_EQ(ReasonOf(client_->UploadFloats(5, {1})), "DEVICE_ERROR");
  EXPECT_EQ(client_->Health("kernelbox.v1.KernelboxService"), "NOT_SERVING");
  EXPECT_EQ(client_->Health(""), "SERVING");
  FakeLayers::gate().Open();
}

}  // namespace
}  // namespace kernelbox::server

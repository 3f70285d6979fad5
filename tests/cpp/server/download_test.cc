// Downloads: a snapshot, without holding anything up, and nothing left when they are broken off.
#include <thread>

#include "tests/cpp/server/client.h"

namespace kernelbox::server {
namespace {

class DownloadTest : public EveryBackendTest {
 protected:
  static constexpr int64_t kElements = 12 << 20;  // 48 MiB: more than the transport takes ahead
  static constexpr uint64_t kParams = 1;
  static constexpr uint64_t kGrads = 2;

  // Parameters of 1, and an op that takes 1 from them.
  void SetUp() override {
    EveryBackendTest::SetUp();
    for (const uint64_t handle : {kParams, kGrads}) {
      v1::Op fill;
      fill.mutable_fill()->set_y(handle);
      fill.mutable_fill()->add_shape(kElements);
      fill.mutable_fill()->set_dtype(v1::D_TYPE_FLOAT32);
      fill.mutable_fill()->set_value(1);
      ASSERT_EQ(ReasonOf(client_->Run(fill)), "OK");
    }
    ASSERT_EQ(ReasonOf(client_->Upload(3, Float32({}), Bytes({1}))), "OK");
    v1::TensorSpec step = Float32({});
    step.set_dtype(v1::D_TYPE_INT64);
    ASSERT_EQ(ReasonOf(client_->Upload(4, step, std::string(8, '\0'))), "OK");
  }
  static v1::Op Step() {
    v1::Op op;
    op.mutable_sgd()->add_params(kParams);
    op.mutable_sgd()->add_grads(kGrads);
    op.mutable_sgd()->set_lr(3);
    op.mutable_sgd()->set_step(4);
    return op;
  }
  // A download of the parameters whose header has been read.
  struct Begun {
    explicit Begun(Client& client) {
      v1::DownloadRequest request;
      request.set_session_id(client.session());
      request.set_handle(kParams);
      reader = client.stub().Download(&context, request);
      EXPECT_TRUE(reader->Read(&part));
      EXPECT_TRUE(part.has_header());
    }
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<v1::DownloadResponse>> reader;
    v1::DownloadResponse part;
  };
};
KB_ON_EVERY_BACKEND(DownloadTest);

TEST_P(DownloadTest, SendsTheTensorAsItWasAtItsTurn) {
  const uint64_t before = client_->MemoryUsed();
  Begun download(*client_);
  // The reader stands still; ops that update and free the tensor do not wait for it.
  ASSERT_EQ(ReasonOf(client_->Run(Step())), "OK");
  ASSERT_EQ(ReasonOf(client_->Run(Step())), "OK");
  EXPECT_GT(client_->MemoryUsed(), before) << "the download has the old one";
  int64_t elements = 0;
  while (download.reader->Read(&download.part)) {
    if (download.part.part_case() != v1::DownloadResponse::kChunk) continue;
    for (const float value : Floats(download.part.chunk())) {
      ASSERT_EQ(value, 1.0f);
      ++elements;
    }
  }
  EXPECT_EQ(elements, kElements);
  EXPECT_EQ(ReasonOf(download.reader->Finish()), "OK");
  EXPECT_EQ(client_->WaitForMemory(before), before);
  EXPECT_EQ(client_->DownloadFloats(kParams)[kElements - 1], -1.0f);
}

TEST_P(DownloadTest, TheTensorCanBeFreedMeanwhile) {
  Begun download(*client_);
  ASSERT_EQ(ReasonOf(client_->Free({kParams, kGrads})), "OK");
  EXPECT_GE(client_->MemoryUsed(), static_cast<uint64_t>(kElements) * 4);
  size_t bytes = 0;
  while (download.reader->Read(&download.part)) bytes += download.part.chunk().size();
  EXPECT_EQ(bytes, static_cast<size_t>(kElements) * 4);
  EXPECT_EQ(ReasonOf(download.reader->Finish()), "OK");
  EXPECT_EQ(client_->WaitForMemory(512), 512u);
}

TEST_P(DownloadTest, BrokenOffItLeavesNothing) {
  {
    Begun download(*client_);
    ASSERT_EQ(ReasonOf(client_->Free({kParams, kGrads, 3, 4})), "OK");
    download.context.TryCancel();
    EXPECT_EQ(download.reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  EXPECT_EQ(client_->WaitForMemory(0), 0u);
}

TEST_P(DownloadTest, TheSessionCanBeClosedMeanwhile) {
  Begun download(*client_);
  ASSERT_EQ(ReasonOf(client_->CloseSession()), "OK");
  size_t bytes = 0;
  while (download.reader->Read(&download.part)) bytes += download.part.chunk().size();
  EXPECT_EQ(bytes, static_cast<size_t>(kElements) * 4);
  EXPECT_EQ(ReasonOf(download.reader->Finish()), "OK");
  EXPECT_EQ(client_->WaitForMemory(0), 0u);
}

TEST_P(DownloadTest, OutOfMemoryForTheCopyLeavesTheTensorAsItIs) {
  Begun download(*client_);
  v1::Op fill;
  fill.mutable_fill()->set_y(9);
  fill.mutable_fill()->add_shape(120 << 20);  // with 2 * 48 MiB held, no 48 MiB are left of 256
  fill.mutable_fill()->set_dtype(v1::D_TYPE_UINT8);
  ASSERT_EQ(ReasonOf(client_->Run(fill)), "OK");
  const Failure failure = FailureOf(client_->Run(Step()));
  EXPECT_EQ(failure.reason, "OUT_OF_MEMORY");
  EXPECT_EQ(failure.metadata.at("op"), "sgd");
  while (download.reader->Read(&download.part)) continue;
  EXPECT_EQ(ReasonOf(download.reader->Finish()), "OK");
  EXPECT_EQ(client_->DownloadFloats(kParams)[0], 1.0f);
  ASSERT_EQ(ReasonOf(client_->Free({9})), "OK");
  EXPECT_EQ(ReasonOf(client_->Run(Step())), "OK");
  EXPECT_EQ(client_->DownloadFloats(kParams)[0], 0.0f);
}

}  // namespace
}  // namespace kernelbox::server

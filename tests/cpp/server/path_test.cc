// The whole path with good input: a tensor goes up, through ops, and comes down.
#include <cmath>
#include <limits>

#include "tests/cpp/server/client.h"

namespace kernelbox::server {
namespace {

class PathTest : public EveryBackendTest {};
KB_ON_EVERY_BACKEND(PathTest);

TEST_P(PathTest, UploadRunDownload) {
  ASSERT_EQ(ReasonOf(client_->UploadFloats(1, {-1, 0, 2})), "OK");
  v1::RunResponse response;
  ASSERT_EQ(ReasonOf(client_->Run(ReLU(1, 2, 77), &response)), "OK");
  EXPECT_EQ(response.result().op_id(), 77u);
  EXPECT_EQ(response.result().kernel(), "relu_" + GetParam());
  ASSERT_EQ(response.result().outputs_size(), 1);
  EXPECT_EQ(response.result().outputs(0).field(), "y");
  EXPECT_EQ(response.result().outputs(0).handle(), 2u);
  EXPECT_EQ(response.result().outputs(0).spec().shape(0), 3);
  EXPECT_EQ(client_->DownloadFloats(2), (std::vector<float>{0, 0, 2}));
}

TEST_P(PathTest, LargeTensorsCrossInManyChunks) {
  std::string bytes(5'000'003, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 131 >> 3);
  v1::TensorSpec spec;
  spec.set_dtype(v1::D_TYPE_UINT8);
  spec.add_shape(static_cast<int64_t>(bytes.size()));
  ASSERT_EQ(ReasonOf(client_->Upload(1, spec, bytes)), "OK");
  std::string back;
  ASSERT_EQ(ReasonOf(client_->Download(1, &back)), "OK");
  EXPECT_EQ(back, bytes);
}

TEST_P(PathTest, EmptyAndScalarTensors) {
  for (const std::vector<int64_t>& shape :
       std::vector<std::vector<int64_t>>{{}, {0}, {3, 0, 2}, {1, 1}}) {
    const size_t elements = shape.size() == 2 || shape.empty() ? 1 : 0;
    const std::string bytes = Bytes(std::vector<float>(elements, -2.0f));
    ASSERT_EQ(ReasonOf(client_->Upload(1, Float32(shape), bytes)), "OK");
    ASSERT_EQ(ReasonOf(client_->Run(ReLU(1, 2))), "OK");
    std::string back;
    v1::TensorSpec spec;
    ASSERT_EQ(ReasonOf(client_->Download(2, &back, &spec)), "OK");
    EXPECT_EQ(back, Bytes(std::vector<float>(elements, 0.0f)));
    EXPECT_EQ(std::vector<int64_t>(spec.shape().begin(), spec.shape().end()), shape);
    ASSERT_EQ(ReasonOf(client_->Free({1, 2})), "OK");
  }
}

TEST_P(PathTest, BytesComeBackAsTheyWere) {
  // Signalling and quiet NaNs with payloads, in a dtype that no copy may touch.
  const std::string bytes("\x01\x00\xa0\x7f\xff\xff\xff\xff\x00\x00\xc0\x7f\x00\x00\x80\xff", 16);
  ASSERT_EQ(ReasonOf(client_->Upload(1, Float32({2, 2}), bytes)), "OK");
  std::string back;
  ASSERT_EQ(ReasonOf(client_->Download(1, &back)), "OK");
  EXPECT_EQ(back, bytes);
}

TEST_P(PathTest, ExecuteAnswersEachRequestInOrder) {
  ASSERT_EQ(ReasonOf(client_->UploadFloats(1, {-1, 5})), "OK");
  grpc::ClientContext context;
  const auto stream = client_->stub().Execute(&context);
  constexpr int kRequests = 200;
  uint64_t next = 2;
  for (int i = 0; i < kRequests; ++i) {
    v1::ExecuteRequest request;
    if (i == 0) request.set_session_id(client_->session());
    if (i == kRequests - 1) request.set_report(v1::REPORT_ALL);
    *request.add_ops() = ReLU(next - 1, next);
    *request.add_ops() = ReLU(next, next + 1);
    request.add_free_handles(next - 1);
    request.add_free_handles(next);
    next += 2;
    ASSERT_TRUE(stream->Write(request));
  }
  stream->WritesDone();
  v1::ExecuteResponse response;
  for (int i = 0; i < kRequests; ++i) {
    ASSERT_TRUE(stream->Read(&response));
    EXPECT_EQ(response.sequence(), static_cast<uint64_t>(i) + 1);
    EXPECT_EQ(response.completed_ops(), 2u);
    EXPECT_EQ(response.failed_ops(), 0u);
    EXPECT_EQ(response.results_size(), i == kRequests - 1 ? 2 : 0);
    EXPECT_EQ(response.free_errors_size(), 0);
  }
  EXPECT_FALSE(stream->Read(&response));
  EXPECT_EQ(ReasonOf(stream->Finish()), "OK");
  EXPECT_EQ(client_->DownloadFloats(next - 1), (std::vector<float>{0, 5}));
  EXPECT_EQ(client_->MemoryUsed(), 256u);
}

TEST_P(PathTest, ServerChoosesHandles) {
  ASSERT_EQ(ReasonOf(client_->UploadFloats(1, {-1})), "OK");
  grpc::ClientContext context;
  v1::RunRequest request;
  request.set_session_id(client_->session());
  *request.mutable_op() = ReLU(1, 0);
  request.set_assign_handles(true);
  v1::RunResponse response;
  ASSERT_EQ(ReasonOf(client_->stub().Run(&context, request, &response)), "OK");
  const uint64_t handle = response.result().outputs(0).handle();
  EXPECT_GE(handle, uint64_t{1} << 63);
  EXPECT_EQ(client_->DownloadFloats(handle), (std::vector<float>{0}));
}

TEST_P(PathTest, DescribeAndServerInfo) {
  ASSERT_EQ(ReasonOf(client_->UploadFloats(1, {1, 2, 3})), "OK");
  const v1::TensorState state = client_->Describe(1);
  EXPECT_EQ(state.spec().dtype(), v1::D_TYPE_FLOAT32);
  EXPECT_EQ(state.spec().layout(), v1::LAYOUT_CONTIGUOUS);
  ASSERT_EQ(state.spec().shape_size(), 1);
  EXPECT_EQ(state.spec().shape(0), 3);

  const v1::GetServerInfoResponse info = client_->Info();
  EXPECT_EQ(info.backend(), GetParam());
  EXPECT_EQ(info.server_version(), KERNELBOX_VERSION);
  EXPECT_EQ(info.epoch() + "-", client_->session().substr(0, info.epoch().size() + 1));
  EXPECT_EQ(info.limits().preferred_chunk_bytes(), 256u << 10);
  EXPECT_EQ(info.dtypes_size(), 8);
  EXPECT_EQ(info.ops_size(), v1::Op::descriptor()->oneof_decl(0)->field_count());
}

TEST_P(PathTest, SessionsAreApart) {
  ASSERT_EQ(ReasonOf(client_->UploadFloats(1, {1})), "OK");
  const std::unique_ptr<Client> other = NewClient();
  EXPECT_EQ(ReasonOf(other->Run(ReLU(1, 2))), "UNKNOWN_HANDLE");
  ASSERT_EQ(ReasonOf(other->UploadFloats(1, {-7})), "OK");
  EXPECT_EQ(client_->DownloadFloats(1), (std::vector<float>{1}));
  ASSERT_EQ(ReasonOf(other->CloseSession()), "OK");
  EXPECT_EQ(ReasonOf(other->Run(ReLU(1, 2))), "SESSION_NOT_FOUND");
  EXPECT_EQ(client_->WaitForMemory(256), 256u);
}

}  // namespace
}  // namespace kernelbox::server

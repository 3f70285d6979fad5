// Each bad input has its error, leaves nothing behind, and the session goes on.
#include <limits>

#include "tests/cpp/server/client.h"

namespace kernelbox::server {
namespace {

class BadInputTest : public EveryBackendTest {
 protected:
  void SetUp() override {
    EveryBackendTest::SetUp();
    ASSERT_EQ(ReasonOf(client_->UploadFloats(1, {-1, 1})), "OK");
    baseline_ = client_->MemoryUsed();
  }
  // The session works and holds no more than before.
  void TearDown() override {
    EXPECT_EQ(client_->WaitForMemory(baseline_), baseline_);
    EXPECT_EQ(ReasonOf(client_->Run(ReLU(1, 1000))), "OK");
    EXPECT_EQ(client_->DownloadFloats(1000), (std::vector<float>{0, 1}));
    EveryBackendTest::TearDown();
  }

  uint64_t baseline_ = 0;
};
KB_ON_EVERY_BACKEND(BadInputTest);

TEST_P(BadInputTest, UnknownHandle) {
  const Failure failure = FailureOf(client_->Run(ReLU(5, 6, 77)));
  EXPECT_EQ(failure.code, grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(failure.reason, "UNKNOWN_HANDLE");
  EXPECT_EQ(failure.domain, "kernelbox");
  EXPECT_EQ(failure.message, "relu: x: handle 5 names no tensor of this session");
  EXPECT_EQ(failure.metadata,
            (std::map<std::string, std::string>{
                {"field", "x"}, {"handle", "5"}, {"op", "relu"}, {"op_id", "77"}}));
}

TEST_P(BadInputTest, ForeignAndFreedHandlesLookUnknown) {
  const std::unique_ptr<Client> other = NewClient();
  ASSERT_EQ(ReasonOf(other->UploadFloats(5, {1})), "OK");
  ASSERT_EQ(ReasonOf(client_->UploadFloats(7, {1})), "OK");
  ASSERT_EQ(ReasonOf(client_->Free({7})), "OK");
  const Failure foreign = FailureOf(client_->Run(ReLU(5, 6, 1)));
  const Failure freed = FailureOf(client_->Run(ReLU(7, 8, 1)));
  EXPECT_EQ(foreign.code, freed.code);
  EXPECT_EQ(foreign.reason, freed.reason);
  EXPECT_EQ(foreign.message, "relu: x: handle 5 names no tensor of this session");
  EXPECT_EQ(freed.message, "relu: x: handle 7 names no tensor of this session");
  ASSERT_EQ(ReasonOf(other->CloseSession()), "OK");
}

TEST_P(BadInputTest, ZeroHandle) {
  EXPECT_EQ(ReasonOf(client_->Run(ReLU(0, 6))), "ZERO_HANDLE");
  const Failure failure = FailureOf(client_->Run(ReLU(1, 0)));
  EXPECT_EQ(failure.reason, "ZERO_HANDLE");
  EXPECT_EQ(failure.metadata.at("field"), "y");
  EXPECT_EQ(ReasonOf(client_->UploadFloats(0, {1})), "ZERO_HANDLE");
  std::string bytes;
  EXPECT_EQ(ReasonOf(client_->Download(0, &bytes)), "ZERO_HANDLE");
}

TEST_P(BadInputTest, DuplicateHandle) {
  const Failure failure = FailureOf(client_->Run(ReLU(1, 1)));
  EXPECT_EQ(failure.code, grpc::StatusCode::ALREADY_EXISTS);
  EXPECT_EQ(failure.reason, "DUPLICATE_HANDLE");
  EXPECT_EQ(failure.message, "relu: y: handle 1 is in use");
  EXPECT_EQ(ReasonOf(client_->UploadFloats(1, {1})), "DUPLICATE_HANDLE");
  EXPECT_EQ(client_->DownloadFloats(1), (std::vector<float>{-1, 1}));
}

TEST_P(BadInputTest, HandlesOfTheServersRangeAreNotTheClientsToChoose) {
  EXPECT_EQ(ReasonOf(client_->Run(ReLU(1, uint64_t{1} << 63))), "INVALID_REQUEST");
  EXPECT_EQ(ReasonOf(client_->UploadFloats(~uint64_t{0}, {1})), "INVALID_REQUEST");
}

TEST_P(BadInputTest, NoKind) {
  const Failure failure = FailureOf(client_->Run(v1::Op()));
  EXPECT_EQ(failure.code, grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(failure.reason, "MISSING_FIELD");
}

TEST_P(BadInputTest, WrongShapeAndDType) {
  v1::Op op;
  ASSERT_EQ(ReasonOf(client_->UploadFloats(2, {1, 2, 3})), "OK");
  op.mutable_relu_backward()->set_x(1);
  op.mutable_relu_backward()->set_d_y(2);
  op.mutable_relu_backward()->set_d_x(3);
  const Failure shape = FailureOf(client_->Run(op));
  EXPECT_EQ(shape.code, grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(shape.reason, "INVALID_SHAPE");
  EXPECT_EQ(shape.metadata.at("field"), "d_y");
  EXPECT_EQ(shape.metadata.at("given"), "[3]");
  EXPECT_EQ(shape.message, "relu_backward: d_y must be [2], the shape of x, given [3]");

  v1::TensorSpec spec = Float32({1});
  spec.set_dtype(v1::D_TYPE_INT32);
  ASSERT_EQ(ReasonOf(client_->Upload(4, spec, "1234")), "OK");
  const Failure dtype = FailureOf(client_->Run(ReLU(4, 5)));
  EXPECT_EQ(dtype.reason, "INVALID_DTYPE");
  EXPECT_EQ(dtype.metadata.at("given"), "int32");
  ASSERT_EQ(ReasonOf(client_->Free({2, 3, 4, 5})), "OK");
}

TEST_P(BadInputTest, SpecsThatAreNone) {
  v1::TensorSpec spec = Float32({1});
  spec.set_dtype(v1::D_TYPE_UNSPECIFIED);
  EXPECT_EQ(ReasonOf(client_->Upload(2, spec, "")), "INVALID_DTYPE");
  spec.set_dtype(static_cast<v1::DType>(99));
  EXPECT_EQ(ReasonOf(client_->Upload(2, spec, "")), "INVALID_DTYPE");
  EXPECT_EQ(ReasonOf(client_->Upload(2, Float32({2, -1}), "")), "INVALID_SHAPE");
  EXPECT_EQ(ReasonOf(client_->Upload(2, Float32(std::vector<int64_t>(9, 1)), "1234")),
            "INVALID_SHAPE");
  spec = Float32({1, 1, 1, 1});
  spec.set_layout(v1::LAYOUT_CHANNELS_LAST);
  EXPECT_EQ(ReasonOf(client_->Upload(2, spec, "1234")), "UNSUPPORTED");
}

TEST_P(BadInputTest, SizeOverflow) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{
           {kMax}, {kMax, kMax}, {int64_t{1} << 32, int64_t{1} << 32}, {0, kMax, kMax}}) {
    const Failure failure = FailureOf(client_->Upload(2, Float32(shape), ""));
    EXPECT_EQ(failure.code, grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_EQ(failure.reason, "SIZE_OVERFLOW");
  }
}

TEST_P(BadInputTest, MoreThanThereIs) {
  v1::TensorSpec spec = Float32({int64_t{1} << 40});
  grpc::ClientContext context;
  v1::UploadResponse response;
  const auto writer = client_->stub().Upload(&context, &response);
  v1::UploadRequest part;
  part.mutable_header()->set_session_id(client_->session());
  part.mutable_header()->set_handle(2);
  *part.mutable_header()->mutable_spec() = spec;
  part.mutable_header()->set_size_bytes(uint64_t{4} << 40);
  writer->Write(part);
  writer->WritesDone();
  const Failure failure = FailureOf(writer->Finish());
  EXPECT_EQ(failure.code, grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(failure.reason, "OUT_OF_MEMORY");
  EXPECT_EQ(failure.metadata.at("requested_bytes"), std::to_string(uint64_t{4} << 40));
}

TEST_P(BadInputTest, FreeTellsOfUnknownHandlesAndFreesTheOthers) {
  ASSERT_EQ(ReasonOf(client_->UploadFloats(2, {1})), "OK");
  const Failure failure = FailureOf(client_->Free({99, 2}));
  EXPECT_EQ(failure.reason, "UNKNOWN_HANDLE");
  EXPECT_EQ(failure.metadata.at("handle"), "99");
  EXPECT_EQ(ReasonOf(client_->Describe(2).error()), "UNKNOWN_HANDLE");
}

TEST_P(BadInputTest, MessageOverTheLimit) {
  v1::Op op = ReLU(1, 2);
  v1::ExecuteRequest request;
  request.set_session_id(client_->session());
  request.set_request_id(std::string(client_->Info().limits().max_message_bytes() + 1, 'x'));
  grpc::ClientContext context;
  const auto stream = client_->stub().Execute(&context);
  stream->Write(request);
  v1::ExecuteResponse response;
  EXPECT_FALSE(stream->Read(&response));
  const grpc::Status status = stream->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
}

TEST_P(BadInputTest, TheSessionIsChecked) {
  Client other(address());
  EXPECT_EQ(ReasonOf(other.Run(ReLU(1, 2))), "SESSION_NOT_FOUND");
  other.set_session("0123456789abcdef-00000000000000000000000000000000");
  const Failure failure = FailureOf(other.Run(ReLU(1, 2)));
  EXPECT_EQ(failure.code, grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(failure.reason, "SERVER_RESTARTED");
  EXPECT_EQ(failure.metadata.at("session_epoch"), "0123456789abcdef");
  EXPECT_EQ(failure.metadata.at("server_epoch"), other.Info().epoch());
  other.set_session(other.Info().epoch() + "-00000000000000000000000000000000");
  EXPECT_EQ(ReasonOf(other.Run(ReLU(1, 2))), "SESSION_NOT_FOUND");
  std::string bytes;
  EXPECT_EQ(ReasonOf(other.Download(1, &bytes)), "SESSION_NOT_FOUND");
  EXPECT_EQ(ReasonOf(other.UploadFloats(1, {})), "SESSION_NOT_FOUND");
}

TEST_P(BadInputTest, CreateSessionIsChecked) {
  Client other(address());
  v1::CreateSessionRequest request;
  request.set_device(7);
  EXPECT_EQ(ReasonOf(other.CreateSession(request)), "NO_SUCH_DEVICE");
  request.set_device(0);
  request.set_api_version(1000);
  EXPECT_EQ(ReasonOf(other.CreateSession(request)), "VERSION_MISMATCH");
  request.set_api_version(0);
  request.set_ttl_ms(std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(ReasonOf(other.CreateSession(request)), "INVALID_REQUEST");
}

}  // namespace
}  // namespace kernelbox::server

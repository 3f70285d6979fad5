// Uploads that end badly leave no handle and no memory.
#include <xxhash.h>

#include <thread>

#include "tests/cpp/server/client.h"

namespace kernelbox::server {
namespace {

class UploadTest : public EveryBackendTest {
 protected:
  // An upload to handle 1, message by message.
  struct Stream {
    Stream(Client& client, uint64_t size_bytes, const std::string& request_id = "")
        : writer(client.stub().Upload(&context, &response)) {
      v1::UploadHeader& header = *part.mutable_header();
      header.set_session_id(client.session());
      header.set_request_id(request_id);
      header.set_handle(1);
      header.mutable_spec()->set_dtype(v1::D_TYPE_UINT8);
      header.mutable_spec()->add_shape(static_cast<int64_t>(size_bytes));
      header.set_size_bytes(size_bytes);
      writer->Write(part);
    }
    void Chunk(const std::string& bytes) {
      part.set_chunk(bytes);
      writer->Write(part);
      sent += bytes;
    }
    void Checksum(uint64_t change = 0) {
      part.set_xxh3_64(XXH3_64bits(sent.data(), sent.size()) + change);
      writer->Write(part);
    }
    Failure End() {
      writer->WritesDone();
      return FailureOf(writer->Finish());
    }

    grpc::ClientContext context;
    v1::UploadResponse response;
    std::unique_ptr<grpc::ClientWriter<v1::UploadRequest>> writer;
    v1::UploadRequest part;
    std::string sent;
  };

  // Handle 1 is unused, its memory is back, and it can be uploaded.
  void ExpectNothingLeft() {
    EXPECT_EQ(client_->WaitForMemory(0), 0u);
    EXPECT_EQ(ReasonOf(client_->Describe(1).error()), "UNKNOWN_HANDLE");
    EXPECT_EQ(ReasonOf(client_->UploadFloats(1, {1})), "OK");
  }
};
KB_ON_EVERY_BACKEND(UploadTest);

TEST_P(UploadTest, Short) {
  Stream upload(*client_, 1000);
  upload.Chunk(std::string(999, 'x'));
  upload.Checksum();
  const Failure failure = upload.End();
  EXPECT_EQ(failure.code, grpc::StatusCode::DATA_LOSS);
  EXPECT_EQ(failure.reason, "SIZE_MISMATCH");
  EXPECT_EQ(failure.metadata.at("expected"), "1000");
  EXPECT_EQ(failure.metadata.at("given"), "999");
  ExpectNothingLeft();
}

TEST_P(UploadTest, Long) {
  Stream upload(*client_, 1000);
  upload.Chunk(std::string(600, 'x'));
  upload.Chunk(std::string(600, 'x'));
  upload.Checksum();
  const Failure failure = upload.End();
  EXPECT_EQ(failure.code, grpc::StatusCode::DATA_LOSS);
  EXPECT_EQ(failure.reason, "SIZE_MISMATCH");
  ExpectNothingLeft();
}

TEST_P(UploadTest, Corrupt) {
  Stream upload(*client_, 1000);
  upload.Chunk(std::string(1000, 'x'));
  upload.Checksum(1);
  const Failure failure = upload.End();
  EXPECT_EQ(failure.code, grpc::StatusCode::DATA_LOSS);
  EXPECT_EQ(failure.reason, "CHECKSUM_MISMATCH");
  ExpectNothingLeft();
}

TEST_P(UploadTest, WithoutChecksum) {
  Stream upload(*client_, 4);
  upload.Chunk("1234");
  EXPECT_EQ(upload.End().reason, "INVALID_REQUEST");
  ExpectNothingLeft();
}

TEST_P(UploadTest, AfterTheChecksum) {
  Stream upload(*client_, 4);
  upload.Chunk("1234");
  upload.Checksum();
  upload.Chunk("");
  EXPECT_EQ(upload.End().reason, "INVALID_REQUEST");
  ExpectNothingLeft();
}

TEST_P(UploadTest, SizeThatIsNotTheShapes) {
  Stream upload(*client_, 1000);
  upload.End();
  grpc::ClientContext context;
  v1::UploadResponse response;
  const auto writer = client_->stub().Upload(&context, &response);
  v1::UploadRequest part = upload.part;
  part.mutable_header()->set_session_id(client_->session());
  part.mutable_header()->set_handle(1);
  *part.mutable_header()->mutable_spec() = Float32({10});
  part.mutable_header()->set_size_bytes(44);
  writer->Write(part);
  writer->WritesDone();
  const Failure failure = FailureOf(writer->Finish());
  EXPECT_EQ(failure.reason, "INVALID_REQUEST");
  EXPECT_EQ(failure.metadata.at("field"), "size_bytes");
  ExpectNothingLeft();
}

TEST_P(UploadTest, WithoutHeader) {
  grpc::ClientContext context;
  v1::UploadResponse response;
  const auto writer = client_->stub().Upload(&context, &response);
  v1::UploadRequest part;
  part.set_chunk("1234");
  writer->Write(part);
  writer->WritesDone();
  EXPECT_EQ(ReasonOf(writer->Finish()), "INVALID_REQUEST");

  grpc::ClientContext empty;
  const auto nothing = client_->stub().Upload(&empty, &response);
  nothing->WritesDone();
  EXPECT_EQ(ReasonOf(nothing->Finish()), "INVALID_REQUEST");
  ExpectNothingLeft();
}

TEST_P(UploadTest, CancelledMidway) {
  Stream upload(*client_, 1 << 20);
  upload.Chunk(std::string(1000, 'x'));
  while (client_->MemoryUsed() == 0) std::this_thread::yield();
  EXPECT_EQ(ReasonOf(client_->Describe(1).error()), "TENSOR_NOT_READY");
  upload.context.TryCancel();
  EXPECT_EQ(upload.End().code, grpc::StatusCode::CANCELLED);
  ExpectNothingLeft();
}

TEST_P(UploadTest, ConnectionLostMidway) {
  auto other = std::make_unique<Client>(address());
  other->set_session(client_->session());
  {
    Stream upload(*other, 1 << 20);
    upload.Chunk(std::string(1000, 'x'));
    while (client_->MemoryUsed() == 0) std::this_thread::yield();
    upload.context.TryCancel();  // what a vanished client's closed connection amounts to
    upload.writer->Finish();
  }
  other.reset();
  ExpectNothingLeft();
}

TEST_P(UploadTest, NotReadyUntilItHasEnded) {
  Stream upload(*client_, 4);
  while (client_->MemoryUsed() == 0) std::this_thread::yield();
  const Failure failure = FailureOf(client_->Run(ReLU(1, 2)));
  EXPECT_EQ(failure.code, grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(failure.reason, "TENSOR_NOT_READY");
  EXPECT_EQ(ReasonOf(client_->Free({1})), "TENSOR_NOT_READY");
  EXPECT_EQ(ReasonOf(client_->UploadFloats(1, {1})), "DUPLICATE_HANDLE");
  std::string bytes;
  EXPECT_EQ(ReasonOf(client_->Download(1, &bytes)), "TENSOR_NOT_READY");
  upload.Chunk("1234");
  upload.Checksum();
  EXPECT_EQ(upload.End().code, grpc::StatusCode::OK);
  ASSERT_EQ(ReasonOf(client_->Download(1, &bytes)), "OK");
  EXPECT_EQ(bytes, "1234");
}

TEST_P(UploadTest, SessionClosedMidway) {
  Stream upload(*client_, 1 << 20);
  upload.Chunk(std::string(1000, 'x'));
  while (client_->MemoryUsed() == 0) std::this_thread::yield();
  EXPECT_EQ(ReasonOf(client_->CloseSession()), "OK");
  upload.Chunk(std::string((1 << 20) - 1000, 'x'));
  upload.Checksum();
  EXPECT_EQ(upload.End().reason, "SESSION_NOT_FOUND");
  EXPECT_EQ(client_->WaitForMemory(0), 0u);
  EXPECT_EQ(client_->Info().devices(0).memory_reserved_bytes(), 0u);
}

TEST_P(UploadTest, ARepeatIsNotDoneTwice) {
  ASSERT_EQ(ReasonOf(client_->Upload(1, Float32({1}), "1234", "id")), "OK");
  EXPECT_EQ(ReasonOf(client_->Upload(1, Float32({1}), "5678", "id")), "OK");
  std::string bytes;
  ASSERT_EQ(ReasonOf(client_->Download(1, &bytes)), "OK");
  EXPECT_EQ(bytes, "1234");
}

TEST_P(UploadTest, ARepeatTakesThePlaceOfAFailedFirst) {
  Stream first(*client_, 4, "id");
  while (client_->MemoryUsed() == 0) std::this_thread::yield();
  std::thread second(
      [&] { EXPECT_EQ(ReasonOf(client_->Upload(1, Float32({1}), "5678", "id")), "OK"); });
  first.context.TryCancel();
  EXPECT_EQ(first.End().code, grpc::StatusCode::CANCELLED);
  second.join();
  std::string bytes;
  ASSERT_EQ(ReasonOf(client_->Download(1, &bytes)), "OK");
  EXPECT_EQ(bytes, "5678");
}

}  // namespace
}  // namespace kernelbox::server

#include "tests/cpp/server/client.h"

#include <xxhash.h>

#include <chrono>
#include <cstring>
#include <future>
#include <thread>

#include "google/rpc/status.pb.h"
#include "grpcpp/generic/generic_stub.h"
#include "tests/cpp/server/fake_device.h"

namespace kernelbox::server {

Failure FailureOf(const grpc::Status& status) {
  Failure failure;
  failure.code = status.error_code();
  failure.message = status.error_message();
  google::rpc::Status details;
  google::rpc::ErrorInfo info;
  if (details.ParseFromString(status.error_details()) && details.details_size() == 1 &&
      details.details(0).UnpackTo(&info)) {
    failure.reason = info.reason();
    failure.domain = info.domain();
    failure.metadata.insert(info.metadata().begin(), info.metadata().end());
  }
  return failure;
}

std::string ReasonOf(const grpc::Status& status) {
  if (status.ok()) return "OK";
  const Failure failure = FailureOf(status);
  return failure.reason.empty() ? "no reason: " + status.error_message() : failure.reason;
}

std::string ReasonOf(const v1::Error& error) {
  return v1::ErrorReason_Name(error.reason()).substr(std::strlen("ERROR_REASON_"));
}

std::string Bytes(const std::vector<float>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
}

std::vector<float> Floats(const std::string& bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

v1::TensorSpec Float32(const std::vector<int64_t>& shape) {
  v1::TensorSpec spec;
  spec.set_dtype(v1::D_TYPE_FLOAT32);
  spec.mutable_shape()->Add(shape.begin(), shape.end());
  return spec;
}

v1::Op ReLU(uint64_t x, uint64_t y, uint64_t id) {
  v1::Op op;
  op.set_id(id);
  op.mutable_relu()->set_x(x);
  op.mutable_relu()->set_y(y);
  return op;
}

Client::Client(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // a connection of its own
  channel_ = grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
  stub_ = v1::KernelboxService::NewStub(channel_);
}

grpc::Status Client::CreateSession(v1::CreateSessionRequest request,
                                   v1::CreateSessionResponse* response) {
  grpc::ClientContext context;
  v1::CreateSessionResponse own;
  if (response == nullptr) response = &own;
  grpc::Status status = stub_->CreateSession(&context, request, response);
  if (status.ok()) session_ = response->session_id();
  return status;
}

grpc::Status Client::CloseSession(const std::string& request_id) {
  grpc::ClientContext context;
  v1::CloseSessionRequest request;
  request.set_session_id(session_);
  request.set_request_id(request_id);
  v1::CloseSessionResponse response;
  return stub_->CloseSession(&context, request, &response);
}

grpc::Status Client::Upload(uint64_t handle, const v1::TensorSpec& spec, const std::string& bytes,
                            const std::string& request_id) {
  grpc::ClientContext context;
  v1::UploadResponse response;
  const auto writer = stub_->Upload(&context, &response);
  v1::UploadRequest part;
  v1::UploadHeader& header = *part.mutable_header();
  header.set_session_id(session_);
  header.set_request_id(request_id);
  header.set_handle(handle);
  *header.mutable_spec() = spec;
  header.set_size_bytes(bytes.size());
  writer->Write(part);
  constexpr size_t kChunk = 100'000;
  for (size_t at = 0; at < bytes.size(); at += kChunk) {
    part.set_chunk(bytes.substr(at, kChunk));
    if (!writer->Write(part)) break;
  }
  part.set_xxh3_64(XXH3_64bits(bytes.data(), bytes.size()));
  writer->Write(part);
  writer->WritesDone();
  return writer->Finish();
}

grpc::Status Client::Download(uint64_t handle, std::string* bytes, v1::TensorSpec* spec) {
  grpc::ClientContext context;
  v1::DownloadRequest request;
  request.set_session_id(session_);
  request.set_handle(handle);
  const auto reader = stub_->Download(&context, request);
  v1::DownloadResponse part;
  uint64_t size = 0;
  uint64_t checksum = 0;
  bytes->clear();
  while (reader->Read(&part)) {
    switch (part.part_case()) {
      case v1::DownloadResponse::kHeader:
        size = part.header().size_bytes();
        if (spec != nullptr) *spec = part.header().spec();
        break;
      case v1::DownloadResponse::kChunk:
        bytes->append(part.chunk());
        break;
      default:
        checksum = part.xxh3_64();
        break;
    }
  }
  const grpc::Status status = reader->Finish();
  if (status.ok()) {
    EXPECT_EQ(bytes->size(), size);
    EXPECT_EQ(XXH3_64bits(bytes->data(), bytes->size()), checksum);
  }
  return status;
}

std::vector<float> Client::DownloadFloats(uint64_t handle) {
  std::string bytes;
  v1::TensorSpec spec;
  const grpc::Status status = Download(handle, &bytes, &spec);
  EXPECT_EQ(ReasonOf(status), "OK") << status.error_message();
  return Floats(bytes);
}

grpc::Status Client::Run(const v1::Op& op, v1::RunResponse* response,
                         const std::string& request_id) {
  grpc::ClientContext context;
  v1::RunRequest request;
  request.set_session_id(session_);
  request.set_request_id(request_id);
  *request.mutable_op() = op;
  v1::RunResponse own;
  return stub_->Run(&context, request, response != nullptr ? response : &own);
}

grpc::Status Client::Free(const std::vector<uint64_t>& handles) {
  grpc::ClientContext context;
  v1::FreeRequest request;
  request.set_session_id(session_);
  request.mutable_handles()->Add(handles.begin(), handles.end());
  v1::FreeResponse response;
  return stub_->Free(&context, request, &response);
}

v1::TensorState Client::Describe(uint64_t handle) {
  grpc::ClientContext context;
  v1::DescribeRequest request;
  request.set_session_id(session_);
  request.add_handles(handle);
  v1::DescribeResponse response;
  const grpc::Status status = stub_->Describe(&context, request, &response);
  EXPECT_EQ(ReasonOf(status), "OK") << status.error_message();
  return status.ok() ? response.tensors(0) : v1::TensorState();
}

v1::SyncResponse Client::Sync() {
  grpc::ClientContext context;
  v1::SyncRequest request;
  request.set_session_id(session_);
  v1::SyncResponse response;
  const grpc::Status status = stub_->Sync(&context, request, &response);
  EXPECT_EQ(ReasonOf(status), "OK") << status.error_message();
  return response;
}

v1::GetServerInfoResponse Client::Info() {
  grpc::ClientContext context;
  v1::GetServerInfoResponse response;
  const grpc::Status status = stub_->GetServerInfo(&context, {}, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return response;
}

// grpc.health.v1.Health by hand: HealthCheckRequest.service and HealthCheckResponse.status are
// field 1 of their messages, and gRPC's own library does not export their types.
std::string Client::Health(const std::string& service) {
  std::string request;
  if (!service.empty()) request = std::string("\x0a") + static_cast<char>(service.size()) + service;
  const grpc::Slice slice(request);
  grpc::ByteBuffer bytes(&slice, 1);
  grpc::GenericStub generic(channel_);
  grpc::ClientContext context;
  grpc::ByteBuffer response;
  std::promise<grpc::Status> done;
  generic.UnaryCall(&context, "/grpc.health.v1.Health/Check", {}, &bytes, &response,
                    [&](const grpc::Status& status) { done.set_value(status); });
  const grpc::Status status = done.get_future().get();
  if (!status.ok()) return status.error_message();
  grpc::Slice answer;
  EXPECT_TRUE(response.DumpToSingleSlice(&answer).ok());
  const bool serving = answer.size() == 2 && answer.begin()[0] == 0x08 && answer.begin()[1] == 1;
  return serving ? "SERVING" : "NOT_SERVING";
}

uint64_t Client::WaitForMemory(uint64_t bytes) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (MemoryUsed() != bytes && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return MemoryUsed();
}

ServerOptions TestOptions() {
  ServerOptions options;
  options.listen = {"127.0.0.1:0"};
  options.device_memory_limit = size_t{256} << 20;
  return options;
}

std::unique_ptr<KernelboxServer> StartServer(const std::string& backend,
                                             const ServerOptions& options) {
  const bool fake = backend == "fake" || backend == "held";
  absl::StatusOr<Backend> devices = backend == "cuda" ? MakeCudaBackend()
                                    : fake            ? MakeFakeBackend(backend == "fake")
                                                      : MakeCpuBackend();
  EXPECT_TRUE(devices.ok()) << devices.status();
  if (!devices.ok()) return nullptr;
  absl::StatusOr<std::unique_ptr<KernelboxServer>> server = KernelboxServer::Start(
      options, *std::move(devices), fake ? FakeLayers::Head() : Layer::Head());
  EXPECT_TRUE(server.ok()) << server.status();
  return server.ok() ? *std::move(server) : nullptr;
}

std::vector<std::string> Backends() {
  std::vector<std::string> backends = {"cpu", "fake"};
  if (MakeCudaBackend().ok()) backends.push_back("cuda");
  return backends;
}

void ServerTest::Start(const std::string& backend, const ServerOptions& options) {
  client_.reset();
  server_.reset();
  server_ = StartServer(backend, options);
  ASSERT_NE(server_, nullptr);
  client_ = NewClient();
}

void ServerTest::TearDown() {
  FakeLayers::gate().Open();
  BreakFakeDevices(false);
}

std::unique_ptr<Client> ServerTest::NewClient() {
  auto client = std::make_unique<Client>(address());
  const grpc::Status status = client->CreateSession();
  EXPECT_EQ(ReasonOf(status), "OK") << status.error_message();
  return client;
}

}  // namespace kernelbox::server

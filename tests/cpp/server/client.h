// A server in the test's process, on a loopback port, and a plain client of it.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "google/rpc/error_details.pb.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "kernelbox/v1/service.grpc.pb.h"
#include "server/server.h"

namespace kernelbox::server {

// What an rpc's error says.
struct Failure {
  grpc::StatusCode code = grpc::StatusCode::OK;
  std::string message;
  std::string reason;  // of ErrorInfo
  std::string domain;
  std::map<std::string, std::string> metadata;
};
Failure FailureOf(const grpc::Status& status);

// The reason of an rpc's error; "OK" if there is none.
std::string ReasonOf(const grpc::Status& status);
std::string ReasonOf(const v1::Error& error);

// The bytes of float32 numbers.
std::string Bytes(const std::vector<float>& values);
std::vector<float> Floats(const std::string& bytes);
v1::TensorSpec Float32(const std::vector<int64_t>& shape);

v1::Op ReLU(uint64_t x, uint64_t y, uint64_t id = 0);

// A channel to the server and a session on it.
class Client {
 public:
  explicit Client(const std::string& address);

  v1::KernelboxService::Stub& stub() { return *stub_; }
  const std::string& session() const { return session_; }
  void set_session(const std::string& id) { session_ = id; }

  grpc::Status CreateSession(v1::CreateSessionRequest request = {},
                             v1::CreateSessionResponse* response = nullptr);
  grpc::Status CloseSession(const std::string& request_id = "");

  grpc::Status Upload(uint64_t handle, const v1::TensorSpec& spec, const std::string& bytes,
                      const std::string& request_id = "");
  grpc::Status UploadFloats(uint64_t handle, const std::vector<float>& values) {
    return Upload(handle, Float32({static_cast<int64_t>(values.size())}), Bytes(values));
  }
  grpc::Status Download(uint64_t handle, std::string* bytes, v1::TensorSpec* spec = nullptr);
  // The tensor's numbers; fails the test if there is an error.
  std::vector<float> DownloadFloats(uint64_t handle);

  grpc::Status Run(const v1::Op& op, v1::RunResponse* response = nullptr,
                   const std::string& request_id = "");
  grpc::Status Free(const std::vector<uint64_t>& handles);
  v1::TensorState Describe(uint64_t handle);
  v1::SyncResponse Sync();
  v1::GetServerInfoResponse Info();
  uint64_t MemoryUsed() { return Info().devices(0).memory_used_bytes(); }
  // What the health service says of a service: "SERVING", "NOT_SERVING", or its error.
  std::string Health(const std::string& service);
  // Waits up to 10 s for the memory in use to be `bytes`; gives what it is then.
  uint64_t WaitForMemory(uint64_t bytes);

 private:
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::KernelboxService::Stub> stub_;
  std::string session_;
};

// By then what a client has sent has reached the server, and been queued.
inline constexpr std::chrono::milliseconds kArrives(100);

// An Execute stream of a client.
struct ExecuteStream {
  explicit ExecuteStream(Client& client)
      : client(client), stream(client.stub().Execute(&context)) {}

  bool Send(const std::vector<v1::Op>& ops, const std::vector<uint64_t>& frees = {},
            const std::string& request_id = "", v1::Report report = v1::REPORT_UNSPECIFIED) {
    v1::ExecuteRequest request;
    if (requests++ == 0) request.set_session_id(client.session());
    request.set_request_id(request_id);
    request.mutable_ops()->Add(ops.begin(), ops.end());
    request.mutable_free_handles()->Add(frees.begin(), frees.end());
    request.set_report(report);
    return stream->Write(request);
  }
  v1::ExecuteResponse Receive() {
    v1::ExecuteResponse response;
    EXPECT_TRUE(stream->Read(&response)) << stream->Finish().error_message();
    return response;
  }
  grpc::Status End() {
    stream->WritesDone();
    v1::ExecuteResponse response;
    while (stream->Read(&response)) ++unread;
    return stream->Finish();
  }

  Client& client;
  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientReaderWriter<v1::ExecuteRequest, v1::ExecuteResponse>> stream;
  int requests = 0;
  int unread = 0;
};

// Options for tests: a loopback port that the system chooses, 256 MiB of memory.
ServerOptions TestOptions();

// Starts a server on a backend by name: "cpu"; "cuda"; "fake", which runs behind the server as a
// GPU does; "held", which runs as the cpu does; see fake_device.h for the last two.
std::unique_ptr<KernelboxServer> StartServer(const std::string& backend,
                                             const ServerOptions& options = TestOptions());

class ServerTest : public ::testing::Test {
 protected:
  // Starts the server and opens a session.
  void Start(const std::string& backend, const ServerOptions& options = TestOptions());
  void TearDown() override;

  // Another client, with a session of its own.
  std::unique_ptr<Client> NewClient();
  const std::string& address() const { return server_->addresses()[0]; }

  std::unique_ptr<KernelboxServer> server_;
  std::unique_ptr<Client> client_;
};

// A test of behaviour that no backend may change.
class EveryBackendTest : public ServerTest, public ::testing::WithParamInterface<std::string> {
 protected:
  void SetUp() override { Start(GetParam()); }
};

// "cpu", "fake" and, where there is a GPU, "cuda".
std::vector<std::string> Backends();

// Runs the tests of Suite, an EveryBackendTest, on every backend.
#define KB_ON_EVERY_BACKEND(Suite)                                          \
  INSTANTIATE_TEST_SUITE_P(Backend, Suite, ::testing::ValuesIn(Backends()), \
                           [](const auto& info) { return std::string(info.param); })

}  // namespace kernelbox::server

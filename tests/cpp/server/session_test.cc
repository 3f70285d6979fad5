// Sessions: lease, limits, repeats, closing, draining.
#include <thread>

#include "tests/cpp/server/client.h"
#include "tests/cpp/server/fake_device.h"

namespace kernelbox::server {
namespace {

class SessionTest : public EveryBackendTest {
 protected:
  static v1::CreateSessionRequest Lease(uint64_t ttl_ms) {
    v1::CreateSessionRequest request;
    request.set_ttl_ms(ttl_ms);
    return request;
  }
  static bool Alive(Client& client) {
    grpc::ClientContext context;
    v1::KeepAliveRequest request;
    request.set_session_id(client.session());
    v1::KeepAliveResponse response;
    return client.stub().KeepAlive(&context, request, &response).ok();
  }
};
KB_ON_EVERY_BACKEND(SessionTest);

TEST_P(SessionTest, ExpiresWithoutCallsAndItsMemoryGoesBack) {
  Client other(address());
  v1::CreateSessionResponse response;
  ASSERT_EQ(ReasonOf(other.CreateSession(Lease(50), &response)), "OK");
  EXPECT_EQ(response.ttl_ms(), 50u);
  ASSERT_EQ(ReasonOf(other.UploadFloats(1, {1})), "OK");
  EXPECT_EQ(client_->WaitForMemory(0), 0u);
  EXPECT_EQ(client_->Info().devices(0).memory_reserved_bytes(), 0u);
  EXPECT_EQ(ReasonOf(other.Run(ReLU(1, 2))), "SESSION_NOT_FOUND");
}

TEST_P(SessionTest, CallsKeepItAlive) {
  Client other(address());
  ASSERT_EQ(ReasonOf(other.CreateSession(Lease(400))), "OK");
  for (int i = 0; i < 8; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    EXPECT_TRUE(Alive(other));
  }
}

TEST_P(SessionTest, AnOpenStreamKeepsItAlive) {
  Client other(address());
  ASSERT_EQ(ReasonOf(other.CreateSession(Lease(50))), "OK");
  {
    ExecuteStream stream(other);
    stream.Send({});
    stream.Receive();
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    stream.Send({});
    stream.Receive();
    EXPECT_EQ(ReasonOf(stream.End()), "OK");
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_FALSE(Alive(other));
}

TEST_P(SessionTest, RepeatsOfCreateAndCloseGetTheFirstAnswer) {
  Client a(address());
  Client b(address());
  v1::CreateSessionRequest request;
  request.set_request_id("create");
  ASSERT_EQ(ReasonOf(a.CreateSession(request)), "OK");
  ASSERT_EQ(ReasonOf(b.CreateSession(request)), "OK");
  EXPECT_EQ(a.session(), b.session());
  EXPECT_EQ(ReasonOf(a.CloseSession("close")), "OK");
  EXPECT_EQ(ReasonOf(b.CloseSession("close")), "OK");
  EXPECT_EQ(ReasonOf(b.CloseSession()), "SESSION_NOT_FOUND");
}

TEST_P(SessionTest, ClosingComesAfterWhatIsQueued) {
  ASSERT_EQ(ReasonOf(client_->UploadFloats(1, {-1})), "OK");
  ExecuteStream stream(*client_);
  for (uint64_t i = 0; i < 100; ++i) stream.Send({ReLU(1 + i, 2 + i)});
  stream.Receive();
  std::this_thread::sleep_for(kArrives);
  EXPECT_EQ(ReasonOf(client_->CloseSession()), "OK");
  for (int i = 1; i < 100; ++i) EXPECT_EQ(stream.Receive().completed_ops(), 1u);
  stream.Send({ReLU(1, 500)});
  EXPECT_EQ(ReasonOf(stream.End()), "SESSION_NOT_FOUND");
  EXPECT_EQ(client_->MemoryUsed(), 0u);
}

TEST_P(SessionTest, Limits) {
  ServerOptions options = TestOptions();
  options.sessions.max_sessions = 2;
  options.sessions.max_handles = 3;
  Start(GetParam(), options);
  const std::unique_ptr<Client> second = NewClient();
  Client third(address());
  const Failure failure = FailureOf(third.CreateSession());
  EXPECT_EQ(failure.code, grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(failure.reason, "TOO_MANY_SESSIONS");
  EXPECT_EQ(failure.metadata.at("limit"), "2");
  EXPECT_EQ(ReasonOf(second->CloseSession()), "OK");
  EXPECT_EQ(ReasonOf(third.CreateSession()), "OK");

  for (const uint64_t handle : {1, 2, 3}) {
    ASSERT_EQ(ReasonOf(client_->UploadFloats(handle, {1})), "OK");
  }
  EXPECT_EQ(ReasonOf(client_->UploadFloats(4, {1})), "TOO_MANY_HANDLES");
  EXPECT_EQ(ReasonOf(client_->Run(ReLU(1, 4))), "TOO_MANY_HANDLES");
  ASSERT_EQ(ReasonOf(client_->Free({2})), "OK");
  EXPECT_EQ(ReasonOf(client_->Run(ReLU(1, 4))), "OK");
}

TEST_P(SessionTest, ARestartedServerSaysSo) {
  Start(GetParam());
  const std::string before = client_->session();
  Start(GetParam());
  client_->set_session(before);
  EXPECT_EQ(ReasonOf(client_->Run(ReLU(1, 2))), "SERVER_RESTARTED");
}

TEST_P(SessionTest, MemoryOfOneSessionCanServeAnother) {
  const auto fill = [](uint64_t handle) {
    v1::Op op;
    op.mutable_fill()->set_y(handle);
    op.mutable_fill()->add_shape(200 << 20);  // of 256 MiB
    op.mutable_fill()->set_dtype(v1::D_TYPE_UINT8);
    return op;
  };
  const std::unique_ptr<Client> other = NewClient();
  ASSERT_EQ(ReasonOf(client_->Run(fill(1))), "OK");
  const Failure failure = FailureOf(other->Run(fill(1)));
  EXPECT_EQ(failure.code, grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(failure.reason, "OUT_OF_MEMORY");
  EXPECT_EQ(failure.metadata.at("session_bytes"), "0");
  EXPECT_EQ(ReasonOf(other->Run(ReLU(1, 2))), "OUT_OF_MEMORY") << "kept in the handle";
  ASSERT_EQ(ReasonOf(client_->Free({1})), "OK");
  EXPECT_EQ(ReasonOf(other->Run(fill(3))), "OK");
}

class DrainTest : public ServerTest {};

TEST_F(DrainTest, FinishesWhatIsQueuedAndTakesNothingNew) {
  Start("held");
  ASSERT_EQ(ReasonOf(client_->UploadFloats(1, {-1})), "OK");
  const std::unique_ptr<Client> idle = NewClient();
  ExecuteStream idle_stream(*idle);
  idle_stream.Send({});
  idle_stream.Receive();

  FakeLayers::gate().Close();
  ExecuteStream stream(*client_);
  stream.Send({ReLU(1, 2), ReLU(2, 3)});
  FakeLayers::gate().WaitForHeld(1);
  std::thread drain([this] { server_->Drain(std::chrono::seconds(30)); });
  v1::ExecuteResponse none;
  EXPECT_FALSE(idle_stream.stream->Read(&none)) << "an idle stream is ended";
  EXPECT_EQ(ReasonOf(idle_stream.stream->Finish()), "SERVER_DRAINING");
  const Failure failure = FailureOf(client_->Run(ReLU(1, 9)));
  EXPECT_EQ(failure.code, grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(failure.reason, "SERVER_DRAINING");
  EXPECT_EQ(client_->Health("kernelbox.v1.KernelboxService"), "NOT_SERVING");
  EXPECT_EQ(client_->Health(""), "SERVING");
  FakeLayers::gate().Open();
  EXPECT_EQ(stream.Receive().completed_ops(), 2u);
  EXPECT_EQ(ReasonOf(stream.End()), "SERVER_DRAINING");
  drain.join();
}

TEST_F(DrainTest, CancelsWhatTakesTooLong) {
  Start("cpu");
  grpc::ClientContext context;
  v1::UploadResponse response;
  const auto writer = client_->stub().Upload(&context, &response);
  v1::UploadRequest part;
  part.mutable_header()->set_session_id(client_->session());
  part.mutable_header()->set_handle(1);
  *part.mutable_header()->mutable_spec() = Float32({1});
  part.mutable_header()->set_size_bytes(4);
  writer->Write(part);
  while (client_->MemoryUsed() == 0) std::this_thread::yield();
  server_->Drain(std::chrono::milliseconds(50));
  EXPECT_FALSE(writer->Finish().ok());
}

TEST(HealthTest, AServerThatServesIsReady) {
  const std::unique_ptr<KernelboxServer> server = StartServer("cpu");
  Client client(server->addresses()[0]);
  EXPECT_EQ(client.Health(""), "SERVING");
  EXPECT_EQ(client.Health("kernelbox.v1.KernelboxService"), "SERVING");
}

TEST(ListenTest, UnixSocketsAndPortsInUse) {
  ServerOptions options = TestOptions();
  options.listen.push_back("unix:" + ::testing::TempDir() + "kernelbox_test.sock");
  const std::unique_ptr<KernelboxServer> server = StartServer("cpu", options);
  ASSERT_EQ(server->addresses().size(), 2u);
  EXPECT_NE(server->addresses()[0], "127.0.0.1:0");
  Client client(server->addresses()[1]);
  EXPECT_EQ(client.Info().limits().preferred_chunk_bytes(), 1u << 20);
  ASSERT_EQ(ReasonOf(client.CreateSession()), "OK");
  ASSERT_EQ(ReasonOf(client.UploadFloats(1, {2})), "OK");
  EXPECT_EQ(client.DownloadFloats(1), std::vector<float>{2});

  options.listen = {server->addresses()[0]};
  const auto second = KernelboxServer::Start(options, MakeCpuBackend());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace kernelbox::server

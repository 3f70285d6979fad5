// Runs and Execute streams: errors in handles, repeats, bounds, cancellation.
#include <chrono>
#include <thread>

#include "tests/cpp/server/client.h"
#include "tests/cpp/server/fake_device.h"

namespace kernelbox::server {
namespace {

class ExecuteTest : public EveryBackendTest {
 protected:
  void SetUp() override {
    EveryBackendTest::SetUp();
    ASSERT_EQ(ReasonOf(client_->UploadFloats(1, {-1, 1})), "OK");
  }
};
KB_ON_EVERY_BACKEND(ExecuteTest);

TEST_P(ExecuteTest, AFailureIsKeptInHandlesAndUnrelatedWorkGoesOn) {
  ExecuteStream stream(*client_);
  // 10 fails for want of 99; 11 and 12 inherit that; 13 has nothing to do with it.
  stream.Send({ReLU(99, 10, 501), ReLU(10, 11, 502), ReLU(11, 12, 503), ReLU(1, 13, 504)});
  const v1::ExecuteResponse response = stream.Receive();
  EXPECT_EQ(response.completed_ops(), 1u);
  EXPECT_EQ(response.failed_ops(), 3u);
  ASSERT_EQ(response.results_size(), 3);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(response.results(i).op_id(), 501u + static_cast<uint64_t>(i));
    EXPECT_EQ(ReasonOf(response.results(i).error()), "UNKNOWN_HANDLE");
    EXPECT_EQ(response.results(i).error().op_id(), 501u) << "the op that failed first";
    EXPECT_EQ(response.results(i).error().op(), "relu");
  }
  EXPECT_EQ(ReasonOf(stream.End()), "OK");

  EXPECT_EQ(client_->Describe(12).error().op_id(), 501u);
  std::string bytes;
  const Failure failure = FailureOf(client_->Download(12, &bytes));
  EXPECT_EQ(failure.reason, "UNKNOWN_HANDLE");
  EXPECT_EQ(failure.metadata.at("op_id"), "501");
  EXPECT_EQ(client_->DownloadFloats(13), (std::vector<float>{0, 1}));

  const v1::SyncResponse sync = client_->Sync();
  EXPECT_EQ(sync.failed_ops(), 3u);
  ASSERT_EQ(sync.errors_size(), 1) << "what inherited the failure is not listed";
  EXPECT_EQ(sync.errors(0).op_id(), 501u);
  EXPECT_EQ(client_->Sync().failed_ops(), 0u);

  // Freed, the handles can be used again.
  ASSERT_EQ(ReasonOf(client_->Free({10, 11, 12})), "OK");
  EXPECT_EQ(ReasonOf(client_->Run(ReLU(1, 10))), "OK");
}

TEST_P(ExecuteTest, AnOpWithATakenOutputFillsItsOtherOutputsWithTheError) {
  v1::Op op;
  op.mutable_dropout()->set_x(1);
  op.mutable_dropout()->set_rng_state(1);
  op.mutable_dropout()->set_y(1);
  op.mutable_dropout()->set_rng_used(20);
  EXPECT_EQ(ReasonOf(client_->Run(op)), "DUPLICATE_HANDLE");
  EXPECT_EQ(ReasonOf(client_->Describe(20).error()), "DUPLICATE_HANDLE");
  op.mutable_dropout()->set_y(21);
  op.mutable_dropout()->set_rng_used(21);
  EXPECT_EQ(ReasonOf(client_->Run(op)), "DUPLICATE_HANDLE") << "both outputs have one handle";
}

TEST_P(ExecuteTest, ATensorIsNotUpdatedAndReadByOneOp) {
  v1::TensorSpec spec;
  spec.set_dtype(v1::D_TYPE_INT64);
  spec.add_shape(2);
  ASSERT_EQ(ReasonOf(client_->Upload(2, spec, std::string(16, '\0'))), "OK");
  v1::Op op;
  op.mutable_dropout()->set_x(2);
  op.mutable_dropout()->set_rng_state(2);
  op.mutable_dropout()->set_y(3);
  const Failure failure = FailureOf(client_->Run(op));
  EXPECT_EQ(failure.reason, "INVALID_ATTRIBUTE");
  EXPECT_EQ(failure.metadata.at("field"), "rng_state");
  // The same tensor twice as input is fine.
  v1::Op backward;
  backward.mutable_relu_backward()->set_x(1);
  backward.mutable_relu_backward()->set_d_y(1);
  backward.mutable_relu_backward()->set_d_x(4);
  EXPECT_EQ(ReasonOf(client_->Run(backward)), "OK");
}

TEST_P(ExecuteTest, ARepeatedRunGetsTheFirstAnswer) {
  v1::RunResponse first;
  ASSERT_EQ(ReasonOf(client_->Run(ReLU(1, 2), &first, "r1")), "OK");
  v1::RunResponse second;
  EXPECT_EQ(ReasonOf(client_->Run(ReLU(1, 2), &second, "r1")), "OK");
  EXPECT_EQ(first.SerializeAsString(), second.SerializeAsString());
  EXPECT_EQ(ReasonOf(client_->Run(ReLU(1, 2), nullptr, "r2")), "DUPLICATE_HANDLE");
  EXPECT_EQ(ReasonOf(client_->Run(ReLU(1, 3), nullptr, "r2")), "DUPLICATE_HANDLE");
  EXPECT_EQ(ReasonOf(client_->Upload(9, Float32({1}), "1234", "r1")), "OK")
      << "an answer without contents cannot be told apart";
}

TEST_P(ExecuteTest, ARepeatedRequestOfAStreamGetsTheFirstAnswer) {
  ExecuteStream first(*client_);
  first.Send({ReLU(1, 2)}, {}, "e1", v1::REPORT_ALL);
  v1::ExecuteResponse answer = first.Receive();
  EXPECT_EQ(answer.completed_ops(), 1u);
  ExecuteStream second(*client_);
  second.Send({});
  second.Send({ReLU(1, 2)}, {}, "e1", v1::REPORT_ALL);
  EXPECT_EQ(second.Receive().sequence(), 1u);
  const v1::ExecuteResponse repeat = second.Receive();
  EXPECT_EQ(repeat.sequence(), 2u);
  EXPECT_EQ(repeat.failed_ops(), 0u);
  EXPECT_EQ(repeat.results(0).SerializeAsString(), answer.results(0).SerializeAsString());
  EXPECT_EQ(ReasonOf(second.End()), "OK");
  EXPECT_EQ(ReasonOf(first.End()), "OK");
  EXPECT_EQ(ReasonOf(client_->Run(ReLU(1, 3), nullptr, "e1")), "INVALID_REQUEST");
}

TEST_P(ExecuteTest, FreesComeAfterTheOpsAndTellTheirErrors) {
  ExecuteStream stream(*client_);
  stream.Send({ReLU(1, 2)}, {2, 2, 77});
  const v1::ExecuteResponse response = stream.Receive();
  EXPECT_EQ(response.completed_ops(), 1u);
  ASSERT_EQ(response.free_errors_size(), 2);
  EXPECT_EQ(response.free_errors(0).metadata().at("handle"), "2");
  EXPECT_EQ(response.free_errors(1).metadata().at("handle"), "77");
  EXPECT_EQ(ReasonOf(stream.End()), "OK");
}

TEST_P(ExecuteTest, TheStreamsSessionIsChecked) {
  {
    ExecuteStream stream(*client_);
    stream.requests = 1;  // so that no session is sent
    stream.Send({ReLU(1, 2)});
    EXPECT_EQ(ReasonOf(stream.End()), "SESSION_NOT_FOUND");
  }
  const std::unique_ptr<Client> other = NewClient();
  ExecuteStream stream(*client_);
  stream.Send({ReLU(1, 2)});
  v1::ExecuteRequest request;
  request.set_session_id(other->session());
  stream.stream->Write(request);
  EXPECT_EQ(ReasonOf(stream.End()), "INVALID_REQUEST");
  EXPECT_EQ(stream.unread, 1) << "what came before is answered";
}

TEST_P(ExecuteTest, ManyStreamsAndSessionsAtATime) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      const std::unique_ptr<Client> own = NewClient();
      ASSERT_EQ(ReasonOf(own->UploadFloats(1, {-3, 3})), "OK");
      ExecuteStream stream(*own);
      for (uint64_t i = 0; i < 50; ++i) {
        stream.Send({ReLU(1, 2), ReLU(2, 3), ReLU(99, 4)}, {2, 3, 4});
      }
      for (int i = 0; i < 50; ++i) {
        const v1::ExecuteResponse response = stream.Receive();
        EXPECT_EQ(response.completed_ops(), 2u);
        EXPECT_EQ(response.failed_ops(), 1u);
      }
      EXPECT_EQ(ReasonOf(stream.End()), "OK");
      EXPECT_EQ(ReasonOf(own->CloseSession()), "OK");
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(client_->WaitForMemory(256), 256u);
}

// The device is held still for these.
class HeldTest : public ServerTest {
 protected:
  static constexpr uint64_t kLimit = 4;

  void SetUp() override {
    ServerOptions options = TestOptions();
    options.sessions.max_queued_ops = kLimit;
    Start("held", options);
    ASSERT_EQ(ReasonOf(client_->UploadFloats(1, {-1, 1})), "OK");
  }

  // An op that holds the executor until the gate is opened.
  std::thread Hold() {
    FakeLayers::gate().Close();
    std::thread thread([this] { EXPECT_EQ(ReasonOf(client_->Run(ReLU(1, 1000))), "OK"); });
    FakeLayers::gate().WaitForHeld(1);
    return thread;
  }
};

TEST_F(HeldTest, RunSaysThatTheQueueIsFull) {
  std::thread held = Hold();
  std::vector<std::thread> queued;
  std::atomic<int> full{0};
  for (uint64_t i = 0; i < 2 * kLimit; ++i) {
    queued.emplace_back([&, i] {
      const Failure failure = FailureOf(client_->Run(ReLU(1, 10 + i)));
      if (failure.reason == "QUEUE_FULL") {
        EXPECT_EQ(failure.code, grpc::StatusCode::RESOURCE_EXHAUSTED);
        EXPECT_EQ(failure.metadata.at("limit"), std::to_string(kLimit));
        if (++full == kLimit + 1) FakeLayers::gate().Open();
      } else {
        EXPECT_EQ(failure.code, grpc::StatusCode::OK) << failure.message;
      }
    });
  }
  for (std::thread& thread : queued) thread.join();
  held.join();
  EXPECT_EQ(full, static_cast<int>(kLimit) + 1) << "one ran, the queue held the limit less one";
}

TEST_F(HeldTest, AStreamWaitsForRoom) {
  std::thread held = Hold();
  ExecuteStream stream(*client_);
  for (uint64_t i = 0; i < 10; ++i) {
    stream.Send({ReLU(1, 100 + 2 * i), ReLU(1, 101 + 2 * i)});
  }
  FakeLayers::gate().Open();
  for (uint64_t i = 0; i < 10; ++i) EXPECT_EQ(stream.Receive().completed_ops(), 2u);
  EXPECT_EQ(ReasonOf(stream.End()), "OK");
  held.join();
}

TEST_F(HeldTest, ARequestLargerThanTheQueueIsRefused) {
  ExecuteStream stream(*client_);
  stream.Send({ReLU(1, 2)});
  stream.Send(std::vector<v1::Op>(kLimit + 1, ReLU(1, 3)));
  const Failure failure = FailureOf(stream.End());
  EXPECT_EQ(failure.reason, "QUEUE_FULL");
  EXPECT_EQ(failure.metadata.at("given"), std::to_string(kLimit + 1));
  EXPECT_EQ(stream.unread, 1);
}

TEST_F(HeldTest, ACancelledRunThatHasNotStartedIsAsIfNeverSent) {
  std::thread held = Hold();
  {
    grpc::ClientContext context;
    v1::RunRequest request;
    request.set_session_id(client_->session());
    request.set_request_id("r");
    *request.mutable_op() = ReLU(1, 2);
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(50));
    v1::RunResponse response;
    EXPECT_EQ(client_->stub().Run(&context, request, &response).error_code(),
              grpc::StatusCode::DEADLINE_EXCEEDED);
  }
  std::this_thread::sleep_for(kArrives);
  FakeLayers::gate().Open();
  held.join();
  EXPECT_EQ(ReasonOf(client_->Describe(2).error()), "UNKNOWN_HANDLE");
  EXPECT_EQ(ReasonOf(client_->Run(ReLU(1, 2), nullptr, "r")), "OK") << "the repeat is a first";
}

TEST_F(HeldTest, ARepeatWaitsForTheFirstThatRuns) {
  FakeLayers::gate().Close();
  std::thread first([this] { EXPECT_EQ(ReasonOf(client_->Run(ReLU(1, 2), nullptr, "r")), "OK"); });
  FakeLayers::gate().WaitForHeld(1);
  std::thread second([this] { EXPECT_EQ(ReasonOf(client_->Run(ReLU(1, 2), nullptr, "r")), "OK"); });
  std::this_thread::sleep_for(kArrives);
  FakeLayers::gate().Open();
  first.join();
  second.join();
}

TEST_F(HeldTest, ACancelledStreamDropsWhatHasNotStarted) {
  FakeLayers::gate().Close();
  ExecuteStream stream(*client_);
  stream.Send({ReLU(1, 2), ReLU(2, 3)}, {}, "started");
  FakeLayers::gate().WaitForHeld(1);
  stream.Send({ReLU(1, 4)});
  std::this_thread::sleep_for(kArrives);
  stream.context.TryCancel();
  EXPECT_EQ(stream.End().error_code(), grpc::StatusCode::CANCELLED);
  std::this_thread::sleep_for(kArrives);
  FakeLayers::gate().Open();
  EXPECT_EQ(client_->DownloadFloats(3), (std::vector<float>{0, 1})) << "it had started";
  EXPECT_EQ(ReasonOf(client_->Describe(4).error()), "UNKNOWN_HANDLE");
  // What had started has its answer for a repeat.
  ExecuteStream again(*client_);
  again.Send({ReLU(1, 2), ReLU(2, 3)}, {}, "started");
  EXPECT_EQ(again.Receive().completed_ops(), 2u);
  EXPECT_EQ(ReasonOf(again.End()), "OK");
}

TEST_F(HeldTest, OtherSessionsDoNotWaitForALongQueue) {
  // A session with much queued, and another with one op: the one runs between the many.
  const std::unique_ptr<Client> other = NewClient();
  ASSERT_EQ(ReasonOf(other->UploadFloats(1, {-1})), "OK");
  FakeLayers::gate().Close();
  ExecuteStream stream(*client_);
  for (uint64_t i = 0; i < 4; ++i) stream.Send({ReLU(1, 10 + i)});
  FakeLayers::gate().WaitForHeld(1);
  std::atomic<bool> done{false};
  std::thread one([&] {
    EXPECT_EQ(ReasonOf(other->Run(ReLU(1, 2))), "OK");
    done = true;
  });
  std::this_thread::sleep_for(kArrives);
  // Each op that passes the gate takes far more than a turn, so turns alternate op by op.
  FakeLayers::gate().LetOnePass();
  FakeLayers::gate().LetOnePass();
  while (!done) std::this_thread::yield();
  FakeLayers::gate().Open();
  one.join();
  for (int i = 0; i < 4; ++i) EXPECT_EQ(stream.Receive().completed_ops(), 1u);
  EXPECT_EQ(ReasonOf(stream.End()), "OK");
}

TEST_F(HeldTest, SyncAndDescribeWaitForWhatWasQueuedBefore) {
  std::thread held = Hold();
  std::atomic<bool> synced{false};
  std::thread sync([&] {
    client_->Sync();
    synced = true;
  });
  std::this_thread::sleep_for(kArrives);
  EXPECT_FALSE(synced);
  FakeLayers::gate().Open();
  sync.join();
  held.join();
}

}  // namespace
}  // namespace kernelbox::server

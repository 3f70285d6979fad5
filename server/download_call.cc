#include "server/download_call.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>

#include "grpcpp/support/proto_buffer_reader.h"
#include "kernelbox/v1/service.pb.h"
#include "server/call.h"
#include "server/checksum.h"
#include "server/transfer.h"

namespace kernelbox::server {
namespace {

// Its steps come one after the other: the executor finds the tensor and holds its memory; when
// the device has passed what was queued before, header, chunks and checksum are sent.
class DownloadCall final : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  static constexpr bool kWaitsForDevice = true;

  explicit DownloadCall(size_t chunk_bytes) : chunk_bytes_(chunk_bytes) {}

  void Begin(std::shared_ptr<DownloadCall> self, SessionManager& sessions,
             const grpc::ByteBuffer& request_bytes) {
    self_ = std::move(self);
    v1::DownloadRequest request;
    grpc::ByteBuffer copy(request_bytes);
    grpc::ProtoBufferReader reader(&copy);
    if (!request.ParseFromZeroCopyStream(&reader)) {
      return Reply(
          MakeError(v1::ERROR_REASON_INVALID_REQUEST, "the message is no DownloadRequest"));
    }
    handle_ = request.handle();
    absl::StatusOr<SessionCall> session = sessions.Find(request.session_id());
    if (!session.ok()) return Reply(session.status());
    session_ = *std::move(session);
    std::unique_ptr<WorkItem> item = std::make_unique<CallItem<DownloadCall>>(self_);
    switch (session_->executor().Enqueue(session_.shared(), item, Admission::kOrRefuse)) {
      case Pushed::kQueued:
      case Pushed::kWaiting:
        return;
      case Pushed::kFull:
        return Reply(QueueFull(*session_, 0));
      case Pushed::kClosed:
        return Reply(SessionClosed(*session_));
    }
  }

  // As WorkItem.
  size_t ops() const { return 0; }
  bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }

  bool Start(SessionState& state, OpRunner&) {
    stored_ = state.tensors.Share(handle_);
    usable_ = CheckUsable(stored_.get(), "handle", handle_);
    if (!usable_.ok()) return true;
    tensor_ = stored_->tensor;
    hold_ = std::make_shared<TransferHold>(session_.shared(), state, stored_->memory, true);
    return true;
  }

  void Finish(SessionState&, OpRunner& runner) {
    // An op that was under way at Start may have turned out to have failed.
    if (usable_.ok()) usable_ = CheckUsable(stored_.get(), "handle", handle_);
    stored_.reset();
    if (usable_.ok()) left_ = tensor_.SizeBytes();
    if (usable_.ok() && left_ > 0) {
      absl::StatusOr<std::unique_ptr<CopyToHost>> copy =
          runner.backend().StartCopyToHost(tensor_.data, left_, chunk_bytes_);
      if (copy.ok()) {
        copy_ = *std::move(copy);
      } else {
        usable_ = copy.status();
      }
    }
    if (!usable_.ok()) return Reply(usable_);
    SendHeader();
  }

  void Drop(const absl::Status& why) {
    stored_.reset();
    Reply(why);
  }

 private:
  void OnWriteDone(bool ok) override {
    if (!ok) return Reply(CallCancelled());
    if (left_ > 0) return SendChunk();
    if (sent_checksum_) return Reply(absl::OkStatus());
    checksum_.Finish([self = self_](uint64_t value) { self->SendChecksum(value); });
  }

  void OnCancel() override { cancelled_ = true; }
  void OnDone() override { self_.reset(); }

  void SendHeader() {
    v1::DownloadResponse part;
    FillSpec(tensor_, *part.mutable_header()->mutable_spec());
    part.mutable_header()->set_size_bytes(left_);
    Send(part);
  }

  void SendChunk() {
    const size_t bytes = std::min(left_, chunk_bytes_);
    absl::StatusOr<std::shared_ptr<const void>> chunk = copy_->Next(bytes);
    if (!chunk.ok()) return Reply(chunk.status());
    left_ -= bytes;
    const void* data = chunk->get();
    using Owners = std::pair<std::shared_ptr<const void>, std::shared_ptr<TransferHold>>;
    const auto owners = std::make_shared<const Owners>(*std::move(chunk), hold_);
    message_ = BytesField(v1::DownloadResponse::kChunkFieldNumber, data, bytes, owners);
    checksum_.Push(data, bytes, owners);
    // The hint lets the next chunk be queued while this one is being sent. From StartWrite on,
    // another thread may do that while this one does the sum.
    const std::shared_ptr<DownloadCall> self = self_;
    StartWrite(&message_, grpc::WriteOptions().set_buffer_hint());
    self->checksum_.Work();
  }

  void SendChecksum(uint64_t value) {
    sent_checksum_ = true;
    v1::DownloadResponse part;
    part.set_xxh3_64(value);
    Send(part);
  }

  void Send(const v1::DownloadResponse& part) {
    const grpc::Slice slice(part.SerializeAsString());
    message_ = grpc::ByteBuffer(&slice, 1);
    StartWrite(&message_);
  }

  void Reply(const absl::Status& status) {
    message_.Clear();
    copy_.reset();
    hold_.reset();
    session_ = SessionCall();
    grpc::ServerWriteReactor<grpc::ByteBuffer>::Finish(ToGrpc(status));
  }

  const size_t chunk_bytes_;
  uint64_t handle_ = 0;
  std::atomic<bool> cancelled_{false};
  SessionCall session_;
  absl::Status usable_;
  std::shared_ptr<StoredTensor> stored_;  // the executor's
  Tensor tensor_;
  std::shared_ptr<TransferHold> hold_;
  std::unique_ptr<CopyToHost> copy_;
  ChecksumQueue checksum_;
  size_t left_ = 0;
  bool sent_checksum_ = false;
  grpc::ByteBuffer message_;
  std::shared_ptr<DownloadCall> self_;
};

}  // namespace

grpc::ServerWriteReactor<grpc::ByteBuffer>* StartDownload(SessionManager& sessions,
                                                          const grpc::ByteBuffer& request,
                                                          size_t chunk_bytes) {
  const auto call = std::make_shared<DownloadCall>(chunk_bytes);
  call->Begin(call, sessions, request);
  return call.get();
}

}  // namespace kernelbox::server

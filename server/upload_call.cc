#include "server/upload_call.h"

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "grpcpp/support/proto_buffer_reader.h"
#include "kernelbox/v1/service.pb.h"
#include "server/call.h"
#include "server/checksum.h"
#include "server/transfer.h"
#include "spdlog/spdlog.h"

namespace kernelbox::server {
namespace {

// What a header's spec says, checked.
absl::StatusOr<Tensor> TensorOf(const v1::UploadHeader& header) {
  const v1::TensorSpec& spec = header.spec();
  Tensor tensor;
  tensor.present = true;
  tensor.dtype = static_cast<DType>(spec.dtype());
  if (SizeOf(tensor.dtype) == 0) {
    return FieldError(v1::ERROR_REASON_INVALID_DTYPE, "spec.dtype", "a value of DType",
                      absl::StrCat(static_cast<int>(spec.dtype())));
  }
  if (spec.shape_size() > kMaxRank) {
    return FieldError(v1::ERROR_REASON_INVALID_SHAPE, "spec.shape",
                      absl::StrCat("of at most ", kMaxRank, " dimensions"),
                      absl::StrCat(spec.shape_size()));
  }
  for (const int64_t dimension : spec.shape()) {
    if (dimension < 0) {
      return FieldError(v1::ERROR_REASON_INVALID_SHAPE, "spec.shape", "of dimensions of 0 or more",
                        absl::StrCat(dimension));
    }
    tensor.shape[tensor.rank++] = dimension;
  }
  absl::StatusOr<size_t> bytes = CheckedSizeBytes("spec.shape", tensor);
  if (!bytes.ok()) return bytes.status();
  if (spec.layout() != v1::LAYOUT_UNSPECIFIED && spec.layout() != v1::LAYOUT_CONTIGUOUS) {
    return FieldError(v1::ERROR_REASON_UNSUPPORTED, "spec.layout", "LAYOUT_CONTIGUOUS",
                      v1::Layout_IsValid(spec.layout()) ? v1::Layout_Name(spec.layout())
                                                        : absl::StrCat(spec.layout()));
  }
  if (*bytes != header.size_bytes()) {
    return FieldError(v1::ERROR_REASON_INVALID_REQUEST, "size_bytes",
                      absl::StrCat(*bytes, ", the size of the shape and dtype"),
                      absl::StrCat(header.size_bytes()));
  }
  return tensor;
}

// Its steps come one after the other: the header is read; the executor takes handle and memory;
// chunks, checksum and the stream's end are read; the executor makes the tensor ready, or takes
// everything back.
class UploadCall final : public grpc::ServerReadReactor<grpc::ByteBuffer> {
 public:
  static constexpr bool kWaitsForDevice = true;

  UploadCall(SessionManager& sessions, grpc::ByteBuffer& response)
      : sessions_(sessions), response_(response) {}

  void Begin(std::shared_ptr<UploadCall> self) {
    self_ = std::move(self);
    StartRead(&message_);
  }

  // As WorkItem.
  size_t ops() const { return 0; }
  bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }

  bool Start(SessionState& state, OpRunner&) {
    start_ = TakeHandle(state);
    return true;
  }

  void Finish(SessionState&, OpRunner& runner) {
    if (start_.ok() && total_ > 0) {
      absl::StatusOr<std::unique_ptr<CopyToDevice>> copy =
          runner.backend().StartCopyToDevice(stored_->tensor.data, total_);
      if (copy.ok()) {
        copy_ = *std::move(copy);
      } else {
        start_ = copy.status();
      }
    }
    if (start_.ok()) {
      StartRead(&message_);
    } else {
      GiveBack(start_);
    }
  }

  void Drop(const absl::Status& why) { GiveBack(why); }

 private:
  void OnReadDone(bool ok) override {
    if (!ok) {
      End();
    } else if (!has_header_) {
      ReadHeader();
    } else if (absl::Status status = ReadPart(); status.ok()) {
      StartRead(&message_);
    } else {
      Fail(status);
    }
  }

  void OnCancel() override { cancelled_ = true; }
  void OnDone() override { self_.reset(); }

  bool Parse(v1::UploadRequest& part) {
    grpc::ProtoBufferReader reader(&message_);
    return part.ParseFromZeroCopyStream(&reader);
  }

  void ReadHeader() {
    v1::UploadRequest part;
    if (!Parse(part) || !part.has_header()) {
      return Reply(FieldError(v1::ERROR_REASON_INVALID_REQUEST, "part",
                              "a header in the first message", "another one"));
    }
    has_header_ = true;
    header_ = std::move(*part.mutable_header());
    absl::StatusOr<SessionCall> session = sessions_.Find(header_.session_id());
    if (!session.ok()) return Reply(session.status());
    session_ = *std::move(session);
    Answer answer;
    switch (session_->requests().Begin(header_.request_id(), answer,
                                       [self = self_](const Answer* first) {
                                         if (first == nullptr) {
                                           self->Queue();
                                         } else {
                                           self->Reply(first->status);
                                         }
                                       })) {
      case RequestCache::Turn::kFirst:
        return Queue();
      case RequestCache::Turn::kAnswered:
        return Reply(answer.status);
      case RequestCache::Turn::kRunning:
        return;
    }
  }

  void Queue() {
    absl::StatusOr<Tensor> tensor = TensorOf(header_);
    if (!tensor.ok()) return Abandon(tensor.status());
    tensor_ = *tensor;
    total_ = header_.size_bytes();
    std::unique_ptr<WorkItem> item = std::make_unique<CallItem<UploadCall>>(self_);
    switch (session_->executor().Enqueue(session_.shared(), item, Admission::kOrRefuse)) {
      case Pushed::kQueued:
      case Pushed::kWaiting:
        return;
      case Pushed::kFull:
        return Abandon(QueueFull(*session_, 0));
      case Pushed::kClosed:
        return Abandon(SessionClosed(*session_));
    }
  }

  absl::Status TakeHandle(SessionState& state) {
    KB_RETURN_IF_NOT_OK(state.tensors.CheckFree(header_.handle(), "handle"));
    absl::StatusOr<std::shared_ptr<Memory>> memory = state.arena.Allocate(total_);
    if (!memory.ok()) return memory.status();
    stored_ = std::make_shared<StoredTensor>();
    stored_->state = StoredTensor::State::kUploading;
    stored_->tensor = tensor_;
    stored_->tensor.data = *memory != nullptr ? (*memory)->data() : nullptr;
    stored_->memory = *memory;
    hold_ = std::make_unique<TransferHold>(session_.shared(), state, *std::move(memory), false);
    state.tensors.Insert(header_.handle(), stored_);
    return absl::OkStatus();
  }

  // A chunk or the checksum.
  absl::Status ReadPart() {
    if (declared_.has_value()) {
      return FieldError(v1::ERROR_REASON_INVALID_REQUEST, "part", "nothing after the checksum",
                        "another message");
    }
    absl::Status status;
    const auto take = [&](const void* data, size_t bytes) {
      if (status.ok()) status = Append(data, bytes);
    };
    if (ReadBytesField(message_, v1::UploadRequest::kChunkFieldNumber, take)) return status;
    v1::UploadRequest part;
    if (!Parse(part)) {
      return FieldError(v1::ERROR_REASON_INVALID_REQUEST, "part", "an UploadRequest",
                        "bytes that are none");
    }
    switch (part.part_case()) {
      case v1::UploadRequest::kChunk:
        return Append(part.chunk().data(), part.chunk().size());
      case v1::UploadRequest::kXxh364:
        declared_ = part.xxh3_64();
        return absl::OkStatus();
      default:
        return FieldError(v1::ERROR_REASON_INVALID_REQUEST, "part",
                          "a chunk or the checksum after the header", "another one");
    }
  }

  absl::Status Append(const void* data, size_t bytes) {
    if (bytes > total_ - received_) {
      return SizeMismatch(absl::StrCat("at least ", received_ + bytes));
    }
    received_ += bytes;
    if (bytes == 0) return absl::OkStatus();
    checksum_.Add(data, bytes);
    return copy_->Append(data, bytes);
  }

  absl::Status SizeMismatch(const std::string& given) const {
    return MakeError(v1::ERROR_REASON_SIZE_MISMATCH,
                     absl::StrCat("the header declared ", total_, " bytes, given ", given),
                     {{"expected", absl::StrCat(total_)}, {"given", given}});
  }

  // No further message: the client has ended its side, or the call.
  void End() {
    if (!has_header_) {
      return Reply(cancelled() ? CallCancelled()
                               : FieldError(v1::ERROR_REASON_INVALID_REQUEST, "part",
                                            "a header in the first message", "no message"));
    }
    absl::Status status = Verify();
    if (!status.ok()) return Fail(status);
    Executor& executor = session_->executor();
    executor.Post([self = self_] { self->Commit(); });
  }

  absl::Status Verify() {
    if (cancelled()) return CallCancelled();
    if (received_ != total_) return SizeMismatch(absl::StrCat(received_));
    if (!declared_.has_value()) {
      return MakeError(v1::ERROR_REASON_INVALID_REQUEST, "the checksum is missing",
                       {{"field", "xxh3_64"}});
    }
    const uint64_t computed = checksum_.Value();
    if (computed != *declared_) {
      const std::string expected = absl::StrCat(absl::Hex(*declared_, absl::kZeroPad16));
      const std::string given = absl::StrCat(absl::Hex(computed, absl::kZeroPad16));
      return MakeError(v1::ERROR_REASON_CHECKSUM_MISMATCH,
                       absl::StrCat("the checksum sent is ", expected, ", the bytes have ", given),
                       {{"expected", expected}, {"given", given}});
    }
    return copy_ != nullptr ? copy_->Finish() : absl::OkStatus();
  }

  void Fail(const absl::Status& status) {
    session_->executor().Post([self = self_, status] { self->GiveBack(status); });
  }

  // Executor thread: the tensor is complete.
  void Commit() {
    const SessionState* state = Executor::StateOf(*session_);
    if (state == nullptr || state->tensors.Find(header_.handle()) != stored_.get()) {
      return GiveBack(SessionClosed(*session_));
    }
    stored_->state = StoredTensor::State::kReady;
    stored_.reset();
    hold_.reset();
    session_->requests().Complete(header_.request_id(), Answer());
    Reply(absl::OkStatus());
  }

  // Executor thread: as if the upload had never been.
  void GiveBack(const absl::Status& status) {
    copy_.reset();
    if (stored_ != nullptr) {
      SessionState* state = Executor::StateOf(*session_);
      if (state != nullptr && state->tensors.Find(header_.handle()) == stored_.get()) {
        state->tensors.Remove(header_.handle());
      }
      stored_.reset();
      hold_.reset();
    }
    spdlog::debug("[{}] upload failed: {}", session_->tag(), std::string(status.message()));
    Abandon(status);
  }

  void Abandon(const absl::Status& status) {
    session_->requests().Abandon(header_.request_id());
    Reply(status);
  }

  void Reply(const absl::Status& status) {
    session_ = SessionCall();
    const grpc::Slice empty;
    response_ = grpc::ByteBuffer(&empty, 1);  // UploadResponse has no fields
    grpc::ServerReadReactor<grpc::ByteBuffer>::Finish(ToGrpc(status));
  }

  SessionManager& sessions_;
  grpc::ByteBuffer& response_;
  grpc::ByteBuffer message_;
  std::atomic<bool> cancelled_{false};
  SessionCall session_;
  bool has_header_ = false;
  v1::UploadHeader header_;
  Tensor tensor_;
  absl::Status start_;
  std::shared_ptr<StoredTensor> stored_;  // the executor's
  std::unique_ptr<TransferHold> hold_;
  std::unique_ptr<CopyToDevice> copy_;
  Checksum checksum_;
  uint64_t total_ = 0;
  uint64_t received_ = 0;
  std::optional<uint64_t> declared_;
  std::shared_ptr<UploadCall> self_;
};

}  // namespace

grpc::ServerReadReactor<grpc::ByteBuffer>* StartUpload(SessionManager& sessions,
                                                       grpc::ByteBuffer& response) {
  const auto call = std::make_shared<UploadCall>(sessions, response);
  call->Begin(call);
  return call.get();
}

}  // namespace kernelbox::server

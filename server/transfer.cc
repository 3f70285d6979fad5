#include "server/transfer.h"

#include <array>
#include <utility>

#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/wire_format_lite.h"
#include "grpcpp/support/proto_buffer_reader.h"

namespace kernelbox::server {
namespace {

using google::protobuf::io::CodedInputStream;
using google::protobuf::io::CodedOutputStream;

// The tag of a field of type bytes.
uint32_t TagOf(int field_number) {
  return google::protobuf::internal::WireFormatLite::MakeTag(
      field_number, google::protobuf::internal::WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
}

}  // namespace

TransferHold::TransferHold(std::shared_ptr<Session> session, SessionState& state,
                           std::shared_ptr<Memory> memory, bool reads)
    : session_(std::move(session)), memory_(std::move(memory)), reads_(reads) {
  session_->executor().TransferBegins(state);
  if (memory_ != nullptr && reads_) ++memory_->readers;
}

TransferHold::~TransferHold() {
  session_->executor().Post(
      [session = session_, memory = std::move(memory_), reads = reads_]() mutable {
        if (memory != nullptr && reads) --memory->readers;
        memory.reset();
        session->executor().TransferEnds(*session);
      });
}

bool ReadBytesField(const grpc::ByteBuffer& message, int field_number,
                    absl::FunctionRef<void(const void* data, size_t bytes)> piece) {
  grpc::ByteBuffer reference(message);  // the reader wants one that it may change
  grpc::ProtoBufferReader reader(&reference);
  CodedInputStream in(&reader);
  uint32_t size = 0;
  if (in.ReadTag() != TagOf(field_number) || !in.ReadVarint32(&size)) return false;
  if (static_cast<size_t>(in.CurrentPosition()) + size != message.Length()) return false;
  const void* data = nullptr;
  int available = 0;
  while (in.GetDirectBufferPointer(&data, &available)) {
    piece(data, static_cast<size_t>(available));
    in.Skip(available);
  }
  return true;
}

grpc::ByteBuffer BytesField(int field_number, const void* data, size_t bytes,
                            std::shared_ptr<const void> owner) {
  uint8_t prefix[10];
  uint8_t* end = CodedOutputStream::WriteTagToArray(TagOf(field_number), prefix);
  end = CodedOutputStream::WriteVarint32ToArray(static_cast<uint32_t>(bytes), end);
  using Owner = std::shared_ptr<const void>;
  std::array<grpc::Slice, 2> slices = {
      grpc::Slice(prefix, static_cast<size_t>(end - prefix)),
      grpc::Slice(
          const_cast<void*>(data), bytes,  // gRPC only reads it
          [](void* held) { delete static_cast<Owner*>(held); }, new Owner(std::move(owner)))};
  return grpc::ByteBuffer(slices.data(), slices.size());
}

size_t PreferredChunkBytes(std::string_view peer) {
  return peer.substr(0, 5) == "unix:" ? size_t{1} << 20 : size_t{256} << 10;
}

}  // namespace kernelbox::server

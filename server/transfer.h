// What uploads and downloads share: memory held for as long as it is read or written, and the
// wire form of chunks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "grpcpp/support/byte_buffer.h"
#include "server/executor.h"
#include "server/session.h"

namespace kernelbox::server {

// Holds a tensor's memory, which may outlive the tensor, and its session's arena for a transfer.
// Made by the executor thread; may be destroyed by any.
class TransferHold {
 public:
  // `reads`: ops must not change the memory meanwhile. `memory` may be null.
  TransferHold(std::shared_ptr<Session> session, SessionState& state,
               std::shared_ptr<Memory> memory, bool reads);
  ~TransferHold();
  TransferHold(const TransferHold&) = delete;
  TransferHold& operator=(const TransferHold&) = delete;

 private:
  const std::shared_ptr<Session> session_;
  std::shared_ptr<Memory> memory_;
  const bool reads_;
};

// If the message is nothing but one bytes field of this number, calls `piece` for each of the
// bytes' pieces in order, without copying them, and returns true.
bool ReadBytesField(const grpc::ByteBuffer& message, int field_number,
                    absl::FunctionRef<void(const void* data, size_t bytes)> piece);

// A message of one bytes field whose bytes are `bytes` bytes at `data`, without copying them.
// `owner` is let go when they have been sent.
grpc::ByteBuffer BytesField(int field_number, const void* data, size_t bytes,
                            std::shared_ptr<const void> owner);

// Best measured: 256 KiB over TCP, 1 MiB through a unix socket.
size_t PreferredChunkBytes(std::string_view peer);

}  // namespace kernelbox::server

// The Download stream.
#pragma once

#include <cstddef>

#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "server/session_manager.h"

namespace kernelbox::server {

// Starts the stream and gives its reactor, which deletes itself. It sends the tensor as it is at
// the call's turn in the queue, whatever later ops do to it, in chunks of `chunk_bytes`, each
// without a copy of its own where the device's memory is the host's.
grpc::ServerWriteReactor<grpc::ByteBuffer>* StartDownload(SessionManager& sessions,
                                                          const grpc::ByteBuffer& request,
                                                          size_t chunk_bytes);

}  // namespace kernelbox::server

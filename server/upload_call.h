// The Upload stream.
#pragma once

#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "server/session_manager.h"

namespace kernelbox::server {

// Starts the stream and gives its reactor, which deletes itself. It takes messages as bytes, so
// that a chunk is copied once, from the transport's buffers to the tensor.
grpc::ServerReadReactor<grpc::ByteBuffer>* StartUpload(SessionManager& sessions,
                                                       grpc::ByteBuffer& response);

}  // namespace kernelbox::server

// The whole server but for the command line: devices, sessions, the rpc service, the ports.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "grpcpp/server.h"
#include "server/backend.h"
#include "server/binder.h"
#include "server/service.h"
#include "server/session_manager.h"

namespace kernelbox::server {

struct ServerOptions {
  // "host:port", where port 0 is one that the system chooses, or "unix:<path>".
  std::vector<std::string> listen = {"127.0.0.1:50051"};
  // What sessions of one device may hold, in bytes; 0: the device's default.
  size_t device_memory_limit = 0;
  uint64_t max_message_bytes = uint64_t{16} << 20;
  SessionManagerOptions sessions;
};

// Thread-safe.
class KernelboxServer {
 public:
  // Serves when this returns. Errors: INVALID_ARGUMENT for an address that cannot be listened
  // on, INTERNAL with all that Binder found in the list of layers.
  static absl::StatusOr<std::unique_ptr<KernelboxServer>> Start(
      ServerOptions options, Backend backend, const Layer* layers = Layer::Head());
  // Drains for no time.
  ~KernelboxServer();

  // The addresses listened on, with the ports that were chosen.
  const std::vector<std::string>& addresses() const { return addresses_; }

  // Stops: takes no new work, lets queued work and open calls end for up to `timeout`, then
  // cancels what is left. Returns when no call is open any more.
  void Drain(std::chrono::milliseconds timeout);

  // A channel inside the process, for tests.
  std::shared_ptr<grpc::Channel> InProcessChannel();

  SessionManager& sessions() { return *sessions_; }

 private:
  KernelboxServer(ServerOptions options, Backend backend, std::unique_ptr<Binder> binder);
  [[nodiscard]] absl::Status Listen();
  // Tells health checks whether to send work here. Once not ready, it stays so.
  void SetReady(bool ready);

  const ServerOptions options_;
  const Backend backend_;
  const std::unique_ptr<const Binder> binder_;
  std::vector<std::unique_ptr<Executor>> executors_;
  std::unique_ptr<SessionManager> sessions_;
  std::unique_ptr<Service> service_;
  std::vector<std::string> addresses_;
  std::mutex mutex_;
  bool never_ready_ = false;              // draining, or a device has failed
  std::unique_ptr<grpc::Server> server_;  // null before Listen and after Drain
};

}  // namespace kernelbox::server

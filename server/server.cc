#include "server/server.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/health_check_service_interface.h"
#include "kernelbox/v1/layers.pb.h"
#include "kernels/layer.h"
#include "spdlog/spdlog.h"

#ifndef KERNELBOX_VERSION
#error "the build defines KERNELBOX_VERSION"
#endif

namespace kernelbox::server {
namespace {

std::vector<Executor*> Pointers(const std::vector<std::unique_ptr<Executor>>& executors) {
  std::vector<Executor*> pointers;
  for (const auto& executor : executors) pointers.push_back(executor.get());
  return pointers;
}

}  // namespace

absl::StatusOr<std::unique_ptr<KernelboxServer>> KernelboxServer::Start(ServerOptions options,
                                                                        Backend backend,
                                                                        const Layer* layers) {
  std::vector<std::string> problems;
  auto binder = std::make_unique<Binder>(*v1::Op::descriptor(), layers, problems);
  if (!problems.empty()) {
    return absl::InternalError(
        absl::StrCat("ops and layers do not fit:\n  ", absl::StrJoin(problems, "\n  ")));
  }
  std::unique_ptr<KernelboxServer> server(
      new KernelboxServer(std::move(options), std::move(backend), std::move(binder)));
  if (absl::Status status = server->Listen(); !status.ok()) return status;
  return server;
}

KernelboxServer::KernelboxServer(ServerOptions options, Backend backend,
                                 std::unique_ptr<Binder> binder)
    : options_(std::move(options)), backend_(std::move(backend)), binder_(std::move(binder)) {
  for (const auto& device : backend_.devices) {
    const size_t limit = options_.device_memory_limit != 0
                             ? options_.device_memory_limit
                             : device->description().default_memory_limit;
    executors_.push_back(std::make_unique<Executor>(
        *binder_, *device, backend_.name, limit, [this](const absl::Status&) { SetReady(false); }));
  }
  sessions_ = std::make_unique<SessionManager>(options_.sessions, Pointers(executors_));
  ServiceInfo info;
  info.version = KERNELBOX_VERSION;
  info.backend = backend_.name;
  info.max_message_bytes = options_.max_message_bytes;
  service_ = std::make_unique<Service>(std::move(info), *binder_, *sessions_, Pointers(executors_));
}

absl::Status KernelboxServer::Listen() {
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(static_cast<int>(options_.max_message_bytes));
  builder.SetMaxSendMessageSize(-1);
  // A second server on the same port is a mistake, not a way to share load.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  // A client that is gone without a word is noticed within a minute.
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 30'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20'000);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  // How far a download may run ahead of the connection.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_WRITE_BUFFER_SIZE, 1 << 20);
  std::vector<int> ports(options_.listen.size(), 0);
  for (size_t i = 0; i < ports.size(); ++i) {
    builder.AddListeningPort(options_.listen[i], grpc::InsecureServerCredentials(), &ports[i]);
  }
  builder.RegisterService(service_.get());
  server_ = builder.BuildAndStart();
  for (size_t i = 0; i < ports.size(); ++i) {
    const std::string& address = options_.listen[i];
    if (server_ == nullptr || ports[i] == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("cannot listen on ", absl::StrJoin(options_.listen, ", ")));
    }
    const bool is_path = address.rfind("unix:", 0) == 0;
    addresses_.push_back(
        is_path ? address : absl::StrCat(address.substr(0, address.rfind(':')), ":", ports[i]));
  }
  SetReady(true);
  return absl::OkStatus();
}

void KernelboxServer::SetReady(bool ready) {
  const std::lock_guard lock(mutex_);
  if (!ready) never_ready_ = true;
  if (server_ == nullptr) return;
  server_->GetHealthCheckService()->SetServingStatus(v1::KernelboxService::service_full_name(),
                                                     !never_ready_);
}

KernelboxServer::~KernelboxServer() { Drain(std::chrono::milliseconds(0)); }

void KernelboxServer::Drain(std::chrono::milliseconds timeout) {
  if (server_ == nullptr) return;
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  SetReady(false);
  sessions_->Drain();
  for (const auto& executor : executors_) {
    if (!executor->WaitIdle(deadline)) spdlog::warn("drain: queued work is dropped");
  }
  const auto left = deadline - std::chrono::steady_clock::now();
  server_->Shutdown(std::chrono::system_clock::now() + left);
  server_->Wait();
  {
    const std::lock_guard lock(mutex_);
    server_.reset();  // and with it what its connections still hold of transfers
  }
  sessions_->CloseAll();
  for (const auto& executor : executors_) executor->Stop();
}

std::shared_ptr<grpc::Channel> KernelboxServer::InProcessChannel() {
  return server_->InProcessChannel(grpc::ChannelArguments());
}

}  // namespace kernelbox::server

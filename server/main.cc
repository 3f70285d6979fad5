// kernelboxd: options, backend, serve, drain.
#include <malloc.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>

#include "absl/strings/str_join.h"
#include "server/options.h"
#include "server/server.h"
#include "spdlog/sinks/stdout_sinks.h"
#include "spdlog/spdlog.h"

namespace kernelbox::server {
namespace {

absl::StatusOr<Backend> ChooseBackend(const std::string& choice) {
  if (choice == "cpu") return MakeCpuBackend();
  absl::StatusOr<Backend> cuda = MakeCudaBackend();
  if (cuda.ok() || choice == "cuda") return cuda;
  spdlog::info("backend cpu: {}", std::string(cuda.status().message()));
  return MakeCpuBackend();
}

// Whole or not at all, so that a script can wait for the file.
absl::Status WriteReadyFile(const std::string& path, const std::vector<std::string>& addresses) {
  const std::string unfinished = path + ".tmp";
  std::ofstream file(unfinished);
  file << absl::StrJoin(addresses, "\n") << "\n";
  file.close();
  std::error_code error;
  if (file) std::filesystem::rename(unfinished, path, error);
  if (!file || error) return absl::InvalidArgumentError("cannot write " + path);
  return absl::OkStatus();
}

// A kernel that runs cannot be stopped: how long after the drain one may go on.
constexpr std::chrono::seconds kKernelGrace(5);

// Ends the process at another of `signals`, or after `timeout`.
void ExitWithoutGrace(sigset_t signals, std::chrono::milliseconds timeout) {
  const timespec limit = {static_cast<time_t>(timeout.count() / 1000),
                          static_cast<long>(timeout.count() % 1000 * 1'000'000)};
  const int signal = sigtimedwait(&signals, nullptr, &limit);
  if (signal < 0) spdlog::critical("an op is still running: exiting without it");
  std::_Exit(signal < 0 ? EXIT_FAILURE : 128 + signal);
}

// Transfers allocate and free buffers of every size at a high rate: without this the allocator
// would give their pages back to the system and fault them in again, which costs uploads half
// their speed.
void KeepFreedPages() {
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 256 << 20);
  mallopt(M_TOP_PAD, 4 << 20);
}

int Serve(const Options& options) {
  // Signals are for the thread that waits for them below; threads started from here inherit that.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  const auto failed = [](const absl::Status& status) {
    spdlog::critical("{}", std::string(status.message()));
    return EXIT_FAILURE;
  };
  absl::StatusOr<Backend> backend = ChooseBackend(options.backend);
  if (!backend.ok()) return failed(backend.status());
  for (const auto& device : backend->devices) {
    spdlog::info("backend {}: {}", backend->name, device->description().name);
  }
  absl::StatusOr<std::unique_ptr<KernelboxServer>> server =
      KernelboxServer::Start(options.server, *std::move(backend));
  if (!server.ok()) return failed(server.status());
  for (const std::string& address : (*server)->addresses()) {
    spdlog::info("listening on {}", address);
  }
  if (!options.ready_file.empty()) {
    const absl::Status status = WriteReadyFile(options.ready_file, (*server)->addresses());
    if (!status.ok()) return failed(status);
  }

  int signal = 0;
  sigwait(&signals, &signal);
  spdlog::info("{}: draining for up to {} ms; again to exit at once", strsignal(signal),
               options.drain_timeout.count());
  std::thread(ExitWithoutGrace, signals, options.drain_timeout + kKernelGrace).detach();
  (*server)->Drain(options.drain_timeout);
  spdlog::info("drained");
  return EXIT_SUCCESS;
}

}  // namespace
}  // namespace kernelbox::server

int main(int argc, char** argv) {
  kernelbox::server::KeepFreedPages();
  spdlog::set_default_logger(spdlog::stderr_logger_mt("kernelboxd"));
  spdlog::set_pattern("%Y-%m-%dT%H:%M:%S.%f%z %l %v");
  kernelbox::server::Options options;
  if (const std::optional<int> exit_code = kernelbox::server::ParseOptions(argc, argv, options)) {
    return *exit_code;
  }
  return kernelbox::server::Serve(options);
}

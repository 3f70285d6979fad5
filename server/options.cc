#include "server/options.h"

#include <cstdio>
#include <cstdlib>
#include <limits>

#include "CLI/CLI.hpp"
#include "spdlog/spdlog.h"

namespace kernelbox::server {
namespace {

void AddMilliseconds(CLI::App& app, const std::string& name, std::chrono::milliseconds& value,
                     const std::string& description) {
  app.add_option_function<int64_t>(
         name, [&value](int64_t given) { value = std::chrono::milliseconds(given); }, description)
      ->check(CLI::Range(int64_t{0}, std::numeric_limits<int64_t>::max() / 2'000'000))
      ->type_name("MS")
      ->default_str(std::to_string(value.count()));
}

}  // namespace

bool IsLocal(const std::string& address) {
  if (address.rfind("unix:", 0) == 0) return true;
  const std::string host = address.substr(0, address.rfind(':'));
  return host == "localhost" || host == "[::1]" || host.rfind("127.", 0) == 0;
}

std::optional<int> ParseOptions(int argc, char** argv, Options& options) {
  CLI::App app{
      "kernelboxd runs neural-network layers on this machine's device for remote clients."};
  app.get_formatter()->column_width(40);
  app.set_version_flag("--version", "kernelboxd " KERNELBOX_VERSION);
  app.option_defaults()->always_capture_default();

  std::vector<std::string> listen;
  app.add_option("--listen", listen,
                 "Address to listen on, host:port or unix:path; port 0 is one that the system "
                 "chooses. May be repeated. [127.0.0.1:50051]")
      ->type_name("ADDRESS")
      ->take_all();
  bool insecure = false;
  app.add_flag("--insecure", insecure,
               "Listen on addresses other machines can reach, without encryption or "
               "authentication: whoever reaches them can use the device");
  app.add_option("--backend", options.backend, "Where layers run; auto: cuda if a GPU is usable")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}));
  app.add_option("--device-memory", options.server.device_memory_limit,
                 "What all sessions of a device may hold, in bytes or with a unit (8GiB); 0: 80 % "
                 "of the memory (cpu), 95 % of what is free at start (cuda)")
      ->transform(CLI::AsSizeValue(false))
      ->type_name("SIZE");
  AddMilliseconds(app, "--session-ttl", options.server.sessions.default_ttl,
                  "How long a session lives without a call, unless its client says otherwise");
  AddMilliseconds(app, "--max-session-ttl", options.server.sessions.max_ttl,
                  "The longest time to live that a client may ask for");
  app.add_option("--max-sessions", options.server.sessions.max_sessions, "Sessions at a time")
      ->check(CLI::PositiveNumber);
  app.add_option("--max-handles", options.server.sessions.max_handles, "Handles in a session")
      ->check(CLI::PositiveNumber);
  app.add_option("--max-queued-ops", options.server.sessions.max_queued_ops,
                 "Ops waiting or running in a session")
      ->check(CLI::PositiveNumber);
  app.add_option("--max-message-bytes", options.server.max_message_bytes,
                 "The largest message received, in bytes or with a unit (16MiB)")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(uint64_t{1} << 10, uint64_t{1} << 30))
      ->type_name("SIZE");
  AddMilliseconds(app, "--drain-timeout", options.drain_timeout,
                  "On SIGTERM or SIGINT, how long queued work and open calls may take to end");
  std::string log_level = "info";
  app.add_option("--log-level", log_level, "What is logged, to standard error")
      ->check(CLI::IsMember({"trace", "debug", "info", "warning", "error", "critical", "off"}));
  app.add_option("--ready-file", options.ready_file,
                 "File to write, when the server serves, with its addresses, one a line")
      ->type_name("PATH");

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  }
  if (!listen.empty()) options.server.listen = listen;
  for (const std::string& address : options.server.listen) {
    if (!insecure && !IsLocal(address)) {
      fprintf(stderr,
              "kernelboxd: other machines can reach %s, and nothing there is encrypted or "
              "authenticated: give --insecure if that is meant\n",
              address.c_str());
      return EXIT_FAILURE;
    }
  }
  spdlog::set_level(spdlog::level::from_str(log_level));
  return std::nullopt;
}

}  // namespace kernelbox::server

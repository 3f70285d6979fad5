// The command line of kernelboxd.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "server/server.h"

namespace kernelbox::server {

struct Options {
  ServerOptions server;
  std::string backend = "auto";
  std::chrono::milliseconds drain_timeout{10'000};
  // Where the addresses listened on are written, one a line, when the server serves; empty: not.
  std::string ready_file;
};

// Fills `options` and sets the log level. Gives the exit code if the program should end now:
// after --help or --version, or on a mistake, which it has printed.
std::optional<int> ParseOptions(int argc, char** argv, Options& options);

// Whether only this machine can reach the address: a loopback host or a unix socket.
bool IsLocal(const std::string& address);

}  // namespace kernelbox::server

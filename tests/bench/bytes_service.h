// The bare byte stream service, in a process of its own as kernelboxd is.
#pragma once

#include <sys/types.h>

#include <string>

namespace kernelbox::bench {

// Serves on a loopback port until standard input ends; prints the address first.
int ServeBytes();

// This program in another process, serving bytes.
class BytesServer {
 public:
  BytesServer();
  ~BytesServer();
  BytesServer(const BytesServer&) = delete;
  BytesServer& operator=(const BytesServer&) = delete;

  const std::string& address() const { return address_; }

 private:
  pid_t pid_ = 0;
  int stdin_ = -1;  // its standard input: closed, it ends
  std::string address_;
};

}  // namespace kernelbox::bench

#include "tests/bench/bytes_service.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>

#include "grpcpp/grpcpp.h"
#include "tests/bench/bytes.grpc.pb.h"

namespace kernelbox::bench {
namespace {

class PutReactor final : public grpc::ServerReadReactor<Chunk> {
 public:
  PutReactor() { StartRead(&chunk_); }
  void OnReadDone(bool ok) override {
    if (ok) {
      StartRead(&chunk_);
    } else {
      Finish(grpc::Status::OK);
    }
  }
  void OnDone() override { delete this; }

 private:
  Chunk chunk_;
};

class GetReactor final : public grpc::ServerWriteReactor<Chunk> {
 public:
  explicit GetReactor(const GetRequest& request) : left_(request.chunks()) {
    chunk_.set_data(std::string(request.chunk_bytes(), 'x'));
    Next();
  }
  void OnWriteDone(bool ok) override {
    if (ok) {
      Next();
    } else {
      Finish(grpc::Status::CANCELLED);
    }
  }
  void OnDone() override { delete this; }

 private:
  void Next() {
    if (left_ == 0) return Finish(grpc::Status::OK);
    --left_;
    StartWrite(&chunk_);
  }

  uint64_t left_;
  Chunk chunk_;
};

class Service final : public Bytes::CallbackService {
 public:
  grpc::ServerReadReactor<Chunk>* Put(grpc::CallbackServerContext*, Nothing*) override {
    return new PutReactor;
  }
  grpc::ServerWriteReactor<Chunk>* Get(grpc::CallbackServerContext*,
                                       const GetRequest* request) override {
    return new GetReactor(*request);
  }
};

}  // namespace

int ServeBytes() {
  Service service;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) return EXIT_FAILURE;
  printf("127.0.0.1:%d\n", port);
  fflush(stdout);
  while (getchar() != EOF) continue;
  server->Shutdown();
  return EXIT_SUCCESS;
}

BytesServer::BytesServer() {
  int in[2];
  int out[2];
  if (pipe(in) != 0 || pipe(out) != 0) abort();
  pid_ = fork();
  if (pid_ < 0) abort();
  if (pid_ == 0) {
    dup2(in[0], STDIN_FILENO);
    dup2(out[1], STDOUT_FILENO);
    for (const int fd : {in[0], in[1], out[0], out[1]}) close(fd);
    execl("/proc/self/exe", "bench_rpc", "--serve-bytes", nullptr);
    _exit(EXIT_FAILURE);
  }
  close(in[0]);
  close(out[1]);
  stdin_ = in[1];
  char byte = 0;
  while (read(out[0], &byte, 1) == 1 && byte != '\n') address_.push_back(byte);
  close(out[0]);
}

BytesServer::~BytesServer() {
  close(stdin_);
  waitpid(pid_, nullptr, 0);
}

}  // namespace kernelbox::bench

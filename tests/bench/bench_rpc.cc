// What a call costs and how fast bytes move, against a running server and a bare byte stream.
//
//   bench_rpc --target ADDRESS [--rounds N]
//
// The op is the cheapest there is, ReLU of one element. Rounds of each measurement alternate, so
// that a slow spell of the machine meets all of them; figures are medians. The last line is a JSON
// object.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "CLI/CLI.hpp"
#include "grpcpp/grpcpp.h"
#include "kernelbox/v1/service.grpc.pb.h"
#include "server/checksum.h"
#include "tests/bench/bytes.grpc.pb.h"
#include "tests/bench/bytes_service.h"

namespace kernelbox::bench {
namespace {

constexpr int kUnaryOps = 2000;
constexpr int kBatches = 800;
constexpr int kOpsPerBatch = 256;
constexpr size_t kTransferBytes = size_t{256} << 20;
constexpr uint64_t kX = 1;
constexpr uint64_t kFirstY = 1000;

// Ends the program if a call failed.
void Check(const grpc::Status& status, const char* what) {
  if (status.ok()) return;
  fprintf(stderr, "bench_rpc: %s: %s\n", what, status.error_message().c_str());
  exit(EXIT_FAILURE);
}
void Check(bool ok, const char* what) {
  Check(ok ? grpc::Status::OK : grpc::Status(grpc::StatusCode::INTERNAL, "failed"), what);
}

double SecondsOf(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void SetReLU(uint64_t y, v1::Op& op) {
  op.mutable_relu()->set_x(kX);
  op.mutable_relu()->set_y(y);
}

// A session on the server, with one tensor of one element.
class Session {
 public:
  explicit Session(const std::string& target)
      : stub_(v1::KernelboxService::NewStub(
            grpc::CreateChannel(target, grpc::InsecureChannelCredentials()))) {
    grpc::ClientContext context;
    v1::CreateSessionRequest request;
    request.set_client_name("bench_rpc");
    v1::CreateSessionResponse response;
    Check(stub_->CreateSession(&context, request, &response), "CreateSession");
    id_ = response.session_id();
    chunk_bytes_ = response.limits().preferred_chunk_bytes();
    Upload(kX, 4);
  }
  ~Session() {
    grpc::ClientContext context;
    v1::CloseSessionRequest request;
    request.set_session_id(id_);
    v1::CloseSessionResponse response;
    Check(stub_->CloseSession(&context, request, &response), "CloseSession");
  }

  size_t chunk_bytes() const { return chunk_bytes_; }

  void RunUnary(int ops) {
    for (int i = 0; i < ops; ++i) {
      const uint64_t y = kFirstY + static_cast<uint64_t>(i);
      grpc::ClientContext context;
      v1::RunRequest request;
      request.set_session_id(id_);
      SetReLU(y, *request.mutable_op());
      v1::RunResponse response;
      Check(stub_->Run(&context, request, &response), "Run");
    }
    grpc::ClientContext context;
    v1::FreeRequest request;
    request.set_session_id(id_);
    for (int i = 0; i < ops; ++i) request.add_handles(kFirstY + static_cast<uint64_t>(i));
    v1::FreeResponse response;
    Check(stub_->Free(&context, request, &response), "Free");
  }

  // Sends without waiting; each batch frees what the one before it made, so memory is bounded.
  void RunPipelined(int batches, int ops_per_batch) {
    grpc::ClientContext context;
    const auto stream = stub_->Execute(&context);
    std::thread reader([&] {
      v1::ExecuteResponse response;
      for (int i = 0; i < batches + 1; ++i) {
        Check(stream->Read(&response), "Execute");
        Check(response.failed_ops() == 0 && response.free_errors_size() == 0, "an op");
      }
    });
    v1::ExecuteRequest request;
    uint64_t next = kFirstY;
    for (int batch = 0; batch < batches + 1; ++batch) {
      request.Clear();
      if (batch == 0) request.set_session_id(id_);
      for (int i = 0; batch > 0 && i < ops_per_batch; ++i) {
        request.add_free_handles(next - static_cast<uint64_t>(ops_per_batch - i));
      }
      for (int i = 0; batch < batches && i < ops_per_batch; ++i)
        SetReLU(next++, *request.add_ops());
      Check(stream->Write(request), "Execute");
    }
    stream->WritesDone();
    reader.join();
    Check(stream->Finish(), "Execute");
  }

  void Upload(uint64_t handle, size_t bytes) {
    grpc::ClientContext context;
    v1::UploadResponse response;
    const auto writer = stub_->Upload(&context, &response);
    v1::UploadRequest part;
    part.mutable_header()->set_session_id(id_);
    part.mutable_header()->set_handle(handle);
    part.mutable_header()->mutable_spec()->set_dtype(v1::D_TYPE_FLOAT32);
    part.mutable_header()->mutable_spec()->add_shape(static_cast<int64_t>(bytes / 4));
    part.mutable_header()->set_size_bytes(bytes);
    writer->Write(part);
    server::Checksum checksum;
    part.mutable_chunk()->assign(std::min(bytes, chunk_bytes_), '\x3f');
    for (size_t sent = 0; sent < bytes; sent += chunk_bytes_) {
      checksum.Add(part.chunk().data(), part.chunk().size());
      if (!writer->Write(part)) break;
    }
    part.set_xxh3_64(checksum.Value());
    writer->Write(part);
    writer->WritesDone();
    Check(writer->Finish(), "Upload");
  }

  void Download(uint64_t handle, size_t bytes) {
    grpc::ClientContext context;
    v1::DownloadRequest request;
    request.set_session_id(id_);
    request.set_handle(handle);
    const auto reader = stub_->Download(&context, request);
    server::Checksum checksum;
    v1::DownloadResponse part;
    size_t received = 0;
    uint64_t sent = 0;
    while (reader->Read(&part)) {
      if (part.has_chunk()) {
        checksum.Add(part.chunk().data(), part.chunk().size());
        received += part.chunk().size();
      } else if (part.part_case() == v1::DownloadResponse::kXxh364) {
        sent = part.xxh3_64();
      }
    }
    Check(reader->Finish(), "Download");
    Check(received == bytes && sent == checksum.Value(), "the bytes downloaded");
  }

  void Free(uint64_t handle) {
    grpc::ClientContext context;
    v1::FreeRequest request;
    request.set_session_id(id_);
    request.add_handles(handle);
    v1::FreeResponse response;
    Check(stub_->Free(&context, request, &response), "Free");
  }

 private:
  const std::unique_ptr<v1::KernelboxService::Stub> stub_;
  std::string id_;
  size_t chunk_bytes_ = 0;
};

// The same transfers, with nothing but gRPC.
class BareStreams {
 public:
  BareStreams(const std::string& target, size_t chunk_bytes)
      : stub_(Bytes::NewStub(grpc::CreateChannel(target, grpc::InsecureChannelCredentials()))),
        chunk_bytes_(chunk_bytes) {}

  void Put(size_t bytes) {
    grpc::ClientContext context;
    Nothing nothing;
    const auto writer = stub_->Put(&context, &nothing);
    Chunk chunk;
    chunk.mutable_data()->assign(chunk_bytes_, '\x3f');
    for (size_t sent = 0; sent < bytes; sent += chunk_bytes_) Check(writer->Write(chunk), "Put");
    writer->WritesDone();
    Check(writer->Finish(), "Put");
  }

  void Get(size_t bytes) {
    grpc::ClientContext context;
    GetRequest request;
    request.set_chunks(bytes / chunk_bytes_);
    request.set_chunk_bytes(chunk_bytes_);
    const auto reader = stub_->Get(&context, request);
    Chunk chunk;
    size_t received = 0;
    while (reader->Read(&chunk)) received += chunk.data().size();
    Check(reader->Finish(), "Get");
    Check(received == bytes, "Get");
  }

 private:
  const std::unique_ptr<Bytes::Stub> stub_;
  const size_t chunk_bytes_;
};

struct Figures {
  std::vector<double> unary_us;
  std::vector<double> ops_per_s;
  std::vector<double> upload;  // GB/s, as are the others
  std::vector<double> download;
  std::vector<double> bare_upload;
  std::vector<double> bare_download;
};

Figures Measure(const std::string& target, int rounds) {
  const BytesServer bytes_server;
  Session session(target);
  BareStreams bare(bytes_server.address(), session.chunk_bytes());
  constexpr uint64_t kLarge = 2;
  constexpr double kGigabytes = kTransferBytes / 1e9;
  Figures figures;
  for (int round = -1; round < rounds; ++round) {
    const double unary = SecondsOf([&] { session.RunUnary(kUnaryOps); });
    const double pipelined = SecondsOf([&] { session.RunPipelined(kBatches, kOpsPerBatch); });
    const double put = SecondsOf([&] { bare.Put(kTransferBytes); });
    const double upload = SecondsOf([&] { session.Upload(kLarge, kTransferBytes); });
    const double get = SecondsOf([&] { bare.Get(kTransferBytes); });
    const double download = SecondsOf([&] { session.Download(kLarge, kTransferBytes); });
    session.Free(kLarge);
    if (round < 0) continue;  // the first warms up
    figures.unary_us.push_back(unary / kUnaryOps * 1e6);
    figures.ops_per_s.push_back(kBatches * kOpsPerBatch / pipelined);
    figures.upload.push_back(kGigabytes / upload);
    figures.download.push_back(kGigabytes / download);
    figures.bare_upload.push_back(kGigabytes / put);
    figures.bare_download.push_back(kGigabytes / get);
  }
  return figures;
}

void Print(const Figures& figures) {
  const double upload_ratio = Median(figures.upload) / Median(figures.bare_upload);
  const double download_ratio = Median(figures.download) / Median(figures.bare_download);
  const auto row = [](const char* what, const std::vector<double>& values, const char* format) {
    const auto [least, most] = std::minmax_element(values.begin(), values.end());
    printf("%-36s", what);
    for (const double value : {Median(values), *least, *most}) printf(format, value);
    printf("\n");
  };
  printf("%-36s%12s%12s%12s\n", "C++, this machine", "median", "least", "most");
  row("an op by unary Run, us", figures.unary_us, "%12.1f");
  row("pipelined Execute, ops/s", figures.ops_per_s, "%12.0f");
  row("upload, GB/s", figures.upload, "%12.2f");
  row("bare stream up, GB/s", figures.bare_upload, "%12.2f");
  row("download, GB/s", figures.download, "%12.2f");
  row("bare stream down, GB/s", figures.bare_download, "%12.2f");
  printf(
      "{\"unary_us\": %.1f, \"execute_ops_per_s_cpp\": %.0f, \"upload_ratio\": %.3f, "
      "\"download_ratio\": %.3f}\n",
      Median(figures.unary_us), Median(figures.ops_per_s), upload_ratio, download_ratio);
}

}  // namespace
}  // namespace kernelbox::bench

// CLI11's constructors are not marked noexcept; CLI11_PARSE catches what bad options throw.
// NOLINTNEXTLINE(bugprone-exception-escape)
int main(int argc, char** argv) {
  CLI::App app{"Measures calls and transfers against a running server."};
  std::string target;
  int rounds = 7;
  bool serve_bytes = false;
  app.add_option("--target", target, "The server's address");
  app.add_option("--rounds", rounds, "Rounds after the first, which does not count")
      ->check(CLI::PositiveNumber);
  app.add_flag("--serve-bytes", serve_bytes, "Be the bare byte stream's server instead");
  CLI11_PARSE(app, argc, argv);
  if (serve_bytes) return kernelbox::bench::ServeBytes();
  kernelbox::bench::Print(kernelbox::bench::Measure(target, rounds));
  return EXIT_SUCCESS;
}

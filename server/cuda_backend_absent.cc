// Stands in for cuda_backend.cc in a build without CUDA.
#include "absl/status/statusor.h"
#include "server/backend.h"

namespace kernelbox::server {

absl::StatusOr<Backend> MakeCudaBackend() {
  return absl::UnavailableError("this server was built without CUDA (`make cuda` builds it with)");
}

}  // namespace kernelbox::server

// Faults that only the data shows, on a device that runs behind the server.
//
// An op whose kernels can find such a fault gets a DataFault: a word in device memory that the
// kernels fill. Until the device has passed the op, the tensors it made carry the DataFault, ops
// that read them are guarded by it, and what those make carries it on. When the device has passed
// them, the ops are settled in their order: each learns whether it failed.
//
// Belongs to the device's executor thread.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "server/backend.h"

namespace kernelbox::server {

class DataFault {
 public:
  // The fault that one op's kernels may find. It starts as a copy of `guard`'s word, so whoever
  // reads only this op's word learns of both; `guard` may be null.
  static absl::StatusOr<std::shared_ptr<DataFault>> ForOp(DeviceBackend& backend, Stream stream,
                                                          std::shared_ptr<DataFault> guard);
  // Either of two; if one of them is null or settled without a fault, the other.
  static absl::StatusOr<std::shared_ptr<DataFault>> Either(DeviceBackend& backend, Stream stream,
                                                           std::shared_ptr<DataFault> a,
                                                           std::shared_ptr<DataFault> b);
  // The device has passed every use of it.
  ~DataFault();
  DataFault(const DataFault&) = delete;
  DataFault& operator=(const DataFault&) = delete;

  const DataError* word() const { return word_.device; }
  DataError* mutable_word() { return word_.device; }

  // Enqueues the word's way to the host, after the op's kernels. `field` and `expected` are what
  // the layer says of it.
  [[nodiscard]] absl::Status Fetch(Stream stream, const char* field, const char* expected);

  // The device has passed the op: is it known that nothing failed, or what? Parents first. `op`
  // names the op for the error; both are ignored for what Either made.
  const absl::Status& Settle(uint64_t op_id, const std::string& op);
  // True once Settle has found no fault.
  bool settled_ok() const { return settled_ && error_.ok(); }

 private:
  DataFault(DeviceBackend& backend, DataErrorWord word) : backend_(backend), word_(word) {}

  DeviceBackend& backend_;
  const DataErrorWord word_;
  std::shared_ptr<DataFault> a_;
  std::shared_ptr<DataFault> b_;
  bool of_op_ = false;
  bool settled_ = false;
  std::string field_;
  std::string expected_;
  absl::Status error_;
};

}  // namespace kernelbox::server

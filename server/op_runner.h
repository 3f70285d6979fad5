// Runs one op on a session: handles to tensors, message to arguments, shapes, memory, launch; and
// settles it when the device has passed it.
//
// Belongs to the device's executor thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "kernelbox/v1/layers.pb.h"
#include "kernelbox/v1/service.pb.h"
#include "server/backend.h"
#include "server/binder.h"
#include "server/data_fault.h"
#include "server/session.h"

namespace kernelbox::server {

struct OpOutput {
  const char* field = nullptr;
  uint64_t handle = 0;
  std::shared_ptr<StoredTensor> tensor;
};

// What became of an op.
struct OpOutcome {
  uint64_t op_id = 0;
  const OpPlan* plan = nullptr;  // null if the op had no kind
  absl::Status status;
  const char* kernel = nullptr;  // null: the layer has only one
  // Filled if they were asked for or the op is unsettled.
  absl::InlinedVector<OpOutput, 2> outputs;
  // What may still turn out to have failed: an input's op, this op.
  std::shared_ptr<DataFault> guard;
  std::shared_ptr<DataFault> fault;

  bool unsettled() const { return guard != nullptr || fault != nullptr; }
};

struct OpOptions {
  // Give outputs without a handle one of the server's.
  bool assign_handles = false;
  bool want_outputs = false;
};

class OpRunner {
 public:
  OpRunner(const Binder& binder, DeviceBackend& backend, std::string backend_name);
  ~OpRunner();

  // Runs the op, or enqueues it on the device. If it fails, its status is kept under those of its
  // output handles that were free, and the session's failure log has it. Tensors that it would
  // have updated in place are then unchanged.
  OpOutcome Run(SessionState& session, const v1::Op& op, const OpOptions& options);

  // The device has passed the op: fills in its status if it turned out to have failed. To be
  // called in the ops' order for each that is unsettled.
  void Settle(SessionState& session, OpOutcome& outcome);

  // The wire's form.
  void Fill(const OpOutcome& outcome, v1::OpResult& result) const;

  DeviceBackend& backend() { return backend_; }

 private:
  struct Call;

  [[nodiscard]] absl::Status Execute(Call& call);
  [[nodiscard]] absl::Status ResolveOutputs(Call& call, bool assign_handles);
  [[nodiscard]] absl::Status ResolveInputs(Call& call);
  [[nodiscard]] absl::Status ResolveInput(Call& call, const FieldPlan& field, uint64_t handle,
                                          bool writes, Tensor& place);
  [[nodiscard]] absl::Status CheckFloat64(const Call& call) const;
  [[nodiscard]] absl::Status AllocateOutputs(Call& call);
  [[nodiscard]] absl::Status CopyTensorsBeingRead(Call& call);
  [[nodiscard]] absl::Status Launch(Call& call);
  void LogFailure(SessionState& session, const OpOutcome& outcome, bool inherited);

  const Binder& binder_;
  DeviceBackend& backend_;
  const std::string backend_name_;

  // Reused from op to op.
  struct FreeArgs {
    void operator()(void* args) const;
  };
  std::unique_ptr<void, FreeArgs> args_;
  std::vector<Tensor> list_items_;
};

// Fills the wire's form of a tensor's dtype, shape and layout.
void FillSpec(const Tensor& tensor, v1::TensorSpec& spec);

// The bytes of a tensor of this dtype and shape. SIZE_OVERFLOW if they do not fit 63 bits.
absl::StatusOr<size_t> CheckedSizeBytes(const char* field, const Tensor& tensor);

}  // namespace kernelbox::server

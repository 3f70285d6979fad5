#include "server/op_runner.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/error.h"

namespace kernelbox::server {
namespace {

using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr std::align_val_t kArgsAlignment{64};

}  // namespace

// One op on its way.
struct OpRunner::Call {
  SessionState& session;
  const Message& message;
  const OpPlan& plan;
  char* args;
  OpOutcome& outcome;
  // Marks tensors as used by this op.
  const uint64_t stamp;

  // The tensors that the op may change, with their places in the arguments.
  struct InOut {
    StoredTensor* stored;
    Tensor* place;
  };
  absl::InlinedVector<InOut, 8> in_outs;
  // The tensors to make, with their places in the arguments.
  struct Output {
    const FieldPlan* field;
    uint64_t handle;
    Tensor* place;
    std::shared_ptr<StoredTensor> stored;
  };
  absl::InlinedVector<Output, 4> outputs;
  size_t list_items_used = 0;
  bool inherited = false;  // the failure is that of an input
  bool uses_float64 = false;

  Tensor& TensorAt(const FieldPlan& field) const {
    return *reinterpret_cast<Tensor*>(args + field.offset);
  }
};

void OpRunner::FreeArgs::operator()(void* args) const { ::operator delete(args, kArgsAlignment); }

OpRunner::OpRunner(const Binder& binder, DeviceBackend& backend, std::string backend_name)
    : binder_(binder),
      backend_(backend),
      backend_name_(std::move(backend_name)),
      args_(::operator new(std::max<size_t>(binder.max_args_bytes(), 1), kArgsAlignment)) {}

OpRunner::~OpRunner() = default;

OpOutcome OpRunner::Run(SessionState& session, const v1::Op& op, const OpOptions& options) {
  OpOutcome outcome;
  const uint64_t number = ++session.ops;
  // The server's own numbers are of another range than a client is likely to use.
  outcome.op_id = op.id() != 0 ? op.id() : kFirstServerHandle + number;
  outcome.plan = binder_.Find(op);
  if (outcome.plan == nullptr) {
    outcome.status =
        WithOp(MakeError(v1::ERROR_REASON_MISSING_FIELD, "the op has no kind", {{"field", "kind"}}),
               outcome.op_id, "op");
    LogFailure(session, outcome, false);
    return outcome;
  }
  const OpPlan& plan = *outcome.plan;
  Call call{session, op.GetReflection()->GetMessage(op, plan.member),
            plan,    static_cast<char*>(args_.get()),
            outcome, number,
            {},      {}};
  absl::Status status = ResolveOutputs(call, options.assign_handles);
  if (status.ok()) status = Execute(call);

  if (status.ok()) {
    const bool keep = options.want_outputs || outcome.unsettled();
    for (Call::Output& output : call.outputs) {
      if (keep) outcome.outputs.push_back({output.field->name, output.handle, output.stored});
      output.stored->fault = outcome.fault != nullptr ? outcome.fault : outcome.guard;
      session.tensors.Insert(output.handle, std::move(output.stored));
    }
    return outcome;
  }
  outcome.status = call.inherited ? status : WithOp(status, outcome.op_id, plan.name);
  for (const Call::Output& output : call.outputs) {
    auto failed = std::make_shared<StoredTensor>();
    failed->state = StoredTensor::State::kFailed;
    failed->error = outcome.status;
    session.tensors.Insert(output.handle, std::move(failed));
  }
  LogFailure(session, outcome, call.inherited);
  return outcome;
}

absl::Status OpRunner::Execute(Call& call) {
  KB_RETURN_IF_NOT_OK(ResolveInputs(call));
  KB_RETURN_IF_NOT_OK(Binder::BindAttributes(call.plan, call.message, call.args));
  const Layer& layer = *call.plan.layer;
  if (kernelbox::Status status = layer.infer(call.args); !status.ok()) return FromKernel(status);
  KB_RETURN_IF_NOT_OK(CheckFloat64(call));
  KB_RETURN_IF_NOT_OK(AllocateOutputs(call));
  KB_RETURN_IF_NOT_OK(CopyTensorsBeingRead(call));
  return Launch(call);
}

// Collects the handles that the op may fill, all of them even if one is at fault, so that its
// failure can be kept under the others. The arguments are fresh after this.
absl::Status OpRunner::ResolveOutputs(Call& call, bool assign_handles) {
  call.plan.layer->construct(call.args);
  const Reflection& reflection = *call.message.GetReflection();
  absl::Status status;
  for (const FieldPlan& field : call.plan.outputs) {
    uint64_t handle = reflection.GetUInt64(call.message, field.descriptor);
    if (handle == 0) {
      if (assign_handles) {
        handle = call.session.tensors.AssignHandle();
      } else if (field.optional) {
        continue;
      } else {
        if (status.ok()) status = ZeroHandle(field.name);
        continue;
      }
    } else if (absl::Status free =
                   call.session.tensors.CheckFree(handle, field.name, call.outputs.size());
               !free.ok()) {
      if (status.ok()) status = std::move(free);
      continue;
    }
    const bool twice =
        std::any_of(call.outputs.begin(), call.outputs.end(),
                    [&](const Call::Output& other) { return other.handle == handle; });
    if (twice) {
      if (status.ok()) {
        status = MakeError(v1::ERROR_REASON_DUPLICATE_HANDLE,
                           absl::StrCat(field.name, ": handle ", handle,
                                        " is that of another output of the same op"),
                           {{"field", field.name}, {"handle", absl::StrCat(handle)}});
      }
      continue;
    }
    Tensor& place = call.TensorAt(field);
    place.present = true;
    call.outputs.push_back({&field, handle, &place, nullptr});
  }
  return status;
}

absl::Status OpRunner::ResolveInputs(Call& call) {
  const Reflection& reflection = *call.message.GetReflection();
  // Lists first need their places: pointers to them must last until the launch.
  size_t items = 0;
  for (const auto* fields : {&call.plan.inputs, &call.plan.in_outs}) {
    for (const FieldPlan& field : *fields) {
      if (field.list)
        items += static_cast<size_t>(RepeatedOf<uint64_t>(call.message, field).size());
    }
  }
  if (list_items_.size() < items) list_items_.resize(items);

  for (const auto* fields : {&call.plan.inputs, &call.plan.in_outs}) {
    const bool writes = fields == &call.plan.in_outs;
    for (const FieldPlan& field : *fields) {
      if (!field.list) {
        const uint64_t handle = reflection.GetUInt64(call.message, field.descriptor);
        if (handle == 0 && field.optional) continue;
        KB_RETURN_IF_NOT_OK(ResolveInput(call, field, handle, writes, call.TensorAt(field)));
        continue;
      }
      const auto& handles = RepeatedOf<uint64_t>(call.message, field);
      auto& list = *reinterpret_cast<TensorList*>(call.args + field.offset);
      list.items = list_items_.data() + call.list_items_used;
      list.count = handles.size();
      call.list_items_used += static_cast<size_t>(handles.size());
      for (int i = 0; i < handles.size(); ++i) {
        absl::Status status = ResolveInput(call, field, handles[i], writes, list.items[i]);
        if (status.ok() || call.inherited) {
          KB_RETURN_IF_NOT_OK(status);
          continue;
        }
        // Say which element: the same error with "field[i]".
        FieldPlan element = field;
        const std::string name = absl::StrCat(field.name, "[", i, "]");
        element.name = name.c_str();
        return ResolveInput(call, element, handles[i], writes, list.items[i]);
      }
    }
  }
  return absl::OkStatus();
}

absl::Status OpRunner::ResolveInput(Call& call, const FieldPlan& field, uint64_t handle,
                                    bool writes, Tensor& place) {
  StoredTensor* stored = call.session.tensors.Find(handle);
  if (stored == nullptr || stored->state != StoredTensor::State::kReady) {
    call.inherited = stored != nullptr && stored->state == StoredTensor::State::kFailed;
    return CheckUsable(stored, field.name, handle);
  }
  // The same tensor twice is fine only if the op just reads it.
  if (stored->last_op == call.stamp && (writes || stored->last_op_writes)) {
    return FieldError(v1::ERROR_REASON_INVALID_ATTRIBUTE, field.name,
                      "a tensor that the op uses only once, since it updates it",
                      absl::StrCat("handle ", handle, " twice"));
  }
  stored->last_op = call.stamp;
  stored->last_op_writes = writes;
  if (stored->fault != nullptr) {
    if (stored->fault->settled_ok()) {
      stored->fault.reset();
    } else {
      absl::StatusOr<std::shared_ptr<DataFault>> guard = DataFault::Either(
          backend_, call.session.stream, std::move(call.outcome.guard), stored->fault);
      if (!guard.ok()) return guard.status();
      call.outcome.guard = *std::move(guard);
    }
  }
  place = stored->tensor;
  place.present = true;
  if (place.dtype == DType::kFloat64) call.uses_float64 = true;
  if (writes) call.in_outs.push_back({stored, &place});
  return absl::OkStatus();
}

absl::Status OpRunner::CheckFloat64(const Call& call) const {
  const Layer& layer = *call.plan.layer;
  if (backend_.FunctionOf(layer) == nullptr) {
    return FieldError(v1::ERROR_REASON_UNSUPPORTED, "kind",
                      absl::StrCat("an op that backend ", backend_name_, " has a kernel for"),
                      call.plan.name);
  }
  if (!backend_.asynchronous() || layer.float64_on_cuda) return absl::OkStatus();
  const auto refuse = [](const char* field) {
    return FieldError(v1::ERROR_REASON_UNSUPPORTED, field,
                      "float32, float16 or bfloat16 on this backend", "float64");
  };
  if (call.uses_float64) {
    for (const auto* fields : {&call.plan.inputs, &call.plan.in_outs}) {
      for (const FieldPlan& field : *fields) {
        if (field.list) {
          const auto& list = *reinterpret_cast<TensorList*>(call.args + field.offset);
          for (int64_t i = 0; i < list.count; ++i) {
            if (list[i].dtype == DType::kFloat64) {
              return refuse(absl::StrCat(field.name, "[", i, "]").c_str());
            }
          }
        } else if (const Tensor& tensor = call.TensorAt(field);
                   tensor.present && tensor.dtype == DType::kFloat64) {
          return refuse(field.name);
        }
      }
    }
  }
  for (const Call::Output& output : call.outputs) {
    if (output.place->dtype == DType::kFloat64) return refuse(output.field->name);
  }
  return absl::OkStatus();
}

absl::Status OpRunner::AllocateOutputs(Call& call) {
  for (Call::Output& output : call.outputs) {
    absl::StatusOr<size_t> bytes = CheckedSizeBytes(output.field->name, *output.place);
    if (!bytes.ok()) return bytes.status();
    absl::StatusOr<std::shared_ptr<Memory>> memory = call.session.arena.Allocate(*bytes);
    if (!memory.ok()) return memory.status();
    output.stored = std::make_shared<StoredTensor>();
    output.place->data = *memory != nullptr ? (*memory)->data() : nullptr;
    output.stored->tensor = *output.place;
    output.stored->memory = *std::move(memory);
  }
  return absl::OkStatus();
}

// A download sees the tensor as it was at its turn: what the op changes is moved to a copy.
absl::Status OpRunner::CopyTensorsBeingRead(Call& call) {
  for (const Call::InOut& in_out : call.in_outs) {
    StoredTensor& stored = *in_out.stored;
    if (stored.memory == nullptr || stored.memory->readers == 0) continue;
    const size_t bytes = stored.tensor.SizeBytes();
    absl::StatusOr<std::shared_ptr<Memory>> copy = call.session.arena.Allocate(bytes);
    if (!copy.ok()) return copy.status();
    KB_RETURN_IF_NOT_OK(
        backend_.CopyWithin(call.session.stream, (*copy)->data(), stored.tensor.data, bytes));
    stored.memory = *std::move(copy);
    stored.tensor.data = stored.memory->data();
    in_out.place->data = stored.tensor.data;
  }
  return absl::OkStatus();
}

absl::Status OpRunner::Launch(Call& call) {
  const Layer& layer = *call.plan.layer;
  const Stream stream = call.session.stream;
  Context context;
  context.device = &backend_.device();
  context.stream = stream;
  std::shared_ptr<Memory> workspace;
  if (layer.workspace != nullptr) {
    context.workspace_bytes = layer.workspace(call.args, backend_.device());
    absl::StatusOr<std::shared_ptr<Memory>> memory =
        call.session.arena.Allocate(context.workspace_bytes);
    if (!memory.ok()) return memory.status();
    workspace = *std::move(memory);
    context.workspace = workspace != nullptr ? workspace->data() : nullptr;
  }
  OpOutcome& outcome = call.outcome;
  if (outcome.guard != nullptr) context.guard = outcome.guard->word();
  if (layer.has_data_errors && backend_.asynchronous()) {
    absl::StatusOr<std::shared_ptr<DataFault>> fault =
        DataFault::ForOp(backend_, stream, outcome.guard);
    if (!fault.ok()) return fault.status();
    outcome.fault = *std::move(fault);
    context.data_error = outcome.fault->mutable_word();
  }
  const kernelbox::Status status = backend_.FunctionOf(layer)(call.args, context);
  if (!status.ok()) return FromKernel(status);
  outcome.kernel = context.kernel;
  if (outcome.fault != nullptr) {
    return outcome.fault->Fetch(stream, context.data_error_field, context.data_error_expected);
  }
  return absl::OkStatus();
}

void OpRunner::Settle(SessionState& session, OpOutcome& outcome) {
  absl::Status status;
  bool inherited = false;
  if (outcome.guard != nullptr) {
    status = outcome.guard->Settle(0, "");
    inherited = !status.ok();
  }
  if (outcome.fault != nullptr) {
    const absl::Status& own = outcome.fault->Settle(outcome.op_id, outcome.plan->name);
    if (status.ok()) status = own;
  }
  outcome.guard.reset();
  outcome.fault.reset();
  if (status.ok() || !outcome.status.ok()) return;
  outcome.status = status;
  for (OpOutput& output : outcome.outputs) {
    StoredTensor& stored = *output.tensor;
    stored.state = StoredTensor::State::kFailed;
    stored.error = status;
    stored.memory.reset();
    stored.tensor.data = nullptr;
    stored.fault.reset();
  }
  LogFailure(session, outcome, inherited);
}

void OpRunner::LogFailure(SessionState& session, const OpOutcome& outcome, bool inherited) {
  ++session.failures.count;
  if (!inherited && session.failures.first.size() < FailureLog::kMaxListed) {
    session.failures.first.push_back(outcome.status);
  }
}

void OpRunner::Fill(const OpOutcome& outcome, v1::OpResult& result) const {
  result.set_op_id(outcome.op_id);
  if (!outcome.status.ok()) {
    *result.mutable_error() = ToProto(outcome.status);
    return;
  }
  for (const OpOutput& output : outcome.outputs) {
    v1::OutputTensor& tensor = *result.add_outputs();
    tensor.set_field(output.field);
    tensor.set_handle(output.handle);
    FillSpec(output.tensor->tensor, *tensor.mutable_spec());
  }
  result.set_kernel(outcome.kernel != nullptr
                        ? outcome.kernel
                        : absl::StrCat(outcome.plan->name, "_", backend_name_));
}

void FillSpec(const Tensor& tensor, v1::TensorSpec& spec) {
  spec.set_dtype(static_cast<v1::DType>(tensor.dtype));
  for (int i = 0; i < tensor.rank; ++i) spec.add_shape(tensor.shape[i]);
  spec.set_layout(static_cast<v1::Layout>(tensor.layout));
}

absl::StatusOr<size_t> CheckedSizeBytes(const char* field, const Tensor& tensor) {
  int64_t bytes = static_cast<int64_t>(SizeOf(tensor.dtype));
  bool overflow = false;
  bool empty = false;
  for (int i = 0; i < tensor.rank; ++i) {
    if (tensor.shape[i] == 0) {
      empty = true;  // and the others must fit all the same: layers multiply them
    } else {
      overflow |= __builtin_mul_overflow(bytes, tensor.shape[i], &bytes);
    }
  }
  if (overflow) {
    std::string shape;
    for (int i = 0; i < tensor.rank; ++i) {
      absl::StrAppend(&shape, i == 0 ? "" : ", ", tensor.shape[i]);
    }
    return MakeError(v1::ERROR_REASON_SIZE_OVERFLOW,
                     absl::StrCat(field, " is too large: [", shape, "] of ", NameOf(tensor.dtype),
                                  " has more than 2^63 - 1 bytes"),
                     {{"field", field}, {"given", absl::StrCat("[", shape, "]")}});
  }
  return empty ? size_t{0} : static_cast<size_t>(bytes);
}

}  // namespace kernelbox::server

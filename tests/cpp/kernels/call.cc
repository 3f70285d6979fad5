#include "call.h"

#include <gtest/gtest.h>

#include <cinttypes>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>

#include "device.h"

namespace kernelbox::testing {
namespace {

const Layer* FindLayer(const std::string& name) {
  for (const Layer* layer = Layer::Head(); layer != nullptr; layer = layer->next) {
    if (name == layer->name) return layer;
  }
  throw std::runtime_error("no layer " + name);
}

bool IsOutput(FieldKind kind) { return kind == FieldKind::kOut || kind == FieldKind::kOptionalOut; }

bool IsList(FieldKind kind) {
  return kind == FieldKind::kInList || kind == FieldKind::kOptionalInList ||
         kind == FieldKind::kInOutList || kind == FieldKind::kOptionalInOutList;
}

bool IsInOut(FieldKind kind) {
  return kind == FieldKind::kInOut || kind == FieldKind::kOptionalInOut ||
         kind == FieldKind::kInOutList || kind == FieldKind::kOptionalInOutList;
}

bool IsTensor(FieldKind kind) { return kind < FieldKind::kDouble; }

Tensor Describe(const Array& array) {
  Tensor tensor;
  tensor.Set(array.dtype, array.shape.data(), static_cast<int>(array.shape.size()));
  tensor.layout = array.layout;
  tensor.present = true;
  return tensor;
}

template <class T>
void SetOptional(void* place, const LayerCall::Attribute& value) {
  auto& optional = *static_cast<Optional<T>*>(place);
  optional.value = std::get<T>(value);
  optional.present = true;
}

void SetAttribute(FieldKind kind, void* place, const LayerCall::Attribute& value) {
  switch (kind) {
    case FieldKind::kDouble:
      *static_cast<double*>(place) = std::get<double>(value);
      return;
    case FieldKind::kInt:
      *static_cast<int64_t*>(place) = std::get<int64_t>(value);
      return;
    case FieldKind::kBool:
      *static_cast<bool*>(place) = std::get<bool>(value);
      return;
    case FieldKind::kEnum:
      *static_cast<int32_t*>(place) = static_cast<int32_t>(std::get<int64_t>(value));
      return;
    case FieldKind::kOptionalDouble:
      return SetOptional<double>(place, value);
    case FieldKind::kOptionalInt:
      return SetOptional<int64_t>(place, value);
    default: {
      const auto& items = std::get<std::vector<int64_t>>(value);
      *static_cast<IntList*>(place) = {items.data(), static_cast<int64_t>(items.size())};
    }
  }
}

}  // namespace

// An argument struct and what its fields point to.
struct LayerCall::Bound {
  explicit Bound(const LayerCall& call)
      : layer(*call.layer_), args(layer.args_bytes / sizeof(std::max_align_t) + 1) {
    layer.construct(args.data());
    for (int i = 0; i < layer.field_count; ++i) {
      const Field& field = layer.fields[i];
      void* place = Place(field);
      const auto given = call.tensors_.find(field.name);
      const auto attribute = call.attributes_.find(field.name);
      if (IsList(field.kind)) {
        auto& items = lists[field.name];
        if (given != call.tensors_.end()) {
          for (const Array& array : given->second) items.push_back(Describe(array));
        }
        *static_cast<TensorList*>(place) = {items.data(), static_cast<int64_t>(items.size())};
      } else if (IsOutput(field.kind)) {
        static_cast<Tensor*>(place)->present =
            field.kind == FieldKind::kOut || call.asked_.count(field.name) > 0;
      } else if (IsTensor(field.kind)) {
        if (given != call.tensors_.end()) {
          *static_cast<Tensor*>(place) = Describe(given->second.at(0));
        }
      } else if (attribute != call.attributes_.end()) {
        SetAttribute(field.kind, place, attribute->second);
      }
    }
  }

  void* Place(const Field& field) { return reinterpret_cast<char*>(args.data()) + field.offset; }

  // The tensors of a field: several for a list, none for one that is absent.
  std::vector<Tensor*> Tensors(const Field& field) {
    std::vector<Tensor*> result;
    if (IsList(field.kind)) {
      for (Tensor& item : lists[field.name]) result.push_back(&item);
    } else if (static_cast<Tensor*>(Place(field))->present) {
      result.push_back(static_cast<Tensor*>(Place(field)));
    }
    return result;
  }

  const Layer& layer;
  std::vector<std::max_align_t> args;
  std::map<std::string, std::vector<Tensor>> lists;
};

LayerCall::LayerCall(const std::string& layer) : layer_(FindLayer(layer)) {}

LayerCall& LayerCall::With(const std::string& field, Array value) {
  tensors_[field] = {std::move(value)};
  return *this;
}

LayerCall& LayerCall::With(const std::string& field, std::vector<Array> values) {
  tensors_[field] = std::move(values);
  return *this;
}

LayerCall& LayerCall::Without(const std::string& field) {
  tensors_.erase(field);
  asked_.erase(field);
  return *this;
}

LayerCall& LayerCall::Ask(const std::string& field) {
  asked_[field] = true;
  return *this;
}

LayerCall& LayerCall::Set(const std::string& field, double value) {
  attributes_[field] = value;
  return *this;
}

LayerCall& LayerCall::Set(const std::string& field, bool value) {
  attributes_[field] = value;
  return *this;
}

LayerCall& LayerCall::Set(const std::string& field, std::vector<int64_t> values) {
  attributes_[field] = std::move(values);
  return *this;
}

LayerCall& LayerCall::Misaligned(bool misaligned) {
  misaligned_ = misaligned;
  return *this;
}

LayerCall& LayerCall::Guarded(bool guarded) {
  guarded_ = guarded;
  return *this;
}

Status LayerCall::Infer() const {
  Bound bound(*this);
  return layer_->infer(bound.args.data());
}

Result LayerCall::RunOnce(Backend backend, uint8_t garbage) const {
  Result result;
  Bound bound(*this);
  result.status = layer_->infer(bound.args.data());
  if (!result.status.ok()) return result;

  std::map<std::string, std::vector<Block>> blocks;
  for (int i = 0; i < layer_->field_count; ++i) {
    const Field& field = layer_->fields[i];
    if (!IsTensor(field.kind)) continue;
    const std::vector<Tensor*> tensors = bound.Tensors(field);
    for (size_t k = 0; k < tensors.size(); ++k) {
      const size_t shift = misaligned_ ? SizeOf(tensors[k]->dtype) : 0;
      Block block(backend, tensors[k]->SizeBytes(), shift, garbage);
      if (!IsOutput(field.kind)) block.Write(tensors_.at(field.name)[k].bytes.data());
      tensors[k]->data = block.data();
      blocks[field.name].push_back(std::move(block));
    }
  }

  TestDevice& device = TestDevice::Of(backend);
  Context context;
  context.device = &device.device();
  context.stream = device.stream();
  context.workspace_bytes =
      layer_->workspace == nullptr ? 0 : layer_->workspace(bound.args.data(), device.device());
  const Block workspace(backend, context.workspace_bytes, 0, garbage);
  context.workspace = workspace.data();
  DataError fault;
  Block fault_block(backend, sizeof fault, 0, 0);
  fault_block.Write(&fault);
  if (layer_->has_data_errors) context.data_error = static_cast<DataError*>(fault_block.data());
  DataError guard;
  guard.found = guarded_ ? 1 : 0;
  Block guard_block(backend, sizeof guard, 0, 0);
  guard_block.Write(&guard);
  context.guard = static_cast<const DataError*>(guard_block.data());

  const auto function = backend == Backend::kCpu ? layer_->cpu : layer_->cuda;
  result.status = function(bound.args.data(), context);
  const std::string finished = device.Finish();
  EXPECT_EQ(finished, "") << layer_->name;
  if (context.kernel != nullptr) result.kernel = context.kernel;
  if (!result.status.ok()) return result;

  std::memcpy(&fault, fault_block.Read().data(), sizeof fault);
  if (fault.found != 0) {
    char given[Status::kTextBytes];
    snprintf(given, sizeof given, "%" PRId64 " at element %" PRId64, fault.value, fault.index);
    result.status = Status::Error(Reason::kValueOutOfRange, context.data_error_field,
                                  context.data_error_expected, given);
  }
  EXPECT_TRUE(workspace.GuardsIntact()) << layer_->name << ": wrote beside its workspace";
  for (int i = 0; i < layer_->field_count; ++i) {
    const Field& field = layer_->fields[i];
    if (!IsTensor(field.kind)) continue;
    const std::vector<Tensor*> tensors = bound.Tensors(field);
    for (size_t k = 0; k < tensors.size(); ++k) {
      const Block& block = blocks[field.name][k];
      EXPECT_TRUE(block.GuardsIntact()) << layer_->name << ": wrote beside " << field.name;
      Array after;
      after.dtype = tensors[k]->dtype;
      after.shape.assign(tensors[k]->shape, tensors[k]->shape + tensors[k]->rank);
      after.layout = tensors[k]->layout;
      after.bytes = block.Read();
      if (IsOutput(field.kind) || IsInOut(field.kind)) {
        result.fields[field.name].push_back(std::move(after));
      } else {
        EXPECT_EQ(after.bytes, tensors_.at(field.name)[k].bytes)
            << layer_->name << ": changed its input " << field.name;
      }
    }
  }
  return result;
}

Result LayerCall::Run(Backend backend) const {
  Result first = RunOnce(backend, 0xff);  // NaN in every floating dtype
  const Result second = RunOnce(backend, 0x3c);
  for (const auto& [name, arrays] : first.fields) {
    for (size_t i = 0; i < arrays.size(); ++i) {
      EXPECT_EQ(arrays[i].bytes, second.fields.at(name)[i].bytes)
          << layer_->name << ": two runs differ in " << name << '[' << i << ']';
    }
  }
  return first;
}

LayerCall BackwardOf(const LayerCall& call, const Result& forward,
                     const std::map<std::string, Array>& gradients) {
  LayerCall backward(std::string(call.layer().name) + "Backward");
  for (int i = 0; i < backward.layer().field_count; ++i) {
    const Field& field = backward.layer().fields[i];
    const std::string name = field.name;
    if (IsOutput(field.kind)) {
      if (call.tensors().count(name.substr(2)) > 0) backward.Ask(name);  // after "d_"
    } else if (gradients.count(name) > 0) {
      backward.With(name, gradients.at(name));
    } else if (call.tensors().count(name) > 0) {
      backward.With(name, call.tensors().at(name));
    } else if (forward.Has(name)) {
      backward.With(name, forward[name]);
    } else if (call.attributes().count(name) > 0) {
      std::visit([&](const auto& value) { backward.Set(name, value); }, call.attributes().at(name));
    }
  }
  return backward;
}

}  // namespace kernelbox::testing

// How a layer file describes itself to the server.
//
// A layer file defines, for its argument struct A (named as its message, fields named as the
// message's):
//   Status Infer(A& args)                     checks dtypes, shapes and attributes; gives each
//                                             output that is present its dtype and shape
//   size_t Workspace(const A&, const Device&) optional: bytes of scratch memory it wants
//   Status Cpu(const A&, Context&)            computes; returns when done
//   Status Cuda(const A&, Context&)           enqueues on context.stream; only with nvcc
// and registers them with KB_LAYER(A, every field). Two optional constants in A say more:
//   static constexpr bool kHasDataErrors = true;   it can find faults in its data (such a layer
//                                                  has no in-out tensors)
//   static constexpr bool kFloat64OnCuda = true;   Cuda takes float64 tensors too
// None of the functions throws or exits; each can be called from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>

#include "kernels/status.h"
#include "kernels/tensor.h"

#if defined(__CUDACC__)
#include <cuda_runtime.h>
#endif

namespace kernelbox {

#if defined(__CUDACC__)
using Stream = cudaStream_t;
#else
using Stream = void*;
#endif

class BlasLibrary;  // kernels/gemm.h

// What a launch needs to know of the device. Filled once at start.
struct Device {
  int index = 0;
  int multiprocessors = 0;             // 0 on cpu
  int compute_capability = 0;          // 90 for 9.0; 0 on cpu
  size_t shared_memory_per_block = 0;  // bytes, with opt-in
  BlasLibrary* blas = nullptr;         // null on cpu
};

// A fault that only the data shows, in device memory, all zero before the launch. Whichever
// thread finds a fault first fills it.
struct DataError {
  uint32_t found = 0;
  uint32_t unused = 0;
  int64_t index = 0;  // which element of the field, in C order
  int64_t value = 0;  // its value
};

// One launch's surroundings.
struct Context {
  const Device* device = nullptr;
  Stream stream = nullptr;  // null on cpu
  // Scratch memory of the size Workspace asked for, aligned to 256 bytes, not initialised.
  void* workspace = nullptr;
  size_t workspace_bytes = 0;
  // cuda: where a layer with kHasDataErrors reports a fault in its data. (Cpu returns
  // Reason::kValueOutOfRange instead.)
  DataError* data_error = nullptr;
  // cuda: if not null and found != 0 when the kernel runs, an input's own op has failed. A layer
  // must then leave its in-out tensors as they are; whatever it writes to outputs is discarded.
  // (On cpu such an op is never started.)
  const DataError* guard = nullptr;

  // Set by the layer: the kernel it chose, a string literal. Stays null for "<layer>_<backend>".
  const char* kernel = nullptr;
  // Set by a cuda layer with kHasDataErrors: what the field should have held.
  char data_error_field[48] = "";
  char data_error_expected[Status::kTextBytes] = "";
};

enum class FieldKind : uint8_t {
  kIn,
  kOptionalIn,
  kOut,
  kOptionalOut,
  kInOut,
  kOptionalInOut,
  kInList,
  kOptionalInList,
  kInOutList,
  kOptionalInOutList,
  kDouble,
  kInt,
  kBool,
  kEnum,
  kOptionalDouble,
  kOptionalInt,
  kIntList,
};

template <class T>
struct FieldKindOf {
  static_assert(sizeof(T) == 4, "an enum attribute is an enum class : int32_t");
  static constexpr FieldKind kValue = FieldKind::kEnum;
};
#define KB_FIELD_KIND(type, kind)                        \
  template <>                                            \
  struct FieldKindOf<type> {                             \
    static constexpr FieldKind kValue = FieldKind::kind; \
  }
KB_FIELD_KIND(In, kIn);
KB_FIELD_KIND(OptionalIn, kOptionalIn);
KB_FIELD_KIND(Out, kOut);
KB_FIELD_KIND(OptionalOut, kOptionalOut);
KB_FIELD_KIND(InOut, kInOut);
KB_FIELD_KIND(OptionalInOut, kOptionalInOut);
KB_FIELD_KIND(InList, kInList);
KB_FIELD_KIND(OptionalInList, kOptionalInList);
KB_FIELD_KIND(InOutList, kInOutList);
KB_FIELD_KIND(OptionalInOutList, kOptionalInOutList);
KB_FIELD_KIND(double, kDouble);
KB_FIELD_KIND(int64_t, kInt);
KB_FIELD_KIND(bool, kBool);
KB_FIELD_KIND(Optional<double>, kOptionalDouble);
KB_FIELD_KIND(Optional<int64_t>, kOptionalInt);
KB_FIELD_KIND(IntList, kIntList);
#undef KB_FIELD_KIND

struct Field {
  const char* name;
  FieldKind kind;
  size_t offset;  // in the argument struct
};

// One registered layer direction. The list is filled before main() and constant after.
struct Layer {
  const char* name;  // the message's
  const Field* fields;
  int field_count;
  size_t args_bytes;
  void (*construct)(void* args);  // in place; argument structs are trivially destructible
  Status (*infer)(void* args);
  size_t (*workspace)(const void* args, const Device& device);  // null: needs none
  Status (*cpu)(const void* args, Context& context);
  Status (*cuda)(const void* args, Context& context);  // null without nvcc
  bool has_data_errors;
  bool float64_on_cuda;  // otherwise the server refuses float64 tensors there
  const Layer* next;

  static const Layer*& Head();
};

namespace internal {

template <class A>
constexpr bool HasDataErrors() {
  if constexpr (requires { A::kHasDataErrors; }) {
    return A::kHasDataErrors;
  } else {
    return false;
  }
}

template <class A>
constexpr bool TakesFloat64OnCuda() {
  if constexpr (requires { A::kFloat64OnCuda; }) {
    return A::kFloat64OnCuda;
  } else {
    return false;
  }
}

struct Registration {
  explicit Registration(Layer& layer) {
    layer.next = Layer::Head();
    Layer::Head() = &layer;
  }
};

}  // namespace internal
}  // namespace kernelbox

// Applies KB_FIELD(A, field) to up to 256 fields.
#define KB_EXPAND(...) KB_EXPAND3(KB_EXPAND3(KB_EXPAND3(KB_EXPAND3(__VA_ARGS__))))
#define KB_EXPAND3(...) KB_EXPAND2(KB_EXPAND2(KB_EXPAND2(KB_EXPAND2(__VA_ARGS__))))
#define KB_EXPAND2(...) KB_EXPAND1(KB_EXPAND1(KB_EXPAND1(KB_EXPAND1(__VA_ARGS__))))
#define KB_EXPAND1(...) __VA_ARGS__
#define KB_PARENTHESES ()
#define KB_FIELD(A, field)                                                           \
  ::kernelbox::Field {                                                               \
    #field, ::kernelbox::FieldKindOf<decltype(A::field)>::kValue, offsetof(A, field) \
  }
#define KB_FIELDS(A, field, ...) \
  KB_FIELD(A, field) __VA_OPT__(, KB_FIELDS_AGAIN KB_PARENTHESES(A, __VA_ARGS__))
#define KB_FIELDS_AGAIN() KB_FIELDS

#if defined(__CUDACC__)
#define KB_CUDA_FUNCTION(A)                             \
  [](const void* args, ::kernelbox::Context& context) { \
    return Cuda(*static_cast<const A*>(args), context); \
  }
#else
#define KB_CUDA_FUNCTION(A) nullptr
#endif

// What KB_LAYER and KB_LAYER_WITH_WORKSPACE below share.
#define KB_REGISTER_LAYER(A, workspace_function, ...)                                          \
  const ::kernelbox::Field kFieldsOf##A[] = {KB_EXPAND(KB_FIELDS(A, __VA_ARGS__))};            \
  ::kernelbox::Layer layer_of_##A = {#A,                                                       \
                                     kFieldsOf##A,                                             \
                                     sizeof(kFieldsOf##A) / sizeof(::kernelbox::Field),        \
                                     sizeof(A),                                                \
                                     [](void* args) { new (args) A(); },                       \
                                     [](void* args) { return Infer(*static_cast<A*>(args)); }, \
                                     workspace_function,                                       \
                                     [](const void* args, ::kernelbox::Context& context) {     \
                                       return Cpu(*static_cast<const A*>(args), context);      \
                                     },                                                        \
                                     KB_CUDA_FUNCTION(A),                                      \
                                     ::kernelbox::internal::HasDataErrors<A>(),                \
                                     ::kernelbox::internal::TakesFloat64OnCuda<A>(),           \
                                     nullptr};                                                 \
  const ::kernelbox::internal::Registration registration_of_##A(layer_of_##A)

// Registers the layer of argument struct A. Name every field.
#define KB_LAYER(A, ...) KB_REGISTER_LAYER(A, nullptr, __VA_ARGS__)

// The same for a file that defines Workspace(const A&, const Device&).
#define KB_LAYER_WITH_WORKSPACE(A, ...)                         \
  KB_REGISTER_LAYER(                                            \
      A,                                                        \
      [](const void* args, const ::kernelbox::Device& device) { \
        return Workspace(*static_cast<const A*>(args), device); \
      },                                                        \
      __VA_ARGS__)

// Calls a layer from the registry by name, the way the server does, on the tested backend.
#pragma once

#include <map>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "array.h"
#include "block.h"
#include "kernels/layer.h"

namespace kernelbox::testing {

// What came back.
struct Result {
  Status status;       // data errors of cuda too, worded as cpu words them
  std::string kernel;  // context.kernel
  std::map<std::string, std::vector<Array>> fields;  // outputs and in-outs, after

  const Array& operator[](const std::string& field) const { return fields.at(field).at(0); }
  bool Has(const std::string& field) const { return fields.count(field) > 0; }
};

class LayerCall {
 public:
  using Attribute = std::variant<double, int64_t, bool, std::vector<int64_t>>;

  // `layer` must be registered.
  explicit LayerCall(const std::string& layer);

  // An input or in-out tensor, or a list of them.
  LayerCall& With(const std::string& field, Array value);
  LayerCall& With(const std::string& field, std::vector<Array> values);
  LayerCall& Without(const std::string& field);
  // Asks for an optional output.
  LayerCall& Ask(const std::string& field);
  LayerCall& Set(const std::string& field, double value);
  LayerCall& Set(const std::string& field, bool value);
  LayerCall& Set(const std::string& field, std::vector<int64_t> values);
  template <class Value>
    requires std::is_integral_v<Value> || std::is_enum_v<Value>
  LayerCall& Set(const std::string& field, Value value) {
    attributes_[field] = static_cast<int64_t>(value);
    return *this;
  }

  // Every tensor starts one element after an aligned address.
  LayerCall& Misaligned(bool misaligned = true);
  // The call runs as if an input's own op had failed (cuda).
  LayerCall& Guarded(bool guarded = true);

  const Layer& layer() const { return *layer_; }
  const std::map<std::string, std::vector<Array>>& tensors() const { return tensors_; }
  const std::map<std::string, Attribute>& attributes() const { return attributes_; }
  // The first of a field's arrays, to change it.
  Array& operator[](const std::string& field) { return tensors_.at(field).at(0); }

  // Infer alone.
  Status Infer() const;
  // Runs the layer twice, on memory with other garbage in it, and fails the test unless both runs
  // give the same bits and neither touched a byte outside its tensors.
  Result Run(Backend backend = TestedBackend()) const;

 private:
  struct Bound;
  Result RunOnce(Backend backend, uint8_t garbage) const;

  const Layer* layer_;
  std::map<std::string, std::vector<Array>> tensors_;
  std::map<std::string, bool> asked_;
  std::map<std::string, Attribute> attributes_;
  bool misaligned_ = false;
  bool guarded_ = false;
};

// The call of <layer>Backward whose fields are the forward's by name: inputs and attributes, the
// outputs that `forward` gave, and `gradients` under "d_<output>". Asks for the gradient
// of every input that the forward has.
LayerCall BackwardOf(const LayerCall& call, const Result& forward,
                     const std::map<std::string, Array>& gradients);

}  // namespace kernelbox::testing

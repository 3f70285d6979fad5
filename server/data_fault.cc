#include "server/data_fault.h"

#include "absl/strings/str_cat.h"
#include "server/error.h"

namespace kernelbox::server {

absl::StatusOr<std::shared_ptr<DataFault>> DataFault::ForOp(DeviceBackend& backend, Stream stream,
                                                            std::shared_ptr<DataFault> guard) {
  absl::StatusOr<DataErrorWord> word = backend.AcquireWord();
  if (!word.ok()) return word.status();
  std::shared_ptr<DataFault> fault(new DataFault(backend, *word));
  fault->of_op_ = true;
  KB_RETURN_IF_NOT_OK(backend.SetWord(stream, *word, guard ? guard->word() : nullptr, nullptr));
  fault->a_ = std::move(guard);
  return fault;
}

absl::StatusOr<std::shared_ptr<DataFault>> DataFault::Either(DeviceBackend& backend, Stream stream,
                                                             std::shared_ptr<DataFault> a,
                                                             std::shared_ptr<DataFault> b) {
  if (a == b || b == nullptr || b->settled_ok()) return a;
  if (a == nullptr || a->settled_ok()) return b;
  absl::StatusOr<DataErrorWord> word = backend.AcquireWord();
  if (!word.ok()) return word.status();
  std::shared_ptr<DataFault> fault(new DataFault(backend, *word));
  KB_RETURN_IF_NOT_OK(backend.SetWord(stream, *word, a->word(), b->word()));
  fault->a_ = std::move(a);
  fault->b_ = std::move(b);
  return fault;
}

DataFault::~DataFault() { backend_.ReleaseWord(word_); }

absl::Status DataFault::Fetch(Stream stream, const char* field, const char* expected) {
  field_ = field;
  expected_ = expected;
  return backend_.FetchWord(stream, word_);
}

const absl::Status& DataFault::Settle(uint64_t op_id, const std::string& op) {
  if (settled_) return error_;
  settled_ = true;
  for (std::shared_ptr<DataFault>* parent : {&a_, &b_}) {
    if (*parent != nullptr && error_.ok()) error_ = (*parent)->Settle(0, "");
    parent->reset();
  }
  if (error_.ok() && of_op_ && word_.host->found != 0) {
    error_ = WithOp(FieldError(v1::ERROR_REASON_VALUE_OUT_OF_RANGE, field_, expected_,
                               absl::StrCat(word_.host->value, " at index ", word_.host->index)),
                    op_id, op);
  }
  return error_;
}

}  // namespace kernelbox::server

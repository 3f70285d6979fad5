// The answers to a session's latest calls that named themselves with a request_id: a repeat gets
// the first one's answer and nothing is done twice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "google/protobuf/message.h"

namespace kernelbox::server {

// What a call answered: an error, or a message (null where the rpc's answer is empty).
struct Answer {
  absl::Status status;
  std::shared_ptr<const google::protobuf::Message> message;
};

// Thread-safe.
class RequestCache {
 public:
  // Gets the first call's answer; or null: the first call was not carried out, and the receiver
  // takes its place.
  using Waiter = std::function<void(const Answer*)>;

  explicit RequestCache(size_t capacity = 1024) : capacity_(capacity) {}

  enum class Turn : uint8_t {
    kFirst,     // the caller does the work and ends with Complete or Abandon
    kAnswered,  // `answer` is the first call's
    kRunning,   // `waiter` will be called, from another thread
  };
  // An empty id is always a first.
  Turn Begin(const std::string& id, Answer& answer, Waiter waiter);
  void Complete(const std::string& id, const Answer& answer);
  // The call had no effect: the next one with this id is a first again.
  void Abandon(const std::string& id);

 private:
  struct Entry {
    bool done = false;
    Answer answer;
    std::vector<Waiter> waiters;
  };

  const size_t capacity_;
  std::mutex mutex_;
  std::unordered_map<std::string, Entry> entries_;
  std::deque<std::string> done_;  // oldest first
};

}  // namespace kernelbox::server

#include "server/session.h"

#include "server/executor.h"

namespace kernelbox::server {
namespace {

// Ids look like "<epoch>-<32 hex digits>": 8 of them tell sessions apart in a log.
std::string TagOf(const std::string& id) {
  const size_t dash = id.rfind('-');
  return id.substr(dash == std::string::npos ? 0 : dash + 1, 8);
}

}  // namespace

Session::Session(SessionOptions options, Executor& executor)
    : options_(std::move(options)),
      tag_(TagOf(options_.id)),
      executor_(executor),
      last_used_(Clock::now().time_since_epoch().count()),
      queue_(options_.max_queued_ops) {}

void Session::BeginCall() { open_calls_.fetch_add(1); }

void Session::EndCall() {
  last_used_.store(Clock::now().time_since_epoch().count());
  open_calls_.fetch_sub(1);
}

bool Session::Expired(Clock::time_point now) const {
  if (open_calls_.load() > 0) return false;
  return now - Clock::time_point(Clock::duration(last_used_.load())) > options_.ttl;
}

}  // namespace kernelbox::server

#include "server/request_cache.h"

namespace kernelbox::server {

RequestCache::Turn RequestCache::Begin(const std::string& id, Answer& answer, Waiter waiter) {
  if (id.empty()) return Turn::kFirst;
  const std::lock_guard lock(mutex_);
  const auto [entry, added] = entries_.try_emplace(id);
  if (added) return Turn::kFirst;
  if (!entry->second.done) {
    entry->second.waiters.push_back(std::move(waiter));
    return Turn::kRunning;
  }
  answer = entry->second.answer;
  return Turn::kAnswered;
}

void RequestCache::Complete(const std::string& id, const Answer& answer) {
  if (id.empty()) return;
  std::vector<Waiter> waiters;
  {
    const std::lock_guard lock(mutex_);
    Entry& entry = entries_[id];
    entry.done = true;
    entry.answer = answer;
    waiters.swap(entry.waiters);
    done_.push_back(id);
    if (done_.size() > capacity_) {
      entries_.erase(done_.front());
      done_.pop_front();
    }
  }
  for (const Waiter& waiter : waiters) waiter(&answer);
}

void RequestCache::Abandon(const std::string& id) {
  if (id.empty()) return;
  Waiter next;
  {
    const std::lock_guard lock(mutex_);
    const auto entry = entries_.find(id);
    if (entry == entries_.end()) return;
    if (entry->second.waiters.empty()) {
      entries_.erase(entry);
      return;
    }
    next = std::move(entry->second.waiters.front());
    entry->second.waiters.erase(entry->second.waiters.begin());
  }
  next(nullptr);
}

}  // namespace kernelbox::server

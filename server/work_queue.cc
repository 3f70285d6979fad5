#include "server/work_queue.h"

namespace kernelbox::server {

Pushed WorkQueue::Push(std::unique_ptr<WorkItem>& item, Admission admission) {
  if (closed_) return Pushed::kClosed;
  const size_t ops = item->ops();
  if (admission != Admission::kAlways) {
    if (ops > limit_) return Pushed::kFull;
    // Ops do not overtake ops that wait.
    if (!HasRoom(ops) || (ops > 0 && !waiting_.empty())) {
      if (admission == Admission::kOrRefuse) return Pushed::kFull;
      waiting_.push_back(std::move(item));
      return Pushed::kWaiting;
    }
  }
  Count(ops);
  items_.push_back(std::move(item));
  return Pushed::kQueued;
}

std::unique_ptr<WorkItem> WorkQueue::Pop() {
  if (items_.empty()) return nullptr;
  std::unique_ptr<WorkItem> item = std::move(items_.front());
  items_.pop_front();
  ++running_;
  return item;
}

void WorkQueue::Release(size_t ops, std::vector<WorkItem*>& admitted) {
  --running_;
  if (ops > 0) {
    ops_ -= ops;
  } else {
    --others_;
  }
  while (!waiting_.empty() && HasRoom(waiting_.front()->ops())) {
    Count(waiting_.front()->ops());
    admitted.push_back(waiting_.front().get());
    items_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
}

std::vector<std::unique_ptr<WorkItem>> WorkQueue::Close() {
  closed_ = true;
  std::vector<std::unique_ptr<WorkItem>> rest;
  for (auto* queue : {&items_, &waiting_}) {
    for (auto& item : *queue) rest.push_back(std::move(item));
    queue->clear();
  }
  return rest;
}

}  // namespace kernelbox::server

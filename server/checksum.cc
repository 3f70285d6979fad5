#include "server/checksum.h"

#include <utility>

namespace kernelbox::server {

void ChecksumQueue::Push(const void* data, size_t bytes, std::shared_ptr<const void> owner) {
  const std::lock_guard lock(mutex_);
  pieces_.push_back({data, bytes, std::move(owner)});
}

void ChecksumQueue::Work() {
  std::unique_lock lock(mutex_);
  if (working_) return;
  working_ = true;
  while (!pieces_.empty()) {
    Piece piece = std::move(pieces_.front());
    pieces_.pop_front();
    lock.unlock();
    checksum_.Add(piece.data, piece.bytes);
    piece.owner.reset();
    lock.lock();
  }
  working_ = false;
  const std::function<void(uint64_t)> done = std::exchange(done_, nullptr);
  lock.unlock();
  if (done != nullptr) done(checksum_.Value());
}

void ChecksumQueue::Finish(std::function<void(uint64_t)> done) {
  {
    const std::lock_guard lock(mutex_);
    done_ = std::move(done);
  }
  Work();
}

}  // namespace kernelbox::server

#include "tests/cpp/server/fake_device.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>
#include <unordered_map>
#include <utility>

#include "server/error.h"

namespace kernelbox::server {
namespace {

constexpr size_t kMaxLayers = 256;

// Runs tasks in order on its own thread.
class FakeStream {
 public:
  FakeStream() : thread_([this] { Loop(); }) {}
  ~FakeStream() {
    Enqueue(nullptr);
    thread_.join();
  }

  void Enqueue(std::function<void()> task) {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    changed_.notify_all();
  }

  void Synchronize() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return tasks_.empty(); });
  }

 private:
  void Loop() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return !tasks_.empty(); });
      const std::function<void()> task = tasks_.front();
      if (task == nullptr) return;
      lock.unlock();
      task();
      lock.lock();
      tasks_.pop_front();
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;  // the first one is running
  std::thread thread_;
};

// The arguments of a launch, as a kernel has them when it runs: lists are copied.
struct Arguments {
  Arguments(const Layer& layer, const void* args)
      : bytes(static_cast<const char*>(args), static_cast<const char*>(args) + layer.args_bytes) {
    size_t count = 0;
    for (int i = 0; i < layer.field_count; ++i) count += Items(layer.fields[i]).size();
    items.reserve(count);
    for (int i = 0; i < layer.field_count; ++i) {
      const std::vector<Tensor> list = Items(layer.fields[i]);
      if (list.empty()) continue;
      reinterpret_cast<TensorList*>(bytes.data() + layer.fields[i].offset)->items =
          items.data() + items.size();
      items.insert(items.end(), list.begin(), list.end());
    }
  }

  std::vector<Tensor> Items(const Field& field) const {
    if (field.kind < FieldKind::kInList || field.kind > FieldKind::kOptionalInOutList) return {};
    const auto& list = *reinterpret_cast<const TensorList*>(bytes.data() + field.offset);
    return std::vector<Tensor>(list.items, list.items + list.count);
  }

  std::vector<char> bytes;
  std::vector<Tensor> items;
};

void RunKernel(const Layer& layer, const std::shared_ptr<Arguments>& arguments,
               const Context& launched) {
  FakeLayers::gate().Pass();
  if (launched.guard != nullptr && launched.guard->found != 0) return;
  Context context;
  context.device = launched.device;
  context.workspace = launched.workspace;
  context.workspace_bytes = launched.workspace_bytes;
  const Status status = layer.cpu(arguments->bytes.data(), context);
  if (status.reason == Reason::kValueOutOfRange && launched.data_error != nullptr) {
    if (launched.data_error->found == 0) {
      launched.data_error->index = 0;
      launched.data_error->value = std::strtoll(status.given, nullptr, 10);
      launched.data_error->found = 1;
    }
  } else if (!status.ok()) {
    fprintf(stderr, "%s failed on the fake device: %s must be %s, given %s\n", layer.name,
            status.field, status.expected, status.given);
    abort();
  }
}

struct Registry {
  std::vector<const Layer*> originals;
  std::vector<Layer> layers;
  Gate gate;
};
Registry& TheRegistry();

// The Cuda function of layer number kIndex. A function pointer holds no state, hence one for each.
template <size_t kIndex>
Status Launch(const void* args, Context& context) {
  const Layer& layer = *TheRegistry().originals[kIndex];
  if (context.stream == nullptr) {
    FakeLayers::gate().Pass();
    return layer.cpu(args, context);
  }
  // What a kernel would say of its data; a fake cannot know it before it runs.
  snprintf(context.data_error_field, sizeof context.data_error_field, "target");
  snprintf(context.data_error_expected, sizeof context.data_error_expected, "a valid index");
  auto arguments = std::make_shared<Arguments>(layer, args);
  static_cast<FakeStream*>(context.stream)->Enqueue([&layer, arguments, context] {
    RunKernel(layer, arguments, context);
  });
  return Status::Ok();
}

template <size_t... kIndex>
void SetFunctions(std::vector<Layer>& layers, std::index_sequence<kIndex...>) {
  Status (*const functions[])(const void*, Context&) = {&Launch<kIndex>...};
  for (size_t i = 0; i < layers.size(); ++i) layers[i].cuda = functions[i];
}

Registry& TheRegistry() {
  static Registry* const registry = [] {
    auto* made = new Registry;
    for (const Layer* layer = Layer::Head(); layer != nullptr; layer = layer->next) {
      made->originals.push_back(layer);
      made->layers.push_back(*layer);
    }
    if (made->layers.size() > kMaxLayers) abort();
    for (size_t i = 0; i + 1 < made->layers.size(); ++i) {
      made->layers[i].next = &made->layers[i + 1];
    }
    SetFunctions(made->layers, std::make_index_sequence<kMaxLayers>());
    return made;
  }();
  return *registry;
}

std::atomic<bool> devices_broken{false};

class FakeDevice final : public DeviceBackend {
 public:
  explicit FakeDevice(bool asynchronous)
      : host_(std::move(MakeCpuBackend().devices[0])), asynchronous_(asynchronous) {}

  const Device& device() const override { return host_->device(); }
  const DeviceDescription& description() const override { return host_->description(); }
  bool asynchronous() const override { return asynchronous_; }

  absl::StatusOr<void*> ReserveAddresses(size_t bytes) override {
    return host_->ReserveAddresses(bytes);
  }
  void ReleaseAddresses(void* base, size_t bytes) override { host_->ReleaseAddresses(base, bytes); }
  absl::StatusOr<uint64_t> Map(void* address, size_t bytes) override {
    return host_->Map(address, bytes);
  }
  void Unmap(void* address, size_t bytes, uint64_t token) override {
    host_->Unmap(address, bytes, token);
  }

  absl::StatusOr<Stream> CreateStream() override {
    return asynchronous_ ? static_cast<Stream>(new FakeStream) : nullptr;
  }
  void DestroyStream(Stream stream) override { delete static_cast<FakeStream*>(stream); }
  absl::Status Synchronize(Stream stream) override {
    if (stream != nullptr) static_cast<FakeStream*>(stream)->Synchronize();
    return absl::OkStatus();
  }

  absl::StatusOr<Fence> RecordFence(Stream stream) override {
    auto passed = std::make_shared<std::atomic<bool>>(false);
    const Fence fence = ++last_fence_;
    fences_.emplace(fence, passed);
    static_cast<FakeStream*>(stream)->Enqueue([passed] { *passed = true; });
    return fence;
  }
  absl::StatusOr<bool> PollFence(Fence fence) override {
    if (devices_broken) {
      return MakeError(v1::ERROR_REASON_DEVICE_ERROR, "the fake device is broken",
                       {{"device_error", "broken"}});
    }
    const auto found = fences_.find(fence);
    if (!*found->second) return false;
    fences_.erase(found);
    return true;
  }

  absl::Status CopyWithin(Stream stream, void* to, const void* from, size_t bytes) override {
    if (stream == nullptr) {
      memcpy(to, from, bytes);
    } else {
      static_cast<FakeStream*>(stream)->Enqueue([=] { memcpy(to, from, bytes); });
    }
    return absl::OkStatus();
  }

  Status (*FunctionOf(const Layer& layer) const)(const void*, Context&) override {
    return layer.cuda;
  }

  absl::StatusOr<DataErrorWord> AcquireWord() override {
    auto* words = new DataError[2];
    return DataErrorWord{words, words + 1};
  }
  void ReleaseWord(DataErrorWord word) override { delete[] word.device; }
  absl::Status SetWord(Stream stream, DataErrorWord word, const DataError* a,
                       const DataError* b) override {
    static_cast<FakeStream*>(stream)->Enqueue([=] {
      *word.device = DataError();
      if (a != nullptr && a->found != 0) {
        *word.device = *a;
      } else if (b != nullptr && b->found != 0) {
        *word.device = *b;
      }
    });
    return absl::OkStatus();
  }
  absl::Status FetchWord(Stream stream, DataErrorWord word) override {
    static_cast<FakeStream*>(stream)->Enqueue([=] { *word.host = *word.device; });
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<CopyToDevice>> StartCopyToDevice(void* to, size_t bytes) override {
    return host_->StartCopyToDevice(to, bytes);
  }
  absl::StatusOr<std::unique_ptr<CopyToHost>> StartCopyToHost(const void* from, size_t bytes,
                                                              size_t chunk_bytes) override {
    return host_->StartCopyToHost(from, bytes, chunk_bytes);
  }

 private:
  const std::unique_ptr<DeviceBackend> host_;
  const bool asynchronous_;
  // The executor thread's.
  Fence last_fence_ = 0;
  std::unordered_map<Fence, std::shared_ptr<std::atomic<bool>>> fences_;
};

}  // namespace

void Gate::Close() {
  const std::lock_guard lock(mutex_);
  open_ = false;
}

void Gate::Open() {
  const std::lock_guard lock(mutex_);
  open_ = true;
  changed_.notify_all();
}

void Gate::Pass() {
  std::unique_lock lock(mutex_);
  ++held_;
  changed_.notify_all();
  changed_.wait(lock, [this] { return open_ || may_pass_ > 0; });
  if (!open_) --may_pass_;
  --held_;
  changed_.notify_all();
}

void Gate::LetOnePass() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return held_ > 0; });
  ++may_pass_;
  changed_.notify_all();
  changed_.wait(lock, [this] { return may_pass_ == 0; });
}

void Gate::WaitForHeld(int count) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return held_ >= count; });
}

const Layer* FakeLayers::Head() { return &TheRegistry().layers[0]; }

Gate& FakeLayers::gate() { return TheRegistry().gate; }

Backend MakeFakeBackend(bool asynchronous) {
  Backend backend;
  backend.name = "fake";
  backend.devices.push_back(std::make_unique<FakeDevice>(asynchronous));
  return backend;
}

void BreakFakeDevices(bool broken) { devices_broken = broken; }

}  // namespace kernelbox::server

#include "exec/host/memory.hpp"

#include <ATen/ATen.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <new>
#include <unordered_map>

namespace plumb::exec {
namespace {

std::atomic<bool> accelerators{false};

// Of the whole process: a tensor may be freed on another thread than the one that made it.
class Ledger {
 public:
  void allocated(const void* data, std::int64_t bytes, int rank) {
    const std::lock_guard lock(mutex_);
    entries_[data] = {.bytes = bytes, .rank = rank};
    add(rank, bytes);
  }

  void freed(const void* data) {
    const std::lock_guard lock(mutex_);
    const auto entry = entries_.find(data);
    if (entry != entries_.end()) {
      add(entry->second.rank, -entry->second.bytes);
      entries_.erase(entry);
    }
  }

  void moved(const void* data, int to_rank) {
    const std::lock_guard lock(mutex_);
    const auto entry = entries_.find(data);
    if (entry != entries_.end() && entry->second.rank != to_rank) {
      add(entry->second.rank, -entry->second.bytes);
      add(to_rank, entry->second.bytes);
      entry->second.rank = to_rank;
    }
  }

  [[nodiscard]] Bytes current(int rank) {
    const std::lock_guard lock(mutex_);
    return {accounts_[rank].current};
  }

  [[nodiscard]] Bytes peak(int rank) {
    const std::lock_guard lock(mutex_);
    return {accounts_[rank].peak};
  }

  void count_on_host(int rank, std::int64_t bytes) {
    const std::lock_guard lock(mutex_);
    add(on_host_[rank], bytes);
  }

  [[nodiscard]] Bytes on_host(int rank) {
    const std::lock_guard lock(mutex_);
    return {on_host_[rank].current};
  }

  [[nodiscard]] Bytes peak_on_host(int rank) {
    const std::lock_guard lock(mutex_);
    return {on_host_[rank].peak};
  }

  void reset_peak(int rank) {
    const std::lock_guard lock(mutex_);
    for (Account* account : {&accounts_[rank], &on_host_[rank]}) account->peak = account->current;
  }

 private:
  struct Entry {
    std::int64_t bytes = 0;
    int rank = 0;
  };
  struct Account {
    std::int64_t current = 0;
    std::int64_t peak = 0;
  };

  void add(int rank, std::int64_t bytes) { add(accounts_[rank], bytes); }

  static void add(Account& account, std::int64_t bytes) {
    account.current += bytes;
    account.peak = std::max(account.peak, account.current);
  }

  std::mutex mutex_;
  std::unordered_map<const void*, Entry> entries_;
  std::map<int, Account> accounts_;
  std::map<int, Account> on_host_;  // of host_buffer
};

// Never destroyed: tensors of static storage are freed after it would be.
Ledger& ledger() {
  static Ledger* const instance = new Ledger;
  return *instance;
}

thread_local int rank_of_thread = 0;

class Reporter final : public c10::MemoryReportingInfoBase {
 public:
  explicit Reporter(int rank) : rank_(rank) {}

  void reportMemoryUsage(void* data, std::int64_t bytes, std::size_t /*total_allocated*/,
                         std::size_t /*total_reserved*/, c10::Device device) override {
    if (bytes > 0) {
      if (device.is_cpu() != accelerators) ledger().allocated(data, bytes, rank_);
    } else {
      ledger().freed(data);
    }
  }

  [[nodiscard]] bool memoryProfilingEnabled() const override { return true; }

 private:
  int rank_;
};

}  // namespace

void track_accelerators(bool on) { accelerators = on; }

void track_memory_of_thread(int rank) {
  rank_of_thread = rank;
  (void)c10::ThreadLocalDebugInfo::current();  // made before, so destroyed after the guard
  thread_local std::unique_ptr<c10::DebugInfoGuard> guard;
  guard.reset();
  guard = std::make_unique<c10::DebugInfoGuard>(c10::DebugInfoKind::PROFILER_STATE, std::make_shared<Reporter>(rank));
}

void move_memory(const std::byte* data, int to_rank) { ledger().moved(data, to_rank); }

std::shared_ptr<void> tracked_buffer(std::size_t bytes) {
  const at::Tensor buffer = at::empty({static_cast<std::int64_t>(bytes)}, at::kByte);
  void* const data = buffer.mutable_data_ptr();
  return {data, [buffer](void*) {}};
}

std::shared_ptr<void> host_buffer(std::size_t bytes) {
  constexpr std::align_val_t alignment{64};
  const int rank = rank_of_thread;
  void* const memory = ::operator new(bytes, alignment);
  const auto counted = static_cast<std::int64_t>(bytes);
  ledger().count_on_host(rank, counted);
  return {memory, [rank, counted](void* freed) {
            ::operator delete(freed, alignment);
            ledger().count_on_host(rank, -counted);
          }};
}

Bytes host_memory(int rank) { return ledger().on_host(rank); }
Bytes peak_host_memory(int rank) { return ledger().peak_on_host(rank); }

Bytes current_memory(int rank) { return ledger().current(rank); }
Bytes peak_memory(int rank) { return ledger().peak(rank); }
void reset_peak_memory(int rank) { ledger().reset_peak(rank); }

}  // namespace plumb::exec

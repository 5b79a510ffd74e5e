// A stream without a device: a thread that works off what is put on it, in order.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace plumb::exec {

class FakeStream {
 public:
  FakeStream() : thread_([this] { run(); }) {}
  FakeStream(const FakeStream&) = delete;
  FakeStream& operator=(const FakeStream&) = delete;
  // Works off what is there.
  virtual ~FakeStream() {
    put({});
    thread_.join();
  }

  // Virtual, so that the library and the test need not share code.
  virtual void put(std::function<void()> work) {
    {
      const std::scoped_lock lock(mutex_);
      work_.push_back(std::move(work));
    }
    changed_.notify_one();
  }

 private:
  void run() {
    while (true) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return !work_.empty(); });
      const std::function<void()> next = std::move(work_.front());
      work_.pop_front();
      lock.unlock();
      if (!next) return;
      next();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  std::thread thread_;
};

}  // namespace plumb::exec

#include "common/base/workers.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <deque>
#include <exception>

#include "common/base/error.hpp"

namespace plumb {
namespace {

constexpr int look_every_ms = 100;  // at `stop`

enum class Kind : std::uint8_t { answer, input_error, run_error };

// An answer on its way: of an error where, what and what to do, each ended by a zero.
struct Head {
  std::uint64_t item = 0;
  std::uint64_t bytes = 0;
  Kind kind = Kind::answer;
};

bool write_all(int to, const void* data, std::size_t bytes) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = ::write(to, at, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    at += written;
    bytes -= static_cast<std::size_t>(written);
  }
  return true;
}

std::string packed(const Error& error) {
  std::string text;
  for (const std::string& part : {error.where(), error.problem(), error.hint()}) text.append(part).push_back('\0');
  return text;
}

[[noreturn]] void throw_packed(Kind kind, const std::string& text) {
  std::array<std::string, 3> parts;
  std::size_t begin = 0;
  for (std::string& part : parts) {
    part = text.substr(begin, text.find('\0', begin) - begin);
    begin += part.size() + 1;
  }
  if (kind == Kind::input_error) throw InputError(parts[0], parts[1], parts[2]);
  throw RunError(parts[0], parts[1], parts[2]);
}

// In the worker. After an error it goes on: a smaller item of another worker may fail too.
void send(int to, std::size_t item, const std::function<std::string(std::size_t)>& work) {
  Head head{.item = item};
  std::string text;
  try {
    text = work(item);
  } catch (const Error& error) {
    head.kind = error.status() == ExitStatus::wrong_input ? Kind::input_error : Kind::run_error;
    text = packed(error);
  } catch (const std::exception& error) {
    head.kind = Kind::run_error;
    text = packed(RunError("worker process", error.what()));
  }
  head.bytes = text.size();
  if (!write_all(to, &head, sizeof(head)) || !write_all(to, text.data(), text.size())) ::_exit(1);
}

// One process; its items are `first`, `first` + `step`, …
class Worker {
 public:
  Worker(std::size_t first, std::size_t step, std::size_t count, const std::function<std::string(std::size_t)>& work)
      : next_(first), step_(step), count_(count) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw RunError("worker process", "no pipe can be made to it");
    const pid_t parent = ::getpid();
    pid_ = ::fork();
    if (pid_ < 0) {
      ::close(ends[0]);
      ::close(ends[1]);
      throw RunError("worker process", "cannot be made", "--jobs 1");
    }
    if (pid_ == 0) {
      for (const int request : {SIGINT, SIGTERM}) std::signal(request, SIG_IGN);
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent) ::_exit(1);
      for (std::size_t item = first; item < count; item += step) send(ends[1], item, work);
      ::_exit(0);
    }
    ::close(ends[1]);
    from_ = ends[0];
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  Worker(Worker&&) = delete;
  Worker& operator=(Worker&&) = delete;
  ~Worker() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    static_cast<void>(wait());
  }

  [[nodiscard]] int from() const { return from_; }
  [[nodiscard]] bool open() const { return from_ >= 0; }

  // Reads what is there; calls `take(head, text)` for each answer that is whole. At the end of the pipe the process is
  // gone: throws RunError if it has left items.
  template <class Take>
  void read(const Take& take) {
    std::array<char, 1 << 16> part{};
    const ssize_t got = ::read(from_, part.data(), part.size());
    if (got < 0 && errno == EINTR) return;
    if (got <= 0) return end();
    buffer_.append(part.data(), static_cast<std::size_t>(got));
    std::size_t at = 0;
    while (buffer_.size() - at >= sizeof(Head)) {
      std::size_t behind = at;
      const auto head = take_bytes<Head>(buffer_, behind);
      if (buffer_.size() - behind < head.bytes) break;
      take(head, buffer_.substr(behind, head.bytes));
      at = behind + head.bytes;
      next_ += step_;
    }
    buffer_.erase(0, at);
  }

 private:
  int wait() {
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    if (from_ >= 0) ::close(from_);
    from_ = -1;
    return status;
  }

  void end() {
    const int status = wait();
    if (next_ >= count_) return;
    const int signal = WTERMSIG(status);
    const std::string how = WIFSIGNALED(status)
                                ? "was ended by signal " + std::to_string(signal) + " (" + ::strsignal(signal) + ")"
                                : "ended with status " + std::to_string(WEXITSTATUS(status));
    throw RunError("worker process", how + " at item " + std::to_string(next_) + " of " + std::to_string(count_),
                   "--jobs 1 does the same in one process; less memory is needed then, too");
  }

  pid_t pid_ = -1;
  int from_ = -1;
  std::string buffer_;
  std::size_t next_ = 0;  // that no answer has come for
  std::size_t step_ = 1;
  std::size_t count_ = 0;
};

class Answers {
 public:
  Answers(const Workers& workers, std::size_t count) : workers_(workers), answers_(count) {}

  void take(const Head& head, std::string text) {
    if (head.kind != Kind::answer) {
      if (!failed_ || head.item < failed_->item) {
        failed_ = head;
        error_ = std::move(text);
      }
      return;
    }
    answers_.at(head.item) = std::move(text);
    if (workers_.done) workers_.done(++done_);
  }

  std::vector<std::optional<std::string>> all() {
    if (failed_) throw_packed(failed_->kind, error_);
    return std::move(answers_);
  }

 private:
  const Workers& workers_;
  std::vector<std::optional<std::string>> answers_;
  std::size_t done_ = 0;
  std::optional<Head> failed_;  // the smallest item
  std::string error_;
};

void read_all(std::deque<Worker>& list, const Workers& workers, Answers& answers) {
  const auto stopped = [&] { return workers.stop != nullptr && workers.stop->ended(); };
  while (!stopped()) {
    std::vector<pollfd> polled;
    for (const Worker& worker : list) polled.push_back({.fd = worker.from(), .events = POLLIN, .revents = 0});
    if (std::ranges::none_of(list, &Worker::open)) return;
    if (::poll(polled.data(), polled.size(), look_every_ms) <= 0) continue;
    for (std::size_t n = 0; n < list.size(); ++n) {
      if (polled[n].revents == 0) continue;
      list[n].read([&](const Head& head, std::string text) { answers.take(head, std::move(text)); });
    }
  }
}

}  // namespace

std::vector<std::optional<std::string>> in_workers(const Workers& workers, std::size_t count,
                                                   const std::function<std::string(std::size_t)>& work) {
  Answers answers(workers, count);
  const std::size_t processes = std::min(static_cast<std::size_t>(std::max(1, workers.processes)), count);
  if (processes <= 1) {
    for (std::size_t item = 0; item < count; ++item) {
      if (workers.stop != nullptr && workers.stop->ended()) break;
      answers.take({.item = item}, work(item));
    }
    return answers.all();
  }
  std::deque<Worker> list;
  for (std::size_t n = 0; n < processes; ++n) list.emplace_back(n, processes, count, work);
  read_all(list, workers, answers);
  list.clear();
  return answers.all();
}

}  // namespace plumb

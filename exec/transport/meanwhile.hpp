// What a rank goes on with while it waits for its peers in a collective, or in a pause in place of work.
#pragma once

#include <functional>
#include <utility>

namespace plumb::exec {

// What tells it: a transport.
class GoesOnMeanwhile {
 public:
  // Called over and over while a message of a collective is not there yet; it neither waits nor makes a collective.
  // Empty: nothing.
  void set_meanwhile(std::function<void()> work) { meanwhile_ = std::move(work); }
  [[nodiscard]] const std::function<void()>& meanwhile() const { return meanwhile_; }

 private:
  std::function<void()> meanwhile_;
};

// As long as this is there.
class Meanwhile {
 public:
  // `tells` must outlive this.
  Meanwhile(GoesOnMeanwhile& tells, std::function<void()> work) : tells_(tells) {
    tells_.set_meanwhile(std::move(work));
  }
  Meanwhile(const Meanwhile&) = delete;
  Meanwhile& operator=(const Meanwhile&) = delete;
  ~Meanwhile() { tells_.set_meanwhile({}); }

 private:
  GoesOnMeanwhile& tells_;
};

}  // namespace plumb::exec

// A rank's NCCL communicators: made in one global order, each with its stream, aborted all at once.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "exec/transport/nccl/nccl.hpp"
#include "exec/transport/nccl/nccl_library.hpp"

namespace plumb::exec {

// Made and used by the rank's one launching thread; abort may be called from any.
class NcclCommunicators {
 public:
  struct Member {
    int index = 0;  // in the list of all
    int rank = 0;   // NCCL's: the position in the list's ranks
    ncclComm_t communicator = {};
    std::unique_ptr<Stream> stream;
  };

  // `control` is asked meanwhile whether the run has been stopped.
  NcclCommunicators(std::shared_ptr<const NcclLibrary> library, const NcclOptions& options, Transport& control,
                    Device& device, const Rendezvous& rendezvous);
  NcclCommunicators(const NcclCommunicators&) = delete;
  NcclCommunicators& operator=(const NcclCommunicators&) = delete;
  ~NcclCommunicators();

  [[nodiscard]] const NcclLibrary& library() const { return *library_; }
  [[nodiscard]] const std::vector<CommunicatorSpec>& specs() const { return specs_; }
  [[nodiscard]] std::vector<Member>& members() { return members_; }
  // Null: this rank is not a member, or there is no such communicator.
  [[nodiscard]] Member* find(const CommunicatorSpec& spec);

  // Held while work is put on communicators: after an abort they are gone.
  class Use {
   public:
    explicit Use(NcclCommunicators& all) : lock_(all.mutex_) {}

   private:
    std::scoped_lock<std::mutex> lock_;
  };
  [[nodiscard]] bool aborted() const { return aborted_; }

  // All at once, each on a thread of its own: one may wait for another's kernels. Does not wait long for a launching
  // thread that hangs in NCCL: the abort is what frees it.
  void abort() noexcept;

 private:
  void make(int index, const NcclOptions& options, Transport& control, Device& device, const Rendezvous& rendezvous);
  // Past the start's deadline.
  [[nodiscard]] RunError not_complete(int index, const NcclOptions& options, const Rendezvous& rendezvous,
                                      const std::string& hint) const;
  [[nodiscard]] ncclUniqueId unique_id(int index, const NcclOptions& options, Transport& control,
                                       const Rendezvous& rendezvous);

  std::shared_ptr<const NcclLibrary> library_;
  std::vector<CommunicatorSpec> specs_;
  int rank_ = 0;
  std::vector<Member> members_;
  std::mutex mutex_;
  std::atomic<bool> aborted_ = false;
};

}  // namespace plumb::exec

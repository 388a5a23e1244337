// Processes that share a run. Rank 0 listens; others join it and serve until the run ends.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "graph/encode.h"
#include "loop/descriptors.h"
#include "runtime/admission.h"
#include "runtime/keys.h"
#include "runtime/loop_run.h"
#include "runtime/rpc.h"
#include "runtime/worker.h"

namespace weft {

struct MeshOptions {
  std::string
      endpoint;  // rank 0: where to listen; others: where rank 0 listens, as JoinAddress's text
  std::string
      listen;  // others: where they listen for ranks above theirs; empty: chosen to fit `endpoint`
  bool insecure = false;  // nothing is encrypted over tcp, and any process may join
  int32_t rank = -1;      // others: the rank they want; -1: any
  int64_t join_timeout_ms = 60000;
  // Rank 0: of the whole run, see LinkTimes::silence; others: until they know rank 0's.
  int64_t peer_timeout_ms = LinkTimes().silence;
  // Rank 0: how long a rank may take for an answer, which is at most rpc::kPieceFloats floats, from
  // its memory. A loop that hangs is lost before, and so is a connection that does not bring one
  // answer within the peer timeout: heartbeats wait behind it.
  int64_t answer_timeout_ms = 60000;
  std::optional<SecretKey> key = {};    // of this process: rank 0's own, or for others who may join
                                        // by it; none: made for the mesh
  std::vector<PublicKey> allowed = {};  // rank 0: who may join besides those who have the join text
};

// Owner's thread; the loop thread runs from make() to the end.
class Mesh {
 public:
  static Result<std::unique_ptr<Mesh>> listen(const MeshOptions& options);  // rank 0
  static Result<std::unique_ptr<Mesh>> join(
      const MeshOptions& options);  // others: only opens their own door
  ~Mesh();

  const std::string& endpoint() const { return endpoint_; }
  // Rank 0: what a process is told that shall join.
  const std::string& join_text() const { return join_text_; }
  // Of this process for the run; zeros where nothing is encrypted.
  const KeyPair& own() const { return own_; }
  // Loop thread. Every rank that dials this process is there: nobody else is let in.
  void close_door();
  // Loop thread. The process needs the descriptors that were held against strangers.
  void release_descriptors() { held_.release(); }
  // Others: whom to dial as whom, to ask for a rank.
  DialKeys keys_to_join() const {
    return {zero_.server.value_or(PublicKey{}), candidate_ ? *candidate_ : own_};
  }
  const MeshOptions& options() const { return options_; }
  Loop& loop() { return thread_->loop(); }
  Transport& transport() { return *transport_; }
  Admission& admission() { return *admission_; }
  const Refusals& refusals() const { return refusals_; }  // any thread
  // Owner's thread. Whether that part of a run may begin: a mesh plays the one that it was made
  // for, in one run. A wait for the other ranks that failed was no run yet.
  enum class Part : uint8_t { start, serve };
  Status may(Part part) const;
  void run_begun() { had_run_ = true; }
  // Any thread, and a signal handler: whoever waits or works on this mesh fails with
  // Code::canceled.
  void cancel() { cancel_->raise(); }
  // Loop thread: whom it tells, besides the admission, that whoever works on this mesh fails, and
  // why: it was canceled, or memory has run out on the loop. At once, if it is so already.
  void on_stop(std::function<void(const Status& why)> told);
  // Where other ranks listen: what those that were killed leave behind is removed in the end.
  void remember(const std::vector<std::string>& endpoints) { others_ = endpoints; }

 private:
  Mesh(MeshOptions options, Part part) : options_(std::move(options)), part_(part) {}
  Status make_keys();  // rank 0
  Status take_keys();  // others
  Status open(const std::string& endpoint);
  void stop(const Status& run, const Status& wait);  // why a run fails, or the wait for other ranks

  MeshOptions options_;
  const Part part_;
  bool had_run_ = false;
  std::string endpoint_, join_text_;
  KeyPair own_;
  JoinAddress zero_;  // others: rank 0's
  std::optional<KeyPair> candidate_;
  HeldDescriptors held_;
  std::vector<std::string> others_;
  Refusals refusals_;
  std::unique_ptr<LoopThread> thread_;
  std::unique_ptr<Transport> transport_;  // loop thread, as the admission
  std::unique_ptr<Admission> admission_;
  std::unique_ptr<Loop::Signal> cancel_;
  std::function<void(const Status& why)> on_stop_;  // loop thread, as stopped_
  Status stopped_;                                  // ok: it goes on
};

// Rank 0: waits until all ranks have joined, or names those that are missing. `mesh` outlives the
// run.
Result<std::unique_ptr<Run>> start_mesh(std::shared_ptr<const Plan> plan, Mesh& mesh, int threads,
                                        void (*drop)(void*));

// Other ranks: joins, and returns when the run has ended: ok after an orderly end, else what failed
// and where. `plan` is null for a process that takes everything from rank 0; `user_ops` are those
// that it knows beside weft's own.
Status serve(Mesh& mesh, std::shared_ptr<const Plan> plan, int threads,
             std::span<const Op* const> user_ops);

}  // namespace weft

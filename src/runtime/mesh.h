// Processes that share a run. Rank 0 listens; others join it and serve until the run ends.
#pragma once

#include <atomic>
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
  ~MeshOptions() { wipe(endpoint); }  // it can contain a secret key

  // Rank 0: where to listen; others: the address of rank 0, as JoinAddress's text.
  std::string endpoint;
  // Others: where to listen for higher ranks; empty: an address that fits `endpoint`.
  std::string listen;
  bool insecure = false;  // nothing is encrypted over tcp, and any process may join
  int32_t rank = -1;      // others: the requested rank; -1: any
  int64_t join_timeout_ms = 60000;
  // Rank 0: for the whole run, see LinkTimes::silence; others: until the welcome has rank 0's.
  int64_t peer_timeout_ms = LinkTimes().silence;
  // Rank 0: how long a rank may take to answer from its memory; an answer has at most
  // rpc::kPieceFloats floats. A rank whose loop hangs is lost earlier. So is a connection that does
  // not deliver an answer within the peer timeout, because heartbeats wait behind it.
  int64_t answer_timeout_ms = 60000;
  // Of this process: rank 0's own, or for others who may join by it; none: made for the mesh.
  std::optional<SecretKey> key = {};
  std::vector<PublicKey> allowed = {};  // rank 0: may join without the join text
};

// Owner's thread; the loop thread runs as long as the mesh exists.
class Mesh {
 public:
  static Result<std::unique_ptr<Mesh>> listen(const MeshOptions& options);  // rank 0
  // Others: only opens their own address.
  static Result<std::unique_ptr<Mesh>> join(const MeshOptions& options);
  ~Mesh();

  const std::string& endpoint() const { return endpoint_; }
  // Rank 0: the text with which a process joins.
  const std::string& join_text() const { return join_text_; }
  // The keys of this process for the run; zeros if nothing is encrypted.
  const KeyPair& own() const { return own_; }
  // Loop thread. All ranks that dial this process are connected: refuses other connections.
  void stop_listening();
  // Loop thread. Closes the descriptors that were reserved in case clients use up all others.
  void release_descriptors() { held_.release(); }
  // Others: the keys to dial rank 0 with for a request to join.
  DialKeys keys_to_join() const {
    return {zero_.server.value_or(PublicKey{}), candidate_ ? *candidate_ : own_};
  }
  const MeshOptions& options() const { return options_; }
  Loop& loop() { return thread_->loop(); }
  Transport& transport() { return *transport_; }
  Admission& admission() { return *admission_; }
  // Any thread. Reserves the mesh for a run on the side that it was made for. A mesh is used for
  // one run; a failed wait for the other ranks does not count as a run, and gives the mesh back.
  enum class Part : uint8_t { start, serve };
  Status reserve(Part part);
  void give_back() { use_ = Use::free; }
  void run_begun() { use_ = Use::had_run; }
  // Any thread, and a signal handler: calls that wait for or use this mesh fail with
  // Code::canceled.
  void cancel() { cancel_->raise(); }
  // Loop thread: called, in addition to the admission, when the mesh stops, with the reason: it was
  // canceled, or the loop ran out of memory. Called at once if it has stopped already.
  void on_stop(std::function<void(const Status& why)> callback);
  // The addresses of other ranks: files that killed ranks leave behind are removed at the end. Rank
  // 0 knows them from the admission.
  void remember(const std::vector<std::string>& endpoints) { others_ = endpoints; }

 private:
  Mesh(MeshOptions options, Part part) : options_(std::move(options)), part_(part) {}
  Status make_keys();  // rank 0
  Status take_keys();  // others
  Status open(const std::string& endpoint);
  void stop(const Status& run, const Status& wait);  // errors for a run, for a wait

  MeshOptions options_;
  const Part part_;
  enum class Use : uint8_t { free, reserved, had_run };
  std::atomic<Use> use_ = Use::free;
  std::string endpoint_, join_text_;
  KeyPair own_;
  JoinAddress zero_;  // others: rank 0's
  std::optional<KeyPair> candidate_;
  HeldDescriptors held_;
  std::vector<std::string> others_;
  std::unique_ptr<LoopThread> thread_;
  std::unique_ptr<Transport> transport_;  // loop thread, as the admission
  std::unique_ptr<Admission> admission_;
  std::unique_ptr<Loop::Signal> cancel_;
  std::function<void(const Status& why)> on_stop_;  // loop thread, as stopped_
  Status stopped_;                                  // ok: not stopped
};

// Rank 0: waits until all ranks have joined; the error names the missing ranks. `mesh` must outlive
// the run.
Result<std::unique_ptr<Run>> start_mesh(std::shared_ptr<const Plan> plan, Mesh& mesh, int threads,
                                        void (*drop)(void*), const StartOptions& options = {});

// Other ranks: joins, and returns when the run has ended: ok after an orderly end, otherwise the
// failure and its rank. If `plan` is null, the process takes the model and the plan from rank 0;
// `user_ops` are the ops that it knows in addition to weft's own. Files below `weights_dir` are
// read here if rank 0 loads them; empty: none.
Status serve(Mesh& mesh, std::shared_ptr<const Plan> plan, int threads,
             std::span<const Op* const> user_ops, const LogSink& log = {},
             const std::string& weights_dir = {});
// The same on another thread: the end is the event `ended` or `failed`. Destroyed before that,
// the rank leaves. `ops` and `mesh` must outlive the result.
Result<std::unique_ptr<EventSource>> join_run(Mesh& mesh, std::shared_ptr<const Plan> plan,
                                              int threads, std::vector<const Op*> user_ops,
                                              const LogSink& log,
                                              const std::string& weights_dir = {});

}  // namespace weft

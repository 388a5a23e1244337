#include "runtime/mesh.h"

#include "base/text.h"

namespace weft {

Result<std::unique_ptr<Mesh>> Mesh::listen(const MeshOptions& options) {
  std::unique_ptr<Mesh> mesh(new Mesh(options, Part::start));
  WEFT_TRY(mesh->open(options.endpoint.empty() ? "ipc://" : options.endpoint));
  return mesh;
}

Result<std::unique_ptr<Mesh>> Mesh::join(const MeshOptions& options) {
  std::unique_ptr<Mesh> mesh(new Mesh(options, Part::serve));
  WEFT_TRY(mesh->open(options.listen));
  return mesh;
}

Status Mesh::open(const std::string& endpoint) {
  WEFT_TRY_ASSIGN(thread_, LoopThread::make());
  return on_loop(loop(), [&]() -> Status {
    const std::string& way = endpoint.empty() ? options_.endpoint : endpoint;
    WEFT_TRY_ASSIGN(transport_, make_transport(loop(), way));
    std::string door = endpoint;
    if (door.empty()) {
      WEFT_TRY_ASSIGN(door, transport_->door(options_.endpoint));
    }
    lobby_ = std::make_unique<Lobby>(loop(), *transport_, refusals_, LinkTimes{.silence = options_.peer_timeout_ms});
    cancel_ = std::make_unique<Loop::Signal>(loop(), [this] {
      canceled_ = true;
      lobby_->cancel();
      if (on_cancel_) on_cancel_();
    });
    const Status listening = lobby_->listen(door, options_.insecure);
    if (!listening.ok() && endpoint.empty())
      return listening.within(cat("to join '", options_.endpoint, "' a rank has to be reached by others"));
    WEFT_TRY(listening);
    endpoint_ = lobby_->endpoint();
    return {};
  });
}

Status Mesh::may(Part part) const {
  if (part != part_)
    return Status(Code::state, part == Part::start ? "the mesh was made to join another process: it serves that one's run, and starts none"
                                                   : "the mesh was made to listen for other ranks: it starts a run, and serves none");
  if (had_run_) return Status(Code::state, cat("the mesh at ", endpoint_, " has had its run: another run needs another mesh"));
  return {};
}

void Mesh::on_cancel(std::function<void()> told) {
  on_cancel_ = std::move(told);
  if (canceled_ && on_cancel_) on_cancel_();
}

Mesh::~Mesh() {
  if (!thread_) return;
  (void)on_loop(loop(), [this] {
    cancel_.reset();
    lobby_.reset();
    return Status();
  });
  // What the lobby retired is gone after this turn; then the transport has no connection any more.
  (void)on_loop(loop(), [this] {
    for (const std::string& endpoint : others_)
      if (endpoint != endpoint_) transport_->clear(endpoint);
    transport_.reset();
    return Status();
  });
}

}  // namespace weft

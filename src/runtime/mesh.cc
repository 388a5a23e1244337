#include "runtime/mesh.h"

namespace weft {

Result<std::unique_ptr<Mesh>> Mesh::listen(const MeshOptions& options) {
  std::unique_ptr<Mesh> mesh(new Mesh(options));
  WEFT_TRY(mesh->open(options.endpoint.empty() ? "ipc://" : options.endpoint));
  return mesh;
}

Result<std::unique_ptr<Mesh>> Mesh::join(const MeshOptions& options) {
  std::unique_ptr<Mesh> mesh(new Mesh(options));
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
    lobby_ = std::make_unique<Lobby>(loop(), *transport_, refusals_);
    cancel_ = std::make_unique<Loop::Signal>(loop(), [this] {
      canceled_ = true;
      lobby_->cancel();
      if (on_cancel_) on_cancel_();
    });
    WEFT_TRY(lobby_->listen(door, options_.insecure));
    endpoint_ = lobby_->endpoint();
    return {};
  });
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

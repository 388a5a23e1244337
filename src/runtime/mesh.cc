#include "runtime/mesh.h"

#include "base/text.h"

namespace weft {

namespace {

// A door that fits the way to rank 0: the same transport, on this machine if rank 0 is.
Result<std::string> door_for(const MeshOptions& options) {
  if (!options.listen.empty()) return options.listen;
  const std::string& rank0 = options.endpoint;
  if (rank0.starts_with("ipc://")) return std::string("ipc://");
  if (rank0.starts_with("tcp://127.") || rank0.starts_with("tcp://localhost") || rank0.starts_with("tcp://[::1]")) return std::string("tcp://127.0.0.1:0");
  return Status(Code::invalid, cat("rank 0 is at ", rank0, ": say with `listen` under which address other machines reach this one"));
}

}  // namespace

Result<std::unique_ptr<Mesh>> Mesh::listen(const MeshOptions& options) {
  std::unique_ptr<Mesh> mesh(new Mesh(options));
  WEFT_TRY(mesh->open(options.endpoint.empty() ? "ipc://" : options.endpoint));
  return mesh;
}

Result<std::unique_ptr<Mesh>> Mesh::join(const MeshOptions& options) {
  std::unique_ptr<Mesh> mesh(new Mesh(options));
  WEFT_TRY_ASSIGN(const std::string door, door_for(options));
  WEFT_TRY(mesh->open(door));
  return mesh;
}

Status Mesh::open(const std::string& endpoint) {
  WEFT_TRY_ASSIGN(thread_, LoopThread::make());
  return on_loop(loop(), [&]() -> Status {
    WEFT_TRY_ASSIGN(transport_, make_transport(loop(), endpoint.substr(0, endpoint.find("://") + 3)));
    lobby_ = std::make_unique<Lobby>(loop(), *transport_);
    WEFT_TRY(lobby_->listen(endpoint, options_.insecure));
    endpoint_ = lobby_->endpoint();
    return {};
  });
}

Mesh::~Mesh() {
  if (!thread_) return;
  (void)on_loop(loop(), [this] {
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

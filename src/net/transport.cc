// The transports over ZeroMQ: tcp and ipc differ in their addresses, and in that tcp is encrypted.
#include "net/transport.h"

#include <sys/stat.h>
#include <unistd.h>

#include <optional>
#include <utility>

#include "base/text.h"
#include "net/address.h"
#include "net/context.h"
#include "net/dialed.h"
#include "net/poll_group.h"
#include "net/router.h"
#include "net/zap.h"

namespace weft {

namespace {

class RouterListener final : public Listener {
 public:
  RouterListener(std::shared_ptr<Router> router, std::string endpoint)
      : router_(std::move(router)), endpoint_(std::move(endpoint)) {}
  ~RouterListener() override { router_->stop_accepting(); }
  std::string endpoint() const override { return endpoint_; }

 private:
  std::shared_ptr<Router> router_;
  std::string endpoint_;
};

// The common part of the schemes.
class ZmqTransport : public Transport {
 public:
  ZmqTransport(Loop& loop, ZmqContext context, std::string scheme, Security security)
      : security_(std::move(security)),
        context_(std::move(context)),
        group_(loop, context_.get()),
        scheme_(std::move(scheme)) {}

 protected:
  Status check_scheme(const std::string& endpoint) const {
    if (endpoint.starts_with(scheme_)) return {};
    return Status(Code::invalid,
                  cat("'", endpoint, "': expected an endpoint that begins with ", scheme_));
  }
  const Security security_;
  ZmqContext context_;  // outlives the sockets
  PollGroup group_;

 private:
  std::string scheme_;
};

class TcpTransport final : public ZmqTransport {
 public:
  using ZmqTransport::ZmqTransport;

  bool encrypts() const override { return !security_.insecure; }
  void admit(std::vector<PublicKey> keys) override {
    admitted_ = std::move(keys);
    if (zap_) zap_->admit(*admitted_);
  }

  Result<std::unique_ptr<Listener>> listen(const std::string& endpoint, Router::Accept accepted,
                                           Router::Refused refused) override {
    WEFT_TRY(check_scheme(endpoint));
    WEFT_TRY_ASSIGN(const TcpAddress address, parse_tcp(endpoint, true));
    if (encrypts() && !zap_) {
      WEFT_TRY_ASSIGN(zap_, Zap::make(group_));
      if (admitted_) zap_->admit(*admitted_);
    }
    WEFT_TRY_ASSIGN(auto router, Router::make(group_, address.zmq, address.v6,
                                              encrypts() ? &security_.own.secret : nullptr,
                                              IpcPlace(), std::move(accepted), std::move(refused)));
    std::string bound = router->bound();
    if (address.any) {  // peers need an address of this machine
      char name[256] = "";
      gethostname(name, sizeof name - 1);
      bound = cat("tcp://", name, bound.substr(bound.rfind(':')));
    }
    return std::unique_ptr<Listener>(
        std::make_unique<RouterListener>(std::move(router), std::move(bound)));
  }

  Result<std::unique_ptr<Connection>> dial(const std::string& endpoint,
                                           const DialKeys* keys) override {
    WEFT_TRY(check_scheme(endpoint));
    WEFT_TRY_ASSIGN(const TcpAddress address, parse_tcp(endpoint, false));
    if (encrypts() && !keys)
      return Status(Code::invalid,
                    cat("'", endpoint, "': expected the public key of the listener, got none"));
    return weft::dial(group_, address.zmq, address.v6, encrypts() ? keys : nullptr);
  }

  Result<std::string> listening_endpoint(const std::string& endpoint) override {
    return tcp_listening_endpoint(endpoint);
  }
  void clear(const std::string&) override {}

 private:
  std::shared_ptr<Zap> zap_;                        // from the first listener on
  std::optional<std::vector<PublicKey>> admitted_;  // none: not known yet
};

class IpcTransport final : public ZmqTransport {
 public:
  using ZmqTransport::ZmqTransport;

  bool encrypts() const override { return false; }
  void admit(std::vector<PublicKey>) override {}

  Result<std::unique_ptr<Listener>> listen(const std::string& endpoint, Router::Accept accepted,
                                           Router::Refused refused) override {
    WEFT_TRY(check_scheme(endpoint));
    WEFT_TRY_ASSIGN(IpcPlace place, IpcPlace::take(endpoint));
    const std::string path = place.path();
    WEFT_TRY_ASSIGN(auto router,
                    Router::make(group_, "ipc://" + path, false, nullptr, std::move(place),
                                 std::move(accepted), std::move(refused)));
    router->serve_own_user(security_.shared_memory);
    std::unique_ptr<Listener> listener =
        std::make_unique<RouterListener>(std::move(router), "ipc://" + path);
    if (chmod(path.c_str(), 0600) != 0)  // also in a directory of another user
      return system_failure(cat("'", path, "': cannot be closed to other users"), errno);
    return listener;
  }

  Result<std::unique_ptr<Connection>> dial(const std::string& endpoint, const DialKeys*) override {
    WEFT_TRY(check_scheme(endpoint));
    WEFT_TRY_ASSIGN(const std::string path, parse_ipc(endpoint));
    return weft::dial(group_, "ipc://" + path, false, nullptr, security_.shared_memory);
  }

  Result<std::string> listening_endpoint(const std::string&) override {
    return std::string("ipc://");
  }
  void clear(const std::string& endpoint) override { IpcPlace::clear(endpoint); }
};

template <typename T>
std::unique_ptr<Transport> make(Loop& loop, ZmqContext context, const char* scheme,
                                const Security& security) {
  return std::make_unique<T>(loop, std::move(context), scheme, security);
}

struct Row {
  const char* scheme;
  std::unique_ptr<Transport> (*make)(Loop& loop, ZmqContext context, const char* scheme,
                                     const Security& security);
};
constexpr Row kTransports[] = {
    {"tcp://", make<TcpTransport>},
    {"ipc://", make<IpcTransport>},
};

}  // namespace

Result<std::unique_ptr<Transport>> make_transport(Loop& loop, const std::string& scheme,
                                                  const Security& security) {
  for (const Row& row : kTransports) {
    if (!scheme.starts_with(row.scheme)) continue;
    WEFT_TRY_ASSIGN(ZmqContext context, ZmqContext::make());
    return row.make(loop, std::move(context), row.scheme, security);
  }
  return Status(Code::invalid, cat("'", scheme, "': unknown scheme, expected tcp:// or ipc://"));
}

Result<std::string> resolve(const std::string& endpoint) {
  if (!endpoint.starts_with("tcp://")) return endpoint;
  WEFT_TRY_ASSIGN(TcpAddress address, parse_tcp(endpoint, false));
  return std::move(address.zmq);
}

}  // namespace weft

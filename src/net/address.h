// Endpoints as users write them. They are checked before ZeroMQ gets them, because its own errors
// are late, on another thread, or missing.
#pragma once

#include <sys/socket.h>

#include <string>

#include "base/result.h"

namespace weft {

// Whether the endpoint is not the text with which a process joins (runtime/keys.h). The error does
// not show its key.
Status check_has_no_key(const std::string& endpoint);

// "tcp://HOST:PORT", resolved. The texts of errors name the endpoint.
struct TcpAddress {
  std::string zmq;  // "tcp://127.0.0.1:4000", "tcp://[fe80::1%eth0]:4000"
  sockaddr_storage address = {};
  socklen_t size = 0;
  bool loopback = false;
  bool any = false;  // every interface of the machine ("*", 0.0.0.0, ::)
  bool v6 = false;
};
// `listening`: port 0 and host "*" are allowed.
Result<TcpAddress> parse_tcp(const std::string& endpoint, bool listening);

// "tcp://ADDRESS:0" with the address of this machine that leads to `endpoint`, or "tcp://*:0" if
// `endpoint` is a name of this machine that means loopback here. Sends nothing.
Result<std::string> tcp_listening_endpoint(const std::string& endpoint);

// The peer of a connection that was accepted at `bound`: "tcp://127.0.0.1:40123", "process 4711";
// empty if the descriptor belongs to another socket by now.
std::string peer_of(int descriptor, const std::string& bound);

// The user of the process at the other end of a Unix socket; -1: not known.
uid_t user_of(int descriptor);

// From this call on, the system drops new connections to a listening tcp socket. Accepted
// connections remain; ZeroMQ would close them with their listener.
void drop_newcomers(int listening);

// Whether peers that dialed `own` could dial `endpoint`, as far as its form shows: no name of a
// host is resolved.
Status check_peer_endpoint(const std::string& endpoint, const std::string& own);

// The path of "ipc://PATH" to dial.
Result<std::string> parse_ipc(const std::string& endpoint);

// A socket file to listen on. A locked file next to it keeps other processes away, because ZeroMQ
// would replace the socket of an active listener, and some versions do not remove the file. It is
// removed after the listener has been closed.
class IpcPlace {
 public:
  static Result<IpcPlace> take(const std::string& endpoint);
  // Removes the files of a process that has died, if they are in a directory that weft made. Does
  // nothing if the process is alive.
  static void clear(const std::string& endpoint);
  IpcPlace() = default;
  IpcPlace(IpcPlace&& other) noexcept;
  IpcPlace& operator=(IpcPlace&& other) noexcept;
  ~IpcPlace();
  const std::string& path() const { return path_; }

 private:
  std::string path_, lock_path_;
  std::string directory_;  // the directory that this process made, or empty
  int lock_ = -1;
};

}  // namespace weft

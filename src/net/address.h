// Endpoints as people write them, checked before ZeroMQ sees them: its own errors come late, from
// another thread, or not at all.
#pragma once

#include <string>

#include "base/result.h"

namespace weft {

// "tcp://HOST:PORT", resolved. The texts of errors name the endpoint.
struct TcpAddress {
  std::string zmq;  // "tcp://127.0.0.1:4000", "tcp://[::1]:4000"
  bool loopback = false;
  bool any = false;  // every interface of the machine ("*", 0.0.0.0, ::)
  bool v6 = false;
};
// `listening`: port 0 and host "*" are allowed.
Result<TcpAddress> parse_tcp(const std::string& endpoint, bool listening);

// "tcp://ADDRESS:0" with the address of this machine that leads to `endpoint`, or "tcp://*:0" if
// `endpoint` is a name of this machine that means loopback here. Sends nothing.
Result<std::string> tcp_door(const std::string& endpoint);

// Whom a connection that was accepted at `bound` is with: "tcp://127.0.0.1:40123", "process 4711";
// empty if the descriptor is of another socket by now.
std::string peer_of(int descriptor, const std::string& bound);

// From now on the system drops what comes to a listening tcp socket. Connections that are accepted
// stay: ZeroMQ would close them with their listener.
void drop_newcomers(int listening);

// The path of "ipc://PATH" to dial.
Result<std::string> parse_ipc(const std::string& endpoint);

// A socket file to listen on, held against other processes by a locked file beside it. ZeroMQ would
// take over the path of a listener that lives, and in some versions leaves the file behind. Goes
// after the listener is closed.
class IpcPlace {
 public:
  static Result<IpcPlace> take(const std::string& endpoint);
  // Removes what a process that died left at an endpoint in a directory of its own; nothing if it
  // lives, or if the directory is another.
  static void clear(const std::string& endpoint);
  IpcPlace() = default;
  IpcPlace(IpcPlace&& other) noexcept;
  IpcPlace& operator=(IpcPlace&& other) noexcept;
  ~IpcPlace();
  const std::string& path() const { return path_; }

 private:
  std::string path_, lock_path_;
  std::string directory_;  // made by us; or empty
  int lock_ = -1;
};

}  // namespace weft

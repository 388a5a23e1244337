#include "net/address.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <system_error>
#include <utility>

#include "base/text.h"

namespace weft {

namespace {

constexpr std::string_view kTcp = "tcp://", kIpc = "ipc://";
constexpr size_t kLongestPath = sizeof(sockaddr_un::sun_path) - 1;

Status wrong(const std::string& endpoint, std::string_view what) {
  return Status(Code::invalid, cat("'", endpoint, "': ", what));
}

struct HostPort {
  std::string host;
  int port = 0;
};

Result<HostPort> split(const std::string& endpoint, bool listening) {
  WEFT_TRY(check_has_no_key(endpoint));
  const std::string_view rest = std::string_view(endpoint).substr(kTcp.size());
  const size_t colon = rest.rfind(':');
  constexpr std::string_view kForm = "expected tcp://HOST:PORT";
  if (colon == std::string_view::npos || colon == 0) return wrong(endpoint, kForm);
  HostPort out;
  std::string_view host = rest.substr(0, colon);
  if (host.front() == '[' && host.back() == ']')
    host = host.substr(1, host.size() - 2);
  else if (host.find(':') != std::string_view::npos)
    return wrong(endpoint, "expected an IPv6 address in brackets, tcp://[ADDRESS]:PORT");
  if (host.empty()) return wrong(endpoint, kForm);
  out.host = host;
  const std::string_view port = rest.substr(colon + 1);
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), out.port);
  const int least = listening ? 0 : 1;
  if (error != std::errc() || end != port.data() + port.size() || out.port < least ||
      out.port > 65535)
    return wrong(endpoint,
                 cat("expected a port of ", least, " to 65535, got '", std::string(port), "'"));
  return out;
}

// Mode for the owner only, and the file must be the one at the path: another process may have
// removed it between open and lock.
int lock_file(const std::string& path, int* error) {
  for (;;) {
    const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (file < 0 || flock(file, LOCK_EX | LOCK_NB) != 0) {
      *error = errno;
      if (file >= 0) close(file);
      return -1;
    }
    struct stat mine {
    }, there{};
    const bool is_same = fstat(file, &mine) == 0 && stat(path.c_str(), &there) == 0 &&
                         mine.st_ino == there.st_ino && mine.st_dev == there.st_dev;
    if (is_same && S_ISREG(mine.st_mode) && mine.st_size == 0) return file;
    close(file);
    if (!is_same) continue;
    *error = EEXIST;  // of another program: it would be removed
    return -1;
  }
}

bool is_directory(const std::string& path) {
  struct stat found {};
  return stat(path.c_str(), &found) == 0 && S_ISDIR(found.st_mode);
}

// Whether a process has this socket. A killed process leaves its socket behind, which then refuses
// connections. A socket that another program has can be of another kind, or for other users.
bool is_served(const std::string& path) {
  const int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (probe < 0) return false;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, kLongestPath);
  const bool is_left =
      connect(probe, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 &&
      (errno == ECONNREFUSED || errno == ENOENT);
  close(probe);
  return !is_left;
}

constexpr std::string_view kOwn = "/weft-XXXXXX";

// A directory of this user only, if the system provides one. After su or in a container the
// environment can name a directory of another user, or none.
std::string default_directory() {
  for (const char* name : {"XDG_RUNTIME_DIR", "TMPDIR"}) {
    const char* const value = std::getenv(name);
    if (value != nullptr && value[0] == '/' && is_directory(value) &&
        access(value, W_OK | X_OK) == 0 && !std::strchr(value, '\n') &&
        std::string_view(value).size() + kOwn.size() + std::string_view("/socket").size() <=
            kLongestPath)
      return value;
  }
  return "/tmp";
}

Status too_long(const std::string& endpoint, const std::string& path) {
  return wrong(endpoint, cat("the path of a socket may have ", kLongestPath, " bytes, '", path,
                             "' has ", path.size()));
}

// "tcp://127.0.0.1:4000", "tcp://[fe80::1%eth0]:4000".
std::string numeric_endpoint(const sockaddr_storage& address, socklen_t size) {
  char host[NI_MAXHOST] = "", port[NI_MAXSERV] = "";
  getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, host, sizeof host, port,
              sizeof port, NI_NUMERICHOST | NI_NUMERICSERV);
  const bool v6 = address.ss_family == AF_INET6;
  return cat(kTcp, v6 ? "[" : "", host, v6 ? "]:" : ":", port);
}

std::string_view port_of(const std::string& endpoint) {
  return std::string_view(endpoint).substr(endpoint.rfind(':') + 1);
}

}  // namespace

Status check_has_no_key(const std::string& endpoint) {
  const size_t mark = endpoint.starts_with(kIpc) ? std::string::npos : endpoint.find('?');
  if (mark == std::string::npos) return {};
  return wrong(endpoint.substr(0, mark) + "?...",
               "expected tcp://HOST:PORT without a key; a text with a key is for weft_mesh_join "
               "(weft worker --join)");
}

Result<TcpAddress> parse_tcp(const std::string& endpoint, bool listening) {
  WEFT_TRY_ASSIGN(const HostPort to, split(endpoint, listening));
  TcpAddress out;
  const bool star = to.host == "*";
  if (star && !listening) return wrong(endpoint, "expected a host to dial, got '*'");
  const bool local =
      to.host == "localhost";  // means loopback even if no hosts file contains it (RFC 6761, 6.3)
  addrinfo hints{}, *list = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_family = star || local ? AF_INET : AF_UNSPEC;
  hints.ai_flags = (star ? AI_PASSIVE : 0) | AI_NUMERICSERV;
  if (const int error = getaddrinfo(star || local ? nullptr : to.host.c_str(), cat(to.port).c_str(),
                                    &hints, &list);
      error != 0)
    return Status(Code::not_found, cat("'", endpoint, "': host '", to.host,
                                       "' cannot be resolved: ", gai_strerror(error)));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, freeaddrinfo);
  std::memcpy(&out.address, list->ai_addr, list->ai_addrlen);
  out.size = list->ai_addrlen;
  out.zmq = numeric_endpoint(out.address, out.size);
  out.v6 = list->ai_family == AF_INET6;
  if (out.v6) {
    const in6_addr& address = reinterpret_cast<const sockaddr_in6&>(out.address).sin6_addr;
    out.loopback = IN6_IS_ADDR_LOOPBACK(&address);
    out.any = IN6_IS_ADDR_UNSPECIFIED(&address);
  } else {
    const in_addr& address = reinterpret_cast<const sockaddr_in&>(out.address).sin_addr;
    out.loopback = ntohl(address.s_addr) >> 24 == 127;
    out.any = address.s_addr == htonl(INADDR_ANY);
  }
  return out;
}

Result<std::string> tcp_listening_endpoint(const std::string& endpoint) {
  WEFT_TRY_ASSIGN(const TcpAddress to, parse_tcp(endpoint, false));
  // A host name often means loopback on its own machine, and an address on other machines.
  const bool named = endpoint != to.zmq && !endpoint.starts_with("tcp://localhost:");
  if (to.loopback && named) return std::string("tcp://*:0");
  // A connected datagram socket has a local address but has sent nothing.
  const int probe = socket(to.address.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (probe < 0) return system_failure(cat("'", endpoint, "'"), errno);
  sockaddr_storage here{};
  socklen_t size = sizeof here;
  const bool known = connect(probe, reinterpret_cast<const sockaddr*>(&to.address), to.size) == 0 &&
                     getsockname(probe, reinterpret_cast<sockaddr*>(&here), &size) == 0;
  const int error = errno;
  close(probe);
  if (!known) return system_failure(cat("'", endpoint, "': there is no route to it"), error);
  std::string out = numeric_endpoint(here, size);
  out.resize(out.size() - port_of(out).size());
  return out + '0';
}

std::string peer_of(int descriptor, const std::string& bound) {
  sockaddr_storage here{}, there{};
  socklen_t here_size = sizeof here, there_size = sizeof there;
  if (getsockname(descriptor, reinterpret_cast<sockaddr*>(&here), &here_size) != 0 ||
      getpeername(descriptor, reinterpret_cast<sockaddr*>(&there), &there_size) != 0 ||
      here.ss_family != there.ss_family)
    return "";
  switch (here.ss_family) {
    case AF_INET:
    case AF_INET6:
      return port_of(bound) == port_of(numeric_endpoint(here, here_size))
                 ? numeric_endpoint(there, there_size)
                 : "";
    case AF_UNIX: {
      ucred who{};
      socklen_t size = sizeof who;
      const auto& local = reinterpret_cast<const sockaddr_un&>(here);
      if (bound != cat(kIpc, local.sun_path) ||
          getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0)
        return "";
      return cat("process ", who.pid);
    }
    default: return "";
  }
}

uid_t user_of(int descriptor) {
  ucred who{};
  socklen_t size = sizeof who;
  const int got = getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &who, &size);
  return got == 0 ? who.uid : static_cast<uid_t>(-1);
}

void drop_newcomers(int listening) {
  sock_filter drop = BPF_STMT(BPF_RET | BPF_K, 0);
  const sock_fprog program{1, &drop};
  setsockopt(listening, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program);
}

Status check_peer_endpoint(const std::string& endpoint, const std::string& own) {
  constexpr size_t kMost = 300;  // a name of a host has up to 253 bytes
  const std::string scheme = own.substr(0, kTcp.size());
  if (endpoint.size() > kMost)
    return Status(Code::invalid, cat("has ", endpoint.size(), " bytes, expected at most ", kMost));
  if (!endpoint.starts_with(scheme))
    return wrong(endpoint, cat("expected one that begins with ", scheme));
  return scheme == kIpc ? parse_ipc(endpoint).status() : split(endpoint, false).status();
}

Result<std::string> parse_ipc(const std::string& endpoint) {
  std::string path = endpoint.substr(kIpc.size());
  if (path.empty() || path.front() != '/')
    return wrong(endpoint, "expected an absolute path, ipc:///PATH");
  if (path.size() > kLongestPath) return too_long(endpoint, path);
  return path;
}

Result<IpcPlace> IpcPlace::take(const std::string& endpoint) {
  IpcPlace place;
  std::string path = endpoint.substr(kIpc.size());
  if (path.empty() || path == "*") path = default_directory();
  if (path.front() != '/') return wrong(endpoint, "expected an absolute path, ipc:///PATH");
  const bool chooses = path.back() == '/' || is_directory(path);
  if (chooses) {
    while (path.size() > 1 && path.back() == '/') path.pop_back();
    std::string own = cat(path, kOwn);
    if (const std::string socket = own + "/socket"; socket.size() > kLongestPath)
      return too_long(endpoint, socket);
    if (mkdtemp(own.data()) == nullptr)
      return system_failure(cat("'", endpoint, "': cannot make a directory in '", path, "'"),
                            errno);
    place.directory_ = std::move(own);  // from here on it is removed on every failure
    path = place.directory_ + "/socket";
  }
  if (path.size() > kLongestPath) return too_long(endpoint, path);
  if (const std::string parent = path.substr(0, path.rfind('/') + 1); !is_directory(parent))
    return Status(Code::not_found,
                  cat("'", endpoint, "': directory '", parent, "' does not exist"));
  struct stat found {};
  if (lstat(path.c_str(), &found) == 0 && !S_ISSOCK(found.st_mode))
    return wrong(endpoint, cat("'", path, "' exists and is not a socket"));
  int error = 0;
  place.lock_path_ = path + ".lock";
  place.lock_ = lock_file(place.lock_path_, &error);
  if (place.lock_ < 0 && error == EWOULDBLOCK)
    return Status(Code::state, cat("'", endpoint, "': another listener holds this path"));
  if (place.lock_ < 0 && error == EEXIST)
    return wrong(endpoint, cat("'", path, ".lock' exists and is not a lock of weft"));
  if (place.lock_ < 0)
    return system_failure(cat("'", endpoint, "': cannot lock '", path, ".lock'"), error);
  if (is_served(path))
    return Status(Code::state, cat("'", endpoint, "': another program listens at this path"));
  place.path_ = std::move(path);  // from here on it is removed
  return place;
}

void IpcPlace::clear(const std::string& endpoint) {
  const std::string socket = "/socket";
  if (!endpoint.starts_with(kIpc) || !endpoint.ends_with(socket)) return;
  IpcPlace left;
  left.path_ = endpoint.substr(kIpc.size());
  left.lock_path_ = left.path_ + ".lock";
  left.directory_ = left.path_.substr(0, left.path_.size() - socket.size());
  const size_t name = left.directory_.rfind('/') + 1;
  const int lock = left.directory_.compare(name, 5, "weft-") == 0
                       ? open(left.lock_path_.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW)
                       : -1;
  if (lock >= 0 && flock(lock, LOCK_EX | LOCK_NB) == 0) {
    left.lock_ = lock;  // it belongs to this process: the destructor removes it
  } else {
    if (lock >= 0) close(lock);
    left.directory_.clear();
  }
}

IpcPlace::IpcPlace(IpcPlace&& other) noexcept { *this = std::move(other); }

IpcPlace& IpcPlace::operator=(IpcPlace&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(lock_path_, other.lock_path_);
  std::swap(directory_, other.directory_);
  std::swap(lock_, other.lock_);
  return *this;
}

IpcPlace::~IpcPlace() {
  if (lock_ >= 0) {
    unlink(path_.c_str());
    unlink(lock_path_.c_str());  // before closing the descriptor releases the lock
    close(lock_);
  }
  if (!directory_.empty()) rmdir(directory_.c_str());
}

}  // namespace weft

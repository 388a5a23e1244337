// A transport moves whole frames between this process and its peers. It lives on the loop thread;
// none of its calls blocks, except that a host name (not a numeric address) is resolved in listen()
// or dial(). It promises order and wholeness per lane while a connection lives, and nothing across
// a loss: a lost connection is reported and never retried in hiding. Every transport passes
// tests/net/conformance.
//
// Connections and listeners are destroyed before their transport, the transport before its loop: on
// the loop thread, or after run().
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "net/curve.h"

namespace weft {

class Loop;

constexpr int kLanes = 2;  // 0 control, 1 data: neither waits behind the other

// One connection to one peer, with a control and a data lane.
class Connection {
 public:
  // Called on the loop thread, never from inside a call of the connection. Each may destroy the
  // connection.
  class Events {
   public:
    virtual ~Events() = default;
    virtual void connected() = 0;  // dialed connections only
    // The frame is borrowed for the call; it may be at any address, even an odd one.
    virtual void received(int lane, std::span<const std::byte> frame) = 0;
    virtual void sent(uint64_t token) = 0;  // payload of send(token != 0) may be written again
    virtual void disconnected(const std::string& why) = 0;  // once; no event follows
  };
  virtual ~Connection() =
      default;  // closes at once; no event follows. After close_after(): changes nothing
  virtual void start(Events& events) = 0;
  // Joins header (kHeaderBytes) and payload (at most kMaxPayload) into one frame. With token 0 the
  // payload is copied before send returns; otherwise it stays valid until sent(token), and frames
  // leave in order per lane. Frames sent before connected() wait for it; after a loss, or
  // close_after(), they are dropped.
  virtual void send(int lane, std::span<const std::byte> header, std::span<const std::byte> payload,
                    uint64_t token) = 0;
  // Drops the frames whose payload is still borrowed: it is not read any more. For an owner that
  // has failed; the frames would be of no use.
  virtual void forget() = 0;
  // No more frames from here and no more events; what was sent still leaves, for at most that long,
  // also if the connection is destroyed meanwhile. Payloads whose sent(token) has not come are
  // copied.
  virtual void close_after(int64_t linger_ms) = 0;
  // Whom it is with, as far as the system tells: "tcp://127.0.0.1:40123", "process 4711", where it
  // was dialed; or empty.
  virtual const std::string& peer() const = 0;
  // The public key that the peer has proved to own; null where nothing is encrypted.
  virtual const PublicKey* key() const = 0;
  // Of a dialed connection that is not connected yet: what became of the last try; empty while
  // nothing did.
  virtual const std::string& trouble() const = 0;
};

class Listener {
 public:
  // Over tcp the address does not answer any more, elsewhere a new connection is closed. Peers that
  // were accepted stay, and hold the address until they go.
  virtual ~Listener() = default;
  virtual std::string endpoint()
      const = 0;  // as a peer may dial it: "tcp://127.0.0.1:40123", "ipc:///run/.../rank0"
};

// Connections over tcp are encrypted, and both ends prove who they are, unless `insecure`. Those
// over ipc are not: the file system says who may connect.
struct Security {
  bool insecure = false;
  KeyPair own;                // of this process
  bool shared_memory = true;  // over ipc, large payloads go through memory that both ends share
};

// Whom a connection is dialed to, and as whom. The pair is borrowed for the call.
struct DialKeys {
  PublicKey server;
  const KeyPair& own;
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual bool encrypts() const = 0;
  // Replaces the keys of those who may connect to the listeners of a transport that encrypts; none
  // until then. Connections that are there stay. `more`: other keys follow, and a peer with another
  // key is told to try again; otherwise it is told that it is refused.
  virtual void admit(std::vector<PublicKey> keys, bool more) = 0;
  // Accepts peers at an endpoint:
  //   tcp://HOST:PORT  port 0 chooses one
  //   ipc://PATH       a socket file, which others cannot take while we listen and which is removed
  //   at the end; a PATH that is a directory,
  //                    or empty (then under XDG_RUNTIME_DIR or the directory for temporary files),
  //                    chooses one of its own in mode 0700
  // Each new peer is handed over as a connection that is connected already; it is started within
  // the call, or given up. `refused` hears of whoever came and was no peer of weft's:
  // Connection::peer() of it, and what was wrong. Once per connection of the system's; other peers
  // are not disturbed. Neither callback destroys the listener.
  virtual Result<std::unique_ptr<Listener>> listen(
      const std::string& endpoint, std::function<void(std::unique_ptr<Connection>)> accepted,
      std::function<void(const std::string& peer, const std::string& why)> refused) = 0;
  // The connection is started before the loop turns. While nobody listens there, or what listens
  // hangs up without a word, it stays pending and tries again a few times a second: the owner's
  // deadline ends it. Once somebody answers, a failure is final and told by disconnected(). `keys`
  // are needed by a transport that encrypts, and unused by another. There what hangs up during the
  // handshake for 5 s is a failure, too: a listener that has another key than was expected says
  // nothing else.
  virtual Result<std::unique_ptr<Connection>> dial(const std::string& endpoint,
                                                   const DialKeys* keys) = 0;
  // Where to listen so that whoever is at `endpoint`, or can be reached from there, can dial this
  // process.
  virtual Result<std::string> door(const std::string& endpoint) = 0;
  // Removes files that a listener of this machine left at its endpoint because it was killed; one
  // that lives keeps them.
  virtual void clear(const std::string& endpoint) = 0;
};

// The transport for an endpoint's scheme ("tcp://", "ipc://"; a whole endpoint will do); errors
// name the endpoint and the known schemes.
Result<std::unique_ptr<Transport>> make_transport(Loop& loop, const std::string& scheme,
                                                  const Security& security);

// The endpoint with the address of its host in the place of a name, for dial(). Any thread; an
// answer may take long.
Result<std::string> resolve(const std::string& endpoint);

}  // namespace weft

// The texts that keys travel in: what rank 0 prints for those who shall join, and the list of those
// who may.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "net/curve.h"

namespace weft {

// Where rank 0 listens, as a process that joins is told: "tcp://HOST:PORT?key=KEY" with rank 0's
// public key, or with that and the secret key of the candidates of a run, which is then the
// permission to join. Without a key nothing is encrypted.
struct JoinAddress {
  std::string endpoint;
  std::optional<PublicKey> server;
  std::optional<KeyPair> candidate;
};
// Errors do not show the key.
Result<JoinAddress> parse_join(const std::string& text);
std::string join_text(const std::string& endpoint, const PublicKey& server,
                      const SecretKey& candidate);

// One public key per line; what follows after a space is a comment, and so are lines that begin
// with '#'.
Result<std::vector<PublicKey>> parse_allowed(const std::string& text);

}  // namespace weft

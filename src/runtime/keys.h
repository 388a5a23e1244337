// The text forms of keys: the address that rank 0 prints for processes that join, and the list of
// the allowed public keys.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "net/curve.h"

namespace weft {

// The address of rank 0 for a process that joins: "tcp://HOST:PORT?key=KEY". KEY is the public key
// of rank 0, optionally followed by the secret key of the candidates of the run, which is then the
// permission to join. Without KEY nothing is encrypted.
struct JoinAddress {
  std::string endpoint;
  std::optional<PublicKey> server;
  std::optional<KeyPair> candidate;
};
// Errors do not show the key.
Result<JoinAddress> parse_join(const std::string& text);
std::string join_text(const std::string& endpoint, const PublicKey& server,
                      const SecretKey& candidate);

// One public key per line. Text after a space is a comment, and so are lines that begin with
// '#'.
Result<std::vector<PublicKey>> parse_allowed(const std::string& text);

}  // namespace weft

// Keys of CURVE, ZeroMQ's encryption: 32 bytes each, written as 64 hexadecimal digits. A secret is
// overwritten when its owner is destroyed.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "base/result.h"

namespace weft {

constexpr size_t kKeyBytes = 32, kKeyDigits = 2 * kKeyBytes;

using PublicKey = std::array<unsigned char, kKeyBytes>;

class SecretKey {
 public:
  using Bytes = std::array<unsigned char, kKeyBytes>;
  SecretKey() = default;
  explicit SecretKey(const Bytes& bytes) : bytes_(bytes) {}
  SecretKey(const SecretKey&) = default;
  SecretKey& operator=(const SecretKey&) = default;
  ~SecretKey();
  const Bytes& bytes() const { return bytes_; }

 private:
  Bytes bytes_{};
};

struct KeyPair {
  PublicKey public_key{};
  SecretKey secret;

  static Result<KeyPair> make();  // from random numbers of the system
  static Result<KeyPair> of(const SecretKey& secret);
};

// Overwrites the characters of the text, also after its end.
void wipe(std::string& text);

std::string key_text(const std::array<unsigned char, kKeyBytes>& key);
// Errors name `what` and never the text, which may be a secret.
Result<PublicKey> read_public_key(std::string_view text, std::string_view what);
Result<SecretKey> read_secret_key(std::string_view text, std::string_view what);

}  // namespace weft

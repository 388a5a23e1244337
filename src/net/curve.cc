#include "net/curve.h"

#include <string.h>
#include <sys/random.h>
#include <zmq.h>

#include "base/hex.h"
#include "base/text.h"

namespace weft {

namespace {

constexpr size_t kZ85Text = 41;  // the form of a key in ZeroMQ, with its NUL

int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

Result<SecretKey> read_key(std::string_view text, std::string_view what) {
  const Status wrong(Code::invalid,
                     cat(what, ": expected a key of ", kKeyDigits, " digits 0 to 9 and a to f"));
  if (text.size() != kKeyDigits) return wrong;
  SecretKey::Bytes out{};
  for (size_t i = 0; i < kKeyBytes; ++i) {
    const int high = digit_of(text[2 * i]), low = digit_of(text[2 * i + 1]);
    if (high < 0 || low < 0) return wrong;
    out[i] = static_cast<unsigned char>(16 * high + low);
  }
  const SecretKey key(out);
  explicit_bzero(out.data(), out.size());
  return key;
}

}  // namespace

SecretKey::~SecretKey() { explicit_bzero(bytes_.data(), bytes_.size()); }

void wipe(std::string& text) {
  text.resize(text.capacity());
  explicit_bzero(text.data(), text.size());
  text.clear();
}

Result<KeyPair> KeyPair::make() {
  SecretKey::Bytes bytes{};
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    return Status(Code::io, "the system provides no random numbers");
  const SecretKey secret(bytes);
  explicit_bzero(bytes.data(), bytes.size());
  return of(secret);
}

Result<KeyPair> KeyPair::of(const SecretKey& secret) {
  KeyPair out;
  out.secret = secret;
  char secret_text[kZ85Text] = "", public_text[kZ85Text] = "";
  const bool derived = zmq_z85_encode(secret_text, secret.bytes().data(), kKeyBytes) != nullptr &&
                       zmq_curve_public(public_text, secret_text) == 0 &&
                       zmq_z85_decode(out.public_key.data(), public_text) != nullptr;
  explicit_bzero(secret_text, sizeof secret_text);
  if (!derived) return Status(Code::unsupported, "this build of ZeroMQ has no encryption (CURVE)");
  return out;
}

std::string key_text(const std::array<unsigned char, kKeyBytes>& key) {
  std::string out;
  out.reserve(kKeyDigits);
  for (const unsigned char byte : key) append_hex(out, byte, 2);
  return out;
}

Result<PublicKey> read_public_key(std::string_view text, std::string_view what) {
  WEFT_TRY_ASSIGN(const SecretKey key, read_key(text, what));
  return key.bytes();
}

Result<SecretKey> read_secret_key(std::string_view text, std::string_view what) {
  return read_key(text, what);
}

}  // namespace weft

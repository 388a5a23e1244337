#include "runtime/keys.h"

#include <algorithm>

#include "base/text.h"

namespace weft {

namespace {
constexpr std::string_view kMark = "?key=", kSpace = " \t\r";
}  // namespace

Result<JoinAddress> parse_join(const std::string& text) {
  JoinAddress out;
  const size_t mark = text.starts_with("ipc://") ? std::string::npos : text.find('?');
  out.endpoint = text.substr(0, mark);
  if (mark == std::string::npos) return out;
  const std::string_view rest = std::string_view(text).substr(mark);
  const std::string what = cat("'", out.endpoint, "?key=...'");
  const bool candidate = rest.size() == kMark.size() + 2 * kKeyDigits;
  if (!rest.starts_with(kMark) || (!candidate && rest.size() != kMark.size() + kKeyDigits))
    return Status(Code::invalid,
                  cat(what, ": expected tcp://HOST:PORT?key=KEY with a key of ", kKeyDigits, " or ",
                      2 * kKeyDigits, " digits 0 to 9 and a to f"));
  WEFT_TRY_ASSIGN(out.server, read_public_key(rest.substr(kMark.size(), kKeyDigits), what));
  if (!candidate) return out;
  WEFT_TRY_ASSIGN(const SecretKey secret,
                  read_secret_key(rest.substr(kMark.size() + kKeyDigits), what));
  WEFT_TRY_ASSIGN(out.candidate, KeyPair::of(secret));
  return out;
}

std::string join_text(const std::string& endpoint, const PublicKey& server,
                      const SecretKey& candidate) {
  std::string out, secret = key_text(candidate.bytes());
  out.reserve(endpoint.size() + kMark.size() + 2 * kKeyDigits);  // a text that grows leaves copies
  append(out, endpoint, kMark, key_text(server), secret);
  wipe(secret);
  return out;
}

Result<std::vector<PublicKey>> parse_allowed(const std::string& text) {
  std::vector<PublicKey> out;
  size_t number = 0;
  for (std::string_view rest = text; !rest.empty();) {
    std::string_view line = take_item(rest, '\n');
    ++number;
    line.remove_prefix(std::min(line.find_first_not_of(kSpace), line.size()));
    line = line.substr(0, line.find_first_of(kSpace));
    if (line.empty() || line.front() == '#') continue;
    WEFT_TRY_ASSIGN(const PublicKey key,
                    read_public_key(line, cat("line ", number, " of the allowed keys")));
    out.push_back(key);
  }
  return out;
}

}  // namespace weft

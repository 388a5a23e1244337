#include <algorithm>
#include <cerrno>
#include <cstring>

#include "api/run_handle.h"

using namespace weft;
using namespace weft::api;

namespace {

// In milliseconds, rounded up. Ranks send it to each other as a uint32_t.
Result<int64_t> timeout_of(const char* field, int64_t ns, int64_t least_ms) {
  constexpr int64_t kMost = int64_t{UINT32_MAX} * kMillisecond;
  if (ns < least_ms * kMillisecond || ns > kMost)
    return Status(Code::invalid, cat("weft_mesh_config.", field, " is ", ns, ", expected ",
                                     least_ms * kMillisecond, " to ", kMost));
  return ns / kMillisecond + (ns % kMillisecond != 0);
}

Result<MeshOptions> options_of(const weft_mesh_config* config) {
  weft_mesh_config c;
  WEFT_TRY(read_config(config, "weft_mesh_config", c));
  if (c.flags & ~uint32_t{WEFT_MESH_INSECURE})
    return Status(Code::invalid, cat("weft_mesh_config.flags are ", c.flags,
                                     ", expected 0 or WEFT_MESH_INSECURE"));
  MeshOptions out;
  if (c.endpoint) out.endpoint = c.endpoint;
  if (c.listen) out.listen = c.listen;
  out.insecure = c.flags & WEFT_MESH_INSECURE;
  if (c.rank < 1 && c.rank != WEFT_ANY_RANK)
    return Status(Code::invalid, cat("weft_mesh_config.rank is ", c.rank,
                                     ", expected 1 or more, or WEFT_ANY_RANK"));
  out.rank = c.rank;
  WEFT_TRY_ASSIGN(out.join_timeout_ms, timeout_of("join_timeout_ns", c.join_timeout_ns, 1));
  WEFT_TRY_ASSIGN(out.peer_timeout_ms,
                  timeout_of("peer_timeout_ns", c.peer_timeout_ns, kLeastSilence));
  if (c.key) {
    WEFT_TRY_ASSIGN(out.key, read_secret_key(c.key, "weft_mesh_config.key"));
  }
  if (c.allow) {
    WEFT_TRY_ASSIGN(out.allowed, parse_allowed(c.allow));
  }
  return out;
}

Status copy_key(const std::array<unsigned char, kKeyBytes>& key, char* out) {
  static_assert(WEFT_KEY_SIZE == kKeyDigits + 1);
  std::string text = key_text(key);
  std::memcpy(out, text.c_str(), WEFT_KEY_SIZE);
  wipe(text);
  return {};
}

}  // namespace

weft_status weft_mesh_listen(const weft_mesh_config* config, weft_mesh** out, weft_error* err) {
  return guard(err, [&]() -> Status {
    WEFT_TRY(require(out, "out"));
    WEFT_TRY_ASSIGN(const MeshOptions options, options_of(config));
    WEFT_TRY_ASSIGN(auto mesh, Mesh::listen(options));
    *out = new weft_mesh{.mesh = std::move(mesh), .mutex = {}, .runs = {}};
    return {};
  });
}

weft_status weft_mesh_join(const weft_mesh_config* config, weft_mesh** out, weft_error* err) {
  return guard(err, [&]() -> Status {
    WEFT_TRY(require(out, "out"));
    WEFT_TRY_ASSIGN(const MeshOptions options, options_of(config));
    if (options.endpoint.empty())
      return Status(Code::invalid,
                    "weft_mesh_config.endpoint is missing; it is where rank 0 listens");
    WEFT_TRY_ASSIGN(auto mesh, Mesh::join(options));
    *out = new weft_mesh{.mesh = std::move(mesh), .mutex = {}, .runs = {}};
    return {};
  });
}

const char* weft_mesh_endpoint(const weft_mesh* mesh) {
  return mesh ? mesh->mesh->endpoint().c_str() : "";
}

const char* weft_mesh_join_endpoint(const weft_mesh* mesh) {
  return mesh ? mesh->mesh->join_text().c_str() : "";
}

weft_status weft_key_new(char* secret, weft_error* err) {
  return guard(err, [&]() -> Status {
    WEFT_TRY(require(secret, "secret"));
    WEFT_TRY_ASSIGN(const KeyPair pair, KeyPair::make());
    return copy_key(pair.secret.bytes(), secret);
  });
}

weft_status weft_key_public(const char* secret, char* public_key, weft_error* err) {
  return guard(err, [&]() -> Status {
    WEFT_TRY(require(secret, "secret"));
    WEFT_TRY(require(public_key, "public_key"));
    WEFT_TRY_ASSIGN(const SecretKey key, read_secret_key(secret, "secret"));
    WEFT_TRY_ASSIGN(const KeyPair pair, KeyPair::of(key));
    return copy_key(pair.public_key, public_key);
  });
}

void weft_mesh_cancel(weft_mesh* mesh) {
  const int kept = errno;  // the function may be called in a signal handler
  if (mesh) mesh->mesh->cancel();
  errno = kept;
}

void weft_mesh_free(weft_mesh* mesh) {
  while (mesh && !mesh->runs.empty()) mesh->runs.back()->end();
  delete mesh;
}

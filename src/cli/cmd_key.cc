// weft key
#include <unistd.h>

#include "cli/command.h"
#include "cli/console.h"
#include "cli/handles.h"
#include "cli/secrets.h"

namespace weft::cli {

namespace {

Outcome show_key(const std::string& path) {
  weft_error err = sized<weft_error>();
  std::string secret;
  if (access(path.c_str(), F_OK) == 0) {
    CLI_TRY(read_secret(path, secret));
  } else {
    char made[WEFT_KEY_SIZE];
    CLI_CALL(weft_key_new(made, &err));
    secret = made;
    CLI_TRY(write_secret(path, secret, false));
  }
  char public_key[WEFT_KEY_SIZE];
  const weft_status status = weft_key_public(secret.c_str(), public_key, &err);
  wipe(secret);
  if (status < 0) return {kBadInput, "'" + path + "' does not contain a secret key of weft", ""};
  print_line(public_key);
  return {};
}

}  // namespace

Action add_key(Parser& parser) {
  auto path = std::make_shared<std::string>();
  parser.add("FILE", *path, "File with the secret key. It is created if it does not exist")
      .required()
      .type("");
  return [path] { return show_key(*path); };
}

}  // namespace weft::cli

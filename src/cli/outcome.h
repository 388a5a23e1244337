// How a command ends: an exit status, and for a failure one line and a hint.
#pragma once

#include <string>

#include "weft.h"

namespace weft::cli {

// The exit statuses of weft(1). On a signal: 128 plus its number.
enum Exit {
  kDone = 0,
  kFailed = 1,
  kUsage = 2,
  kBadInput = 3,  // model, plan, data, checkpoint
  kLost = 4,      // another rank, or the way to it
  kResource = 5,  // memory, limits
};

struct [[nodiscard]] Outcome {
  int exit = kDone;
  std::string text, hint;  // without "weft: command: "

  bool ok() const { return exit == kDone; }
};

// The system's words for an error, in lower case like all others.
std::string reason(int error);

// A failed call of the library; `text` stands for what no error tells.
Outcome failed(weft_status status, const weft_error& err, const std::string& hint = "");

}  // namespace weft::cli

#define CLI_TRY(expr)                                                                        \
  do {                                                                                       \
    if (::weft::cli::Outcome cli_outcome_ = (expr); !cli_outcome_.ok()) return cli_outcome_; \
  } while (0)

// Calls the library and fails as it does; a weft_error named `err` is in scope.
#define CLI_CALL(expr)                                                                                         \
  do {                                                                                                         \
    if (const weft_status cli_status_ = (expr); cli_status_ < 0) return ::weft::cli::failed(cli_status_, err); \
  } while (0)

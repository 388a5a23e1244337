// The end of a command: an exit status, and on failure a message and a hint.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "weft.h"

namespace weft::cli {

// The exit statuses of weft(1). On a signal: 128 plus its number.
enum Exit {
  kDone = 0,
  kFailed = 1,
  kUsage = 2,
  kBadInput = 3,  // model, plan, data, checkpoint
  kLost = 4,      // another rank, or the connection to it
  kResource = 5,  // memory, limits
};

struct [[nodiscard]] Outcome {
  int exit = kDone;
  std::string text, hint;  // without "weft: command: "

  bool ok() const { return exit == kDone; }
};

// The system's message for an error, in lower case like all other messages.
std::string reason(int error);

// The outcome of a failed call of the library.
Outcome failed(weft_status status, const weft_error& err, const std::string& hint = "");
// That of an event that reports a failure.
Outcome failed(const weft_event& event);
// Names the file that a failure is about, if the text of the library begins with one of these. The
// file replaces "plan", which the text may begin with.
Outcome about_file(Outcome failure, const std::string& path,
                   std::initializer_list<std::string_view> begins);
// Of an option that cannot be combined with another one. `other` may end with the reason.
Outcome not_combined(const std::string& option, const std::string& other,
                     const std::string& hint = "remove one of the two");

}  // namespace weft::cli

#define CLI_TRY(expr)                                                                        \
  do {                                                                                       \
    if (::weft::cli::Outcome cli_outcome_ = (expr); !cli_outcome_.ok()) return cli_outcome_; \
  } while (0)

// Calls the library and returns its failure. A weft_error named `err` must be in scope.
#define CLI_CALL(expr)                                           \
  do {                                                           \
    if (const weft_status cli_status_ = (expr); cli_status_ < 0) \
      return ::weft::cli::failed(cli_status_, err);              \
  } while (0)

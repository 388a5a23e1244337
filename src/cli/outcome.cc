#include "cli/outcome.h"
#include "cli/handles.h"

#include <algorithm>
#include <cctype>
#include <system_error>

namespace weft::cli {

namespace {

Exit exit_of(weft_status status) {
  switch (status) {
    case WEFT_EINVAL:
    case WEFT_ENOENT:
    case WEFT_EDATA:
    case WEFT_ENOTSUP: return kBadInput;
    case WEFT_EPEER:
    case WEFT_EPROTO:
    case WEFT_ETIMEDOUT:
    case WEFT_ECANCELED: return kLost;
    case WEFT_ENOMEM: return kResource;
    default: return kFailed;
  }
}

}  // namespace

std::string reason(int error) {
  std::string text = std::generic_category().message(error);
  if (text.size() > 1 && text[1] >= 'a' && text[1] <= 'z')
    text[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(text[0])));
  return text;
}

Outcome failed(weft_status status, const weft_error& err, const std::string& hint) {
  const bool told = err.text[0] != 0;
  return {exit_of(status), told ? err.text : weft_status_text(status), hint};
}

Outcome failed(const weft_event& event) {
  Outcome out = failed(event.status, sized<weft_error>());
  if (event.text) out.text = event.text;
  return out;
}

Outcome about_file(Outcome failure, const std::string& path,
                   std::initializer_list<std::string_view> begins) {
  constexpr std::string_view kPlan = "plan: ";
  std::string_view text = failure.text;
  if (text.starts_with(kPlan)) text.remove_prefix(kPlan.size());
  const bool is_about = std::any_of(begins.begin(), begins.end(), [text](std::string_view begin) {
    return text.starts_with(begin);
  });
  if (!path.empty() && is_about) failure.text = path + ": " + std::string(text);
  return failure;
}

Outcome not_combined(const std::string& option, const std::string& other, const std::string& hint) {
  return {kUsage, option + " cannot be combined with " + other, hint};
}

}  // namespace weft::cli

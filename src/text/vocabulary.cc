#include "text/vocabulary.h"

#include <algorithm>

#include "base/text.h"

namespace weft {

Status Vocabulary::add(std::string token, uint64_t id) {
  if (id >= kMostIds)
    return Status(Code::data,
                  cat("token ", shown(token), " has id ", id, ", expected 0 to ", kMostIds - 1));
  const auto number = static_cast<uint32_t>(id);
  if (const std::string* other = this->token(number))
    return Status(Code::data,
                  cat("tokens ", shown(*other), " and ", shown(token), " have the same id ", id));
  const auto [at, added] = ids_.emplace(std::move(token), number);
  if (!added) return Status(Code::data, cat("token ", shown(at->first), " occurs twice"));
  tokens_.emplace(number, &at->first);
  end_ = std::max(end_, number + 1);
  return {};
}

std::optional<uint32_t> Vocabulary::id(std::string_view token) const {
  const auto at = ids_.find(token);
  if (at == ids_.end()) return std::nullopt;
  return at->second;
}

const std::string* Vocabulary::token(uint32_t id) const {
  const auto at = tokens_.find(id);
  return at == tokens_.end() ? nullptr : at->second;
}

}  // namespace weft

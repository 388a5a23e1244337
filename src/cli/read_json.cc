#include "cli/read_json.h"

namespace weft::cli {

nlohmann::json read_json(std::string_view text) {
  using Json = nlohmann::json;
  bool too_deep = false;
  const auto keep = [&](int level, Json::parse_event_t event, const Json&) {
    const bool opens =
        event == Json::parse_event_t::object_start || event == Json::parse_event_t::array_start;
    if (!opens || level < kMostJsonLevels) return true;
    too_deep = true;
    return false;
  };
  Json out = Json::parse(text, keep, false);
  return too_deep ? Json(Json::value_t::discarded) : out;
}

}  // namespace weft::cli

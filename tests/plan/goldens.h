// Golden timetables: every schedule of the table, drawn (timetable() in player.h says how).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "schedule/schedule.h"

namespace weft {

struct Golden {
  std::string_view name;
  ScheduleSizes sizes;
  std::vector<std::string> rows;
};

const std::vector<Golden>& goldens();

}  // namespace weft

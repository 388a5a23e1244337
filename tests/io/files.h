// Functions that read and write whole files, and a directory for them.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <set>
#include <string>
#include <string_view>

#include "base/status.h"
#include "support/directory.h"

namespace weft::test {

inline std::set<std::string> names_in(const std::string& path) {
  std::set<std::string> out;
  for (const auto& entry : std::filesystem::directory_iterator(path))
    out.insert(entry.path().filename().string());
  return out;
}

inline std::string slurp(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void spill(const std::string& path, std::string_view bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  EXPECT_TRUE(file.good()) << path;
}

// For EXPECT_TRUE: the failure says what the status says.
inline testing::AssertionResult fine(const Status& status) {
  return status.ok() ? testing::AssertionSuccess() : testing::AssertionFailure() << status.text();
}

inline testing::AssertionResult says(const Status& status,
                                     std::initializer_list<std::string_view> parts) {
  if (status.ok()) return testing::AssertionFailure() << "succeeded";
  for (const std::string_view part : parts)
    if (status.text().find(part) == std::string::npos)
      return testing::AssertionFailure()
             << "says '" << status.text() << "', without '" << part << "'";
  return testing::AssertionSuccess();
}

}  // namespace weft::test

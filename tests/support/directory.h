// A directory for the files of a test.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

namespace weft::test {

// Empty, and removed with all that is in it.
class Directory {
 public:
  Directory() {
    // In memory where that is possible: thousands of files are written, and what survives a power
    // cut is not tested here.
    std::string name = "/dev/shm/weft-test-XXXXXX";
    if (!mkdtemp(name.data())) {
      name = (std::filesystem::temp_directory_path() / "weft-test-XXXXXX").string();
      if (!mkdtemp(name.data())) ADD_FAILURE() << "cannot make a directory " << name;
    }
    path_ = name;
  }
  ~Directory() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;

  std::string operator/(std::string_view name) const { return path_ + "/" + std::string(name); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace weft::test

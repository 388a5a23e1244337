// The conformance suite of transports: one row per scheme, and variants of two. A test for all of
// them is a TEST_P(Conformance, ...).
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "peers.h"
#include "support/directory.h"

namespace weft::test {

// Sockets, event descriptors and files. Not pipes: libuv keeps one for signals from the first loop
// on, a sanitizer one to its symbolizer.
inline int open_descriptors() {
  int count = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
    if (!std::filesystem::read_symlink(entry.path(), error).string().starts_with("pipe:")) ++count;
  return count;
}

struct Row {
  const char* name;
  const char* scheme;
  const char* variable;  // of the environment, for the transports of the test
};

inline void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

class Conformance : public testing::TestWithParam<Row> {
 protected:
  void SetUp() override {
    test_keys();
    if (GetParam().variable) setenv(GetParam().variable, "1", 1);
    descriptors_ = open_descriptors();
  }
  // Every test leaves nothing behind.
  void TearDown() override {
    EXPECT_EQ(open_descriptors(), descriptors_);
    for (const auto& left : std::filesystem::recursive_directory_iterator(directory_.path()))
      ADD_FAILURE() << "left: " << left.path();
    if (GetParam().variable) unsetenv(GetParam().variable);
  }
  std::string scheme() const { return GetParam().scheme; }
  bool is_ipc() const { return scheme() == "ipc://"; }
  // Somewhere to listen.
  std::string place() const {
    return is_ipc() ? "ipc://" + directory_.path() : "tcp://127.0.0.1:0";
  }

  // Both ends of a connection within one transport.
  struct Pair {
    std::unique_ptr<End> dialed;
    End* accepted = nullptr;
  };
  Pair connect(Net& net) {
    if (!net.listener) {
      const Status status = net.listen(place());
      EXPECT_TRUE(status.ok()) << status.text();
    }
    const size_t before = net.accepted.size();
    Pair pair{net.dial(net.listener->endpoint()), nullptr};
    EXPECT_TRUE(net.until(
        [&] { return pair.dialed->times_connected == 1 && net.accepted.size() == before + 1; }));
    pair.accepted = net.accepted.back().get();
    return pair;
  }

  const test::Directory directory_;
  int descriptors_ = 0;
};

}  // namespace weft::test

// One fault of each kind that the sanitizer of this build is there for. The test passes when the
// program fails: a sanitizer that only prints, or is suppressed too widely, would make every other
// test of the build worthless.
//
// usage: fault overflow | heap | race
#include <cstdio>
#include <string_view>
#include <thread>

int main(int argc, char** argv) {
  const std::string_view kind = argc > 1 ? argv[1] : "";
  volatile int value = 2147483647;
  volatile int one = 1;
  int shared = 0;
  if (kind == "overflow") {
    value = value + one;
  } else if (kind == "heap") {
    int* block = new int[4]{};
    value = block[3 + one];
    delete[] block;
  } else if (kind == "race") {
    std::thread first([&] { ++shared; });
    std::thread second([&] { ++shared; });
    first.join();
    second.join();
  } else {
    std::printf("unknown kind of fault\n");
    return 0;  // counts as a failure of the test
  }
  std::printf("%d %d: not noticed\n", value, shared);
  return 0;
}

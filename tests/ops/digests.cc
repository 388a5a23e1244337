// Prints a digest of the results of each case. With one numeric profile, builds for different
// processors print the same; tools/test --extended compares them.
#include <cstdio>

#include "base/hash.h"
#include "ops/problem.h"

int main() {
  using namespace weft;
  for (const test::OpCase& c : test::op_cases()) {
    const test::Results results = run(test::problem_of(c), {});
    Hasher hasher;
    hasher.text(results.error).bytes(results.out.data(), results.out.size());
    for (const auto* parts : {&results.stash, &results.din, &results.acc})
      for (const test::Bytes& part : *parts) hasher.bytes(part.data(), part.size());
    std::printf("%s %s\n", c.name.c_str(), hasher.finish().hex().c_str());
  }
  return 0;
}

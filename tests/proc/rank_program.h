// A program that is rank 0 or any other rank and uses only the public header: the process tests run
// it. Options have the form "name=value".
#pragma once

#include <weft.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "support/config.h"

namespace weft::test {

using Options = std::map<std::string, std::string>;

// A plan of a small residual network (width 32, 8 layers), with the options `ranks`, `schedule`,
// `seed`, `cut`, `micro`. With `mesh` "2x2x2" it has two replicas of two stages, each shared by two
// ranks; with `user_op` "yes" it has a node of a user op.
struct Program {
  weft_model* model = nullptr;
  weft_plan* plan = nullptr;
  ~Program();
};
void make_program(const Options& options, Program& out);

// What rank 0 saw.
struct Outcome {
  weft_status status = 0;
  std::string text;  // of the failure, as are the facts; its pointers are those of the run
  weft_failure failure = sized<weft_failure>();
  std::vector<uint32_t> stages;
  std::vector<double> losses;
  std::string digest;
};
// Submits and polls `steps` steps (batches are drawn from the step's number); between steps calls
// `after(step)`.
Outcome train(weft_run* run, int steps, const std::function<void(int)>& after = nullptr);

// A rank other than 0: joins options["join"], serves, and returns the exit status of the command:
// 0, 3 (refused) or 4 (a rank was lost). The last line of standard error says why.
int serve(const Options& options);

// This process is killed by SIGALRM after options["dies_after_us"] microseconds, if that is given.
void die_soon(const Options& options);

// This program again, as a child with these options.
class Child {
 public:
  Child(const Options& options, const std::string& log);
  ~Child();  // kills what still runs
  Child(Child&& other) noexcept : pid_(other.pid_), log_(other.log_) { other.pid_ = 0; }
  int pid() const { return pid_; }
  void signal(int number) const;
  // The exit status (128 + n for signal n), or -1 if the child still runs after that time.
  int wait(int milliseconds);
  std::string last_line() const;

 private:
  int pid_;
  std::string log_;
};

}  // namespace weft::test

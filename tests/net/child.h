// The test binary itself as another process, which can be killed.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <utility>

extern char** environ;

namespace weft::test {

class Child {
 public:
  // `role` is "dial", "listen" or "answer" (listens, answers one frame and goes). What the child
  // prints is read with read_line().
  Child(const std::string& role, const std::string& endpoint) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    std::string self = "/proc/self/exe", flag = "--child", r = role, e = endpoint;
    char* args[] = {self.data(), flag.data(), r.data(), e.data(), nullptr};
    if (posix_spawn(&pid_, self.c_str(), &actions, nullptr, args, environ) != 0) pid_ = -1;
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    out_ = ends[0];
  }
  ~Child() {
    kill_now();
    if (out_ >= 0) close(out_);
  }
  std::string read_line() {
    std::string line;
    for (char c; read(out_, &c, 1) == 1 && c != '\n';) line += c;
    return line;
  }
  // Waits until it has ended by itself; its exit status, -1 if a signal ended it.
  int wait() {
    int status = 0;
    waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  void stop_now() const { kill(pid_, SIGSTOP); }
  void kill_now() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    pid_ = -1;
  }

 private:
  pid_t pid_ = -1;
  int out_ = -1;
};

int child_main(const std::string& role, const std::string& endpoint);

}  // namespace weft::test

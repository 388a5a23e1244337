// A file that takes the place of another one: whole at any moment, with the access of the old one,
// and nothing else is touched.
#include "io/replacement.h"

#include <gtest/gtest.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <set>

#include "files.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using test::Directory;
using test::fine;
using test::names_in;
using test::says;
using test::slurp;
using test::spill;

mode_t mode_of(const std::string& path) {
  struct stat info {};
  EXPECT_EQ(stat(path.c_str(), &info), 0) << path;
  return info.st_mode & 07777;
}

// The name of the only file in the directory that is hidden.
std::string hidden_in(const std::string& directory) {
  std::string out;
  for (const std::string& name : names_in(directory))
    if (name.starts_with('.')) out += out.empty() ? name : " and " + name;
  return out;
}

Status write(Replacement& replacement, std::string_view text) {
  return replacement.file().write(0, text.data(), text.size());
}

// Something prints to a standard descriptor that was closed, while a file is open.
void print_beside(const std::string& path) {
  for (const int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) close(standard);
  auto file = Replacement::create(path);
  bool wrote = file.ok() && write(file.value(), "kept").ok();
  for (const int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    wrote = wrote && ::write(standard, "lost", 4) < 0;
  std::_Exit(wrote && file.value().commit().ok() ? 0 : 1);
}

TEST(ReplacementDeathTest, IsNoStandardDescriptor) {
  const Directory directory;
  EXPECT_EXIT(print_beside(directory / "x"), testing::ExitedWithCode(0), "");
  EXPECT_EQ(slurp(directory / "x"), "kept");
}

TEST(Replacement, TwoOfOnePathHaveTheirOwnFiles) {
  const Directory directory;
  const std::string path = directory / "x";
  auto first = Replacement::create(path), second = Replacement::create(path);
  ASSERT_TRUE(fine(first.status()) && fine(second.status()));
  ASSERT_TRUE(fine(write(first.value(), "first")) && fine(write(second.value(), "second")));
  ASSERT_TRUE(fine(second.value().commit()));
  EXPECT_EQ(slurp(path), "second");
  ASSERT_TRUE(fine(first.value().commit()));
  EXPECT_EQ(slurp(path), "first");
  EXPECT_EQ(names_in(directory.path()), (std::set<std::string>{"x"}));
}

TEST(Replacement, ProcessesThatReplaceOneFileDoNotFailAndItIsAlwaysWhole) {
  const Directory directory;
  const std::string path = directory / "x";
  constexpr int kProcesses = 3, kTimes = 300;
  const auto text_of = [](int process) {
    return std::string(1000 * static_cast<size_t>(process + 1), static_cast<char>('a' + process));
  };
  std::set<std::string> whole = {text_of(kProcesses)};
  ASSERT_TRUE(fine(replace_text(path, text_of(kProcesses))));
  pid_t children[kProcesses];
  for (int i = 0; i < kProcesses; ++i) {
    whole.insert(text_of(i));
    children[i] = fork();
    ASSERT_GE(children[i], 0);
    if (children[i] > 0) continue;
    for (int k = 0; k < kTimes; ++k)
      if (const Status status = replace_text(path, text_of(i)); !status.ok()) {
        fprintf(stderr, "%s\n", status.text().c_str());
        _exit(1);
      }
    _exit(0);
  }
  for (int k = 0; k < kTimes; ++k) ASSERT_TRUE(whole.contains(slurp(path))) << k;
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  EXPECT_EQ(names_in(directory.path()), (std::set<std::string>{"x"}));
}

TEST(Replacement, WhatAProcessLeftThatEndedIsRemoved) {
  const Directory directory;
  const std::string path = directory / "x";
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto lost = Replacement::create(path);
    _exit(lost.ok() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  const std::string left = hidden_in(directory.path());
  EXPECT_EQ(replaced_name(left), "x");
  ASSERT_TRUE(fine(replace_text(path, "text")));
  EXPECT_EQ(names_in(directory.path()), (std::set<std::string>{"x"}));
}

TEST(Replacement, WhatIsNotOfAReplacementIsNotRemoved) {
  const Directory directory;
  const std::string path = directory / "x", file = directory / "file";
  fs::create_directory(directory / ".x.tmp");
  spill(directory / ".x.tmp/notes", "precious");
  fs::create_directory(directory / ".x.weft-1.tmp");
  spill(directory / ".x.weft-1.tmp/notes", "precious");
  spill(file, "precious");
  fs::create_symlink(file, directory / ".x.weft-2.tmp");
  ASSERT_EQ(mkfifo((directory / ".x.weft-3.tmp").c_str(), 0600), 0);
  auto before = names_in(directory.path());
  ASSERT_TRUE(fine(replace_text(path, "text")));
  EXPECT_EQ(slurp(path), "text");
  before.insert("x");
  EXPECT_EQ(names_in(directory.path()), before);
  for (const char* name : {".x.tmp/notes", ".x.weft-1.tmp/notes", "file"})
    EXPECT_EQ(slurp(directory / name), "precious") << name;
}

TEST(Replacement, HasTheModeOfTheFileFromTheBeginning) {
  const Directory directory;
  const std::string path = directory / "x", fresh = directory / "fresh";
  ASSERT_TRUE(fine(replace_text(fresh, "")));
  const mode_t usual = mode_of(fresh);
  for (const mode_t mode : {0600u, 0640u, 0666u, 0444u}) {
    spill(path, "private");
    ASSERT_EQ(chmod(path.c_str(), mode), 0);
    auto replacement = Replacement::create(path);
    ASSERT_TRUE(fine(replacement.status()));
    EXPECT_EQ(mode_of(directory / hidden_in(directory.path())), 0600u);
    ASSERT_TRUE(fine(write(replacement.value(), "text")));
    ASSERT_TRUE(fine(replacement.value().commit()));
    EXPECT_EQ(mode_of(path), mode);
    fs::remove(path);
  }
  ASSERT_TRUE(fine(replace_text(path, "")));
  EXPECT_EQ(mode_of(path), usual);
}

TEST(Replacement, OfALinkReplacesItsTarget) {
  const Directory directory;
  const std::string target = directory / "a/target", link = directory / "link";
  fs::create_directory(directory / "a");
  fs::create_symlink("a/middle", link);
  fs::create_symlink("target", directory / "a/middle");
  for (const char* text : {"new", "newer"}) {  // there is no target at first
    ASSERT_TRUE(fine(replace_text(link, text)));
    EXPECT_TRUE(fs::is_symlink(link) && fs::is_symlink(directory / "a/middle"));
    EXPECT_EQ(slurp(target), text);
  }
  fs::create_symlink("none/x", directory / "away");
  const Status away = replace_text(directory / "away", "");
  EXPECT_TRUE(says(away, {"away: cannot write into '", "none'"}));
  EXPECT_EQ(away.code(), Code::not_found);
  fs::create_symlink("circle", directory / "circle");
  EXPECT_TRUE(says(replace_text(directory / "circle", ""), {"circle: has more than 40 links"}));
}

TEST(Replacement, OfANameOfAnyLength) {
  const Directory directory;
  const std::string name(NAME_MAX, 'x');
  ASSERT_TRUE(fine(replace_text(directory / name, "text")));
  EXPECT_EQ(slurp(directory / name), "text");
}

}  // namespace
}  // namespace weft

// What is saved is on the disk before anything names it. The system calls of a save are recorded on
// their way, and played on a model of a disk that keeps only what was synced: a file's content by
// fsync of the file, its name by fsync of its directory.
#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdarg>
#include <functional>
#include <set>

#include "checkpoints.h"

namespace weft::test {
namespace {

enum class Call : uint8_t { create, make_directory, write, sync, rename, swap, remove };
struct Record {
  Call call;
  std::string path, to;
};

// One thread saves, and what it does in these functions is not recorded itself.
bool recording = false;
std::vector<Record> records;

void record(Call call, const std::string& path, const std::string& to = "") {
  if (!recording) return;
  recording = false;
  records.push_back({call, path, to});
  recording = true;
}

std::string path_of(int fd) {
  char path[4096];
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  const ssize_t n = readlink(link.c_str(), path, sizeof path);
  return n < 0 ? "" : std::string(path, static_cast<size_t>(n));
}

template <typename F>
F* next(const char* name, F*) {
  return reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
}

}  // namespace
}  // namespace weft::test

// These stand before those of the C library, for weft and for the C++ library.
using weft::test::Call;
using weft::test::next;
using weft::test::path_of;
using weft::test::record;

extern "C" {

int open64(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  const int fd = next("open64", open64)(path, flags, mode);
  if (fd >= 0 && flags & O_CREAT) record(Call::create, path);
  return fd;
}

int mkdir(const char* path, mode_t mode) noexcept {
  const int result = next("mkdir", mkdir)(path, mode);
  if (result == 0) record(Call::make_directory, path);
  return result;
}

ssize_t pwrite64(int fd, const void* data, size_t size, off64_t offset) {
  record(Call::write, path_of(fd));
  return next("pwrite64", pwrite64)(fd, data, size, offset);
}

int fsync(int fd) {
  record(Call::sync, path_of(fd));
  return next("fsync", fsync)(fd);
}

int rename(const char* from, const char* to) noexcept {
  const int result = next("rename", rename)(from, to);
  if (result == 0) record(Call::rename, from, to);
  return result;
}

int renameat2(int from_fd, const char* from, int to_fd, const char* to,
              unsigned int flags) noexcept {
  const int result = next("renameat2", renameat2)(from_fd, from, to_fd, to, flags);
  if (result == 0) record(flags & RENAME_EXCHANGE ? Call::swap : Call::rename, from, to);
  return result;
}

int remove(const char* path) noexcept {
  const int result = next("remove", remove)(path);
  if (result == 0) record(Call::remove, path);
  return result;
}

int unlinkat(int fd, const char* path, int flags) noexcept {
  const std::string whole = fd == AT_FDCWD || path[0] == '/' ? path : path_of(fd) + "/" + path;
  const int result = next("unlinkat", unlinkat)(fd, path, flags);
  if (result == 0) record(Call::remove, whole);
  return result;
}

}  // extern "C"

namespace weft::test {
namespace {

// Which contents and which names would be lost if the power failed now.
class Disk {
 public:
  void play(const Record& r) {
    switch (r.call) {
      case Call::create:
      case Call::make_directory: names_.insert(r.path); break;
      case Call::write: contents_.insert(r.path); break;
      case Call::sync:
        contents_.erase(r.path);
        std::erase_if(names_, [&](const std::string& name) { return parent_path(name) == r.path; });
        break;
      case Call::rename:
        forget(r.to);
        move(r.path, r.to);
        names_.insert(r.to);
        break;
      case Call::swap:
        move(r.path, r.path + "?");
        move(r.to, r.path);
        move(r.path + "?", r.to);
        names_.insert({r.path, r.to});
        break;
      case Call::remove: forget(r.path); break;
    }
  }
  // What would be lost of a file, or of all that is in a directory, without the name of the thing
  // itself.
  std::set<std::string> lost_in(const std::string& path) const {
    std::set<std::string> out;
    for (const auto& name : contents_)
      if (name == path || name.starts_with(path + "/")) out.insert("content of " + name);
    for (const auto& name : names_)
      if (name.starts_with(path + "/")) out.insert("name of " + name);
    return out;
  }
  bool has_name(const std::string& path) const { return !names_.contains(path); }

 private:
  void forget(const std::string& path) {
    const auto within = [&](const std::string& name) {
      return name == path || name.starts_with(path + "/");
    };
    std::erase_if(contents_, within);
    std::erase_if(names_, within);
  }
  void move(const std::string& from, const std::string& to) {
    for (auto* set : {&contents_, &names_}) {
      std::set<std::string> moved;
      for (const std::string& name : *set)
        moved.insert(name == from || name.starts_with(from + "/") ? to + name.substr(from.size())
                                                                  : name);
      *set = std::move(moved);
    }
  }

  std::set<std::string> contents_, names_;
};

using Lost = std::set<std::string>;

template <typename F>
std::vector<Record> recorded(F&& f) {
  records.clear();
  recording = true;
  const Status status = f();
  recording = false;
  EXPECT_TRUE(fine(status));
  return std::move(records);
}

class Order : public testing::Test {
 protected:
  // Saves, and holds each call of it to the order.
  void save(uint64_t step) {
    std::string name = std::to_string(step);
    const std::string directory = directory_.path(),
                      published = directory_ / ("step-" + name.insert(0, 8 - name.size(), '0'));
    const std::string latest = directory_ / "latest";
    Disk disk;
    int published_by = 0, named_by = 0, written = 0;
    bool safe = false;
    for (const Record& r : recorded([&] { return write_checkpoint(directory, step).status(); })) {
      SCOPED_TRACE(testing::Message()
                   << "call " << static_cast<int>(r.call) << " of " << r.path << " " << r.to);
      written += r.call == Call::write;
      if (r.call == Call::rename || r.call == Call::swap) {
        const std::string& thing = r.path;
        EXPECT_EQ(disk.lost_in(thing), Lost()) << "is given its name before it is on the disk";
        published_by += r.to == published;
        named_by += r.to == latest;
        if (r.to == latest) {
          EXPECT_TRUE(published_by == 1 && disk.has_name(published))
              << "is named before its name is on the disk";
        }
      }
      const bool takes_away = r.call == Call::remove || r.call == Call::rename;
      if (takes_away) {
        EXPECT_NE(r.path, latest) << "is away for a moment";
      }
      if (takes_away && r.path.starts_with(directory_ / "step-")) {
        EXPECT_TRUE(safe) << "is taken away before the new one is safe";
      }
      EXPECT_FALSE(r.call == Call::create && r.path == latest) << "is written in its place";
      disk.play(r);
      safe = safe || (named_by == 1 && disk.has_name(latest));
    }
    EXPECT_GT(written, 8);  // the manifest, and more than one shard
    EXPECT_EQ(published_by, 1);
    EXPECT_EQ(named_by, 1);
    EXPECT_TRUE(safe) << "the name of the latest is not on the disk";
    EXPECT_EQ(disk.lost_in(published), Lost());
  }

  const Directory directory_;
};

TEST_F(Order, OfTheDirectoriesAbove) {
  const std::string above = directory_ / "a", directory = directory_ / "a/b";
  Disk disk;
  for (const Record& r : recorded([&] { return write_checkpoint(directory, 10).status(); }))
    disk.play(r);
  EXPECT_TRUE(disk.has_name(above) && disk.has_name(directory))
      << "the directory would be lost with all that is in it";
  EXPECT_EQ(disk.lost_in(above), Lost());
}

TEST_F(Order, OfANewCheckpoint) {
  for (const uint64_t step : {10, 20, 30}) save(step);
  EXPECT_FALSE(path_exists(directory_ / "step-00000010"));
}

TEST_F(Order, OfOneThatReplacesAnother) {
  save(10);
  save(10);
}

TEST_F(Order, OfAFileThatReplacesAnother) {
  const std::string path = directory_ / "file";
  const auto write_tensors = [&]() -> Status {
    WEFT_TRY_ASSIGN(SafetensorsWriter writer,
                    SafetensorsWriter::create(path, {{"a", {DType::f32, {2}}}}));
    const float values[2] = {};
    WEFT_TRY(writer.write("a", std::as_bytes(std::span(values))));
    return writer.finish().status();
  };
  for (const auto& replace : {std::function<Status()>(write_tensors), std::function<Status()>([&] {
                                return replace_text(path, "text");
                              })}) {
    Disk disk;
    int renames = 0;
    for (const Record& r : recorded(replace)) {
      if (r.call == Call::rename) {
        EXPECT_EQ(disk.lost_in(r.path), Lost()) << r.path;
      }
      EXPECT_NE(r.path, path) << "is touched, not replaced";
      renames += r.call == Call::rename && r.to == path;
      disk.play(r);
    }
    EXPECT_EQ(renames, 1);
    EXPECT_TRUE(disk.has_name(path)) << "is not on the disk when the call returns";
  }
}

}  // namespace
}  // namespace weft::test

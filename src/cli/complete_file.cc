#include "cli/complete_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "cli/files.h"

namespace weft::cli {

namespace {

namespace fs = std::filesystem;

fs::path directory_of(const fs::path& place) {
  return place.has_parent_path() ? place.parent_path() : ".";
}

// Calls `make` with hidden names in the directory until one is not used. `name` is this one.
template <typename F>
int make_hidden(const fs::path& place, std::string& name, F&& make) {
  constexpr size_t kMost = 200;  // of a name, so that the new one is not too long
  const std::string begin =
      "." + place.filename().string().substr(0, kMost) + "." + std::to_string(getpid()) + "-";
  for (int number = 1;; ++number) {
    name = directory_of(place) / (begin + std::to_string(number) + ".tmp");
    const int made = make(name.c_str());
    if (made >= 0) return made;
    if (errno != EEXIST) {
      name.clear();
      return made;
    }
  }
}

// A new file, without a name or with a hidden one.
int create(const fs::path& place, mode_t mode, bool unnamed, std::string& name) {
  constexpr int kFlags = O_WRONLY | O_CLOEXEC;
  if (unnamed) return open(directory_of(place).c_str(), O_TMPFILE | kFlags, mode);
  return make_hidden(place, name, [mode](const char* at) {
    return open(at, kFlags | O_CREAT | O_EXCL | O_NOFOLLOW, mode);
  });
}

// A link does not replace a file.
int link_unnamed(int file, const char* at) {
  const std::string unnamed = "/proc/self/fd/" + std::to_string(file);
  return linkat(AT_FDCWD, unnamed.c_str(), AT_FDCWD, at, AT_SYMLINK_FOLLOW);
}

bool place_it(int file, const fs::path& place, Existing existing, std::string& name) {
  const auto link_at = [file](const char* at) { return link_unnamed(file, at); };
  const bool keeps = existing == Existing::keep;
  if (name.empty() && keeps) return link_at(place.c_str()) == 0;
  if (name.empty() && make_hidden(place, name, link_at) < 0) return false;
  const unsigned flags = keeps ? RENAME_NOREPLACE : 0;
  if (renameat2(AT_FDCWD, name.c_str(), AT_FDCWD, place.c_str(), flags) != 0) return false;
  name.clear();
  return true;
}

void take_access(int file, const struct stat& old) {
  mode_t mode = old.st_mode & 0777;
  const bool same_group = fchown(file, old.st_uid, old.st_gid) == 0 ||
                          fchown(file, static_cast<uid_t>(-1), old.st_gid) == 0;
  // Another group gets only what everyone gets.
  if (!same_group) mode = (mode & ~070u) | (mode & (mode & 07) << 3);
  (void)fchmod(file, mode);
}

bool sync_file(int file) { return fsync(file) == 0 || errno == EINVAL; }  // or it has no sync

// The errno of a failure, or 0.
int sync_directory(const fs::path& path) {
  const int directory = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0 && errno == EACCES) return 0;  // others may only write there
  const bool synced = directory >= 0 && sync_file(directory);
  const int error = errno;
  if (directory >= 0) close(directory);
  return synced ? 0 : error;
}

// The errno of a failure, or 0. `unnamed`: the file has no name until it is complete.
int write_new(const fs::path& place, std::string_view text, Existing existing, Readers readers,
              bool unnamed) {
  struct stat old {};
  const bool takes_access = readers == Readers::same && stat(place.c_str(), &old) == 0;
  const bool is_private = readers == Readers::owner || takes_access;
  std::string name;
  const int file = create(place, is_private ? 0600 : 0666, unnamed, name);
  if (file < 0) return errno;
  if (takes_access) take_access(file, old);
  const bool placed = (readers == Readers::same || fchmod(file, 0600) == 0) &&
                      write_all(file, text) && sync_file(file) &&
                      place_it(file, place, existing, name);
  const int error = errno;
  close(file);
  if (!name.empty()) unlink(name.c_str());
  return placed ? sync_directory(directory_of(place)) : error;
}

}  // namespace

int write_complete(const fs::path& place, std::string_view text, Existing existing,
                   Readers readers) {
  const int error = write_new(place, text, existing, readers, /*unnamed=*/true);
  // Some file systems have no unnamed files, or none that can be given a name.
  if (error == 0 || error == EEXIST) return error;
  return write_new(place, text, existing, readers, /*unnamed=*/false);
}

}  // namespace weft::cli

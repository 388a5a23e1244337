#include "io/replacement.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <utility>

#include "base/text.h"

namespace weft {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMark = ".weft-", kEnd = ".tmp";

// ".NAME.weft-1.tmp". A long name is truncated, so that the result is not too long: the number
// makes it unique.
std::string hidden_name(const std::string& path, size_t number) {
  constexpr size_t kMost = 200;
  const std::string name = fs::path(path).filename().string();
  return join_path(parent_path(path), cat('.', head_of(name, kMost), kMark, number, kEnd));
}

// The path behind all links, of which the last one may lead to nothing.
Result<std::string> follow_links(const std::string& path) {
  constexpr int kMost = 40;  // as Linux
  fs::path at = path;
  for (int followed = 0; followed <= kMost; ++followed) {
    std::error_code error;
    const fs::path target = fs::read_symlink(at, error);
    if (error) return at.string();  // not a link, or nothing
    at = at.parent_path() / target;
  }
  return Status(Code::invalid,
                cat(path, ": has more than ", kMost, " links, one behind the other"));
}

}  // namespace

Replacement::Replacement(Replacement&& other) noexcept
    : path_(std::move(other.path_)),
      hidden_(std::exchange(other.hidden_, {})),
      file_(std::move(other.file_)) {}

Replacement& Replacement::operator=(Replacement&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(hidden_, other.hidden_);
  std::swap(file_, other.file_);
  return *this;
}

// While the file is locked.
Replacement::~Replacement() {
  if (!hidden_.empty()) ::unlink(hidden_.c_str());
}

Result<Replacement> Replacement::create(const std::string& path) {
  Replacement out;
  WEFT_TRY_ASSIGN(out.path_, place_for_file(path));
  for (size_t number = 1; !out; ++number) WEFT_TRY(out.try_name(hidden_name(out.path_, number)));
  return out;
}

// No effect if the name is used.
Status Replacement::try_name(const std::string& hidden) {
  remove_abandoned(hidden);
  // What replaces a private file is private from the beginning.
  const Readers readers = path_exists(path_) ? Readers::owner : Readers::all;
  bool exists;
  auto file = File::create(hidden, path_, readers, &exists);
  if (exists) return {};
  WEFT_TRY(file.status());
  // Until it is locked, another process may take it for an abandoned one.
  const auto locked = file.value().try_lock();
  if (!locked.ok()) ::unlink(hidden.c_str());
  WEFT_TRY(locked.status());
  if (locked.value() == Locked::no || !file.value().is_at(hidden)) return {};
  file_ = std::move(file.value());
  hidden_ = hidden;
  return {};
}

Status Replacement::commit() {
  file_.take_access_of(path_);
  WEFT_TRY(file_.sync());
  WEFT_TRY(rename_path(hidden_, path_));
  hidden_.clear();
  return sync_directory(parent_path(path_));
}

Status replace_text(const std::string& path, std::string_view text) {
  WEFT_TRY_ASSIGN(Replacement replacement, Replacement::create(path));
  WEFT_TRY(replacement.file().write(0, text.data(), text.size()));
  return replacement.commit();
}

Result<std::string> place_for_file(const std::string& path) {
  if (path.empty()) return Status(Code::invalid, "the path of the file to write is empty");
  struct stat info;
  const bool exists = ::stat(path.c_str(), &info) == 0;
  if (exists && !S_ISREG(info.st_mode))
    return Status(Code::invalid, cat(path, ": expected a regular file or nothing, found a ",
                                     kind_of(info.st_mode)));
  WEFT_TRY_ASSIGN(const std::string place, follow_links(path));
  // A link of /proc leads to its file, but its text is not a path then.
  if (exists && !path_exists(place))
    return Status(Code::invalid, cat(path, ": leads to a file that has been removed"));
  const std::string parent = parent_path(place);
  if (::stat(parent.c_str(), &info) != 0)
    return path_failure(path, cat("write into '", parent, "'"), errno);
  return place;
}

std::string_view replaced_name(std::string_view hidden) {
  const size_t mark = hidden.rfind(kMark);
  const bool is_one = hidden.starts_with('.') && hidden.ends_with(kEnd) && mark > 0 &&
                      mark != std::string_view::npos;
  return is_one ? hidden.substr(1, mark - 1) : std::string_view();
}

// Under its lock, so that it is not that of a later Replacement.
void remove_abandoned(const std::string& hidden) {
  auto file = File::open(hidden, Links::refuse);
  if (!file.ok()) return;
  const auto locked = file.value().try_lock();
  if (locked.ok() && locked.value() == Locked::yes && file.value().is_at(hidden))
    ::unlink(hidden.c_str());
}

}  // namespace weft

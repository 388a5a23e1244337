#include "cli/refusal_reporter.h"

#include <chrono>
#include <system_error>

#include "cli/console.h"

namespace weft::cli {

std::string refused_text(const weft_mesh* mesh, uint64_t& told) {
  char text[512];
  const uint64_t count = mesh ? weft_mesh_refused(mesh, text, sizeof text) : 0;
  if (count == 0 || count < 2 * told) return "";
  told = count;
  return "refused " + std::string(text) +
         (count > 1 ? " (" + std::to_string(count) + " in all)" : "");
}

RefusalReporter::RefusalReporter(std::string command, const weft_mesh* mesh, uint64_t& told)
    : command_(std::move(command)), mesh_(mesh), told_(told) {
  try {
    thread_ = std::thread([this] { watch(); });
  } catch (const std::system_error&) {
    // Without a thread the refused connections are reported later, by refused_text().
  }
}

RefusalReporter::~RefusalReporter() {
  {
    const std::lock_guard hold(lock_);
    over_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void RefusalReporter::watch() {
  std::unique_lock hold(lock_);
  for (bool last = false; !last;) {
    last = wake_.wait_for(hold, std::chrono::milliseconds(200), [this] { return over_; });
    if (const std::string text = refused_text(mesh_, told_); !text.empty())
      complain(command_, text);
  }
}

}  // namespace weft::cli

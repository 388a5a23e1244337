#include "runtime/saver.h"

#include "runtime/save.h"

namespace weft {

void Saver::begin(Step& step) {
  step_ = &step;
  thread_.reset();  // the thread of the last save, which may still be waking the loop
  {
    const std::lock_guard lock(mutex_);
    left_ = false;
    done_ = false;
  }
  const Status started = attempt([this]() -> Status {
    WEFT_TRY_ASSIGN(thread_, Thread::start("weft-save", [this] { save(); }));
    return {};
  });
  if (!started.ok()) report(true, started);
}

void Saver::save() {
  Status status = attempt([this] {
    return save_run(
        run_, *step_->save, [this] { report(false, {}); }, stop_);
  });
  report(true, std::move(status));
}

void Saver::report(bool done, Status status) {
  {
    const std::lock_guard lock(mutex_);
    left_ = true;
    done_ = done;
    status_ = std::move(status);
  }
  wake_();
}

bool Saver::has_left() const {
  const std::lock_guard lock(mutex_);
  return left_;
}

Step* Saver::take_done(Status& status) {
  const std::lock_guard lock(mutex_);
  if (!step_ || !done_) return nullptr;
  status = std::move(status_);
  return std::exchange(step_, nullptr);
}

}  // namespace weft

#include "node/control_codec.h"

#include <algorithm>
#include <cmath>

#include "base/bytes.h"
#include "base/text.h"

namespace weft {

namespace {

// Which micro-batches of the step are short: 0 none, 1 the last, 2 all.
uint8_t short_of(const StepDescriptor& step) {
  if (step.short_all) return 2;
  return step.short_last ? 1 : 0;
}

}  // namespace

void encode_control(const Control& control, std::vector<std::byte>& out) {
  out.clear();
  ByteWriter writer(out);
  writer.number(static_cast<uint8_t>(control.kind));
  switch (control.kind) {
    case ControlKind::begin: {
      const StepDescriptor& step = control.step;
      writer.number(step.sequence)
          .number(step.step)
          .number(static_cast<uint8_t>(step.mode))
          .number(uint8_t{step.update})
          .number(uint8_t{step.overlaps});
      writer.number(step.micro_batches).number(short_of(step)).number(step.denominator);
      writer.number(step.rate)
          .number(step.per_update)
          .number(static_cast<uint64_t>(step.denominators.size()));
      for (double d : step.denominators) writer.number(d);
      return;
    }
    case ControlKind::ready:
      writer.number(control.sequence).number(static_cast<uint64_t>(control.squares.size()));
      for (double s : control.squares) writer.number(s);
      return;
    case ControlKind::commit: writer.number(control.sequence).number(control.scale); return;
    case ControlKind::done:
      writer.number(control.sequence)
          .number(control.times.begin)
          .number(control.times.end)
          .number(control.times.busy);
      writer.number(control.times.begin_received).number(control.times.end_sent);
      return;
  }
}

Result<Control> decode_control(std::span<const std::byte> bytes, std::vector<double>& numbers) {
  ByteReader reader(bytes);
  Control control;
  const uint8_t kind = reader.number<uint8_t>();
  if (kind > static_cast<uint8_t>(ControlKind::done))
    return Status(Code::protocol, cat("control message of the unknown kind ", kind));
  control.kind = static_cast<ControlKind>(kind);
  control.sequence = reader.number<uint64_t>();
  bool sound = true;
  auto read_numbers = [&] {
    const uint64_t count = reader.count(sizeof(double));
    numbers.clear();
    for (uint64_t i = 0; i < count; ++i) numbers.push_back(reader.number<double>());
    return std::span<const double>(numbers);
  };
  auto flag = [&] {
    const uint8_t value = reader.number<uint8_t>();
    sound = sound && value <= 1;
    return value == 1;
  };
  switch (control.kind) {
    case ControlKind::begin: {
      StepDescriptor& step = control.step;
      step.sequence = control.sequence;
      step.step = reader.number<uint64_t>();
      const uint8_t mode = reader.number<uint8_t>();
      sound = mode < kModes;
      step.mode = sound ? static_cast<Mode>(mode) : Mode::train;
      step.update = flag();
      step.overlaps = flag();
      step.micro_batches = reader.number<int32_t>();
      const uint8_t is_short = reader.number<uint8_t>();
      sound = sound && is_short <= 2;
      step.short_last = is_short == 1;
      step.short_all = is_short == 2;
      step.denominator = reader.number<double>();
      step.rate = reader.number<double>();
      sound = sound && std::isfinite(step.rate);
      step.per_update = reader.number<int32_t>();
      sound = sound && step.per_update >= 0;
      step.denominators = read_numbers();
      break;
    }
    case ControlKind::ready:
      control.squares = read_numbers();
      sound = std::none_of(control.squares.begin(), control.squares.end(),
                           [](double sum) { return sum < 0; });
      break;
    case ControlKind::commit: control.scale = reader.number<double>(); break;
    case ControlKind::done: {
      RankTimes& times = control.times;
      times.begin = reader.number<int64_t>();
      times.end = reader.number<int64_t>();
      times.busy = reader.number<int64_t>();
      times.begin_received = reader.number<int64_t>();
      times.end_sent = reader.number<int64_t>();
      constexpr int64_t kMost = int64_t{1} << 59;  // so that no difference overflows
      for (const int64_t t : {times.begin, times.end, times.begin_received, times.end_sent})
        sound = sound && t > -kMost && t < kMost;
      sound = sound && times.begin <= times.end && times.busy >= 0 &&
              times.busy <= times.end - times.begin;
      break;
    }
  }
  if (!sound || !reader.at_end())
    return Status(Code::protocol, cat("control message of kind ", kind, " and ", bytes.size(),
                                      " bytes, which its fields do not fill"));
  return control;
}

}  // namespace weft

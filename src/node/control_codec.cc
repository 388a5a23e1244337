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

bool is_divisor(double value) { return std::isfinite(value) && value > 0; }

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

namespace {

// Each reads the fields of a kind, and returns whether their values are possible.

std::span<const double> read_numbers(ByteReader& reader, std::vector<double>& numbers) {
  const uint64_t count = reader.count(sizeof(double));
  numbers.clear();
  for (uint64_t i = 0; i < count; ++i) numbers.push_back(reader.number<double>());
  return numbers;
}

bool read_flag(ByteReader& reader, bool& out) {
  const uint8_t value = reader.number<uint8_t>();
  out = value == 1;
  return value <= 1;
}

bool read_begin(ByteReader& reader, std::vector<double>& numbers, StepDescriptor& step) {
  step.step = reader.number<uint64_t>();
  const uint8_t mode = reader.number<uint8_t>();
  bool sound = mode < kModes;
  step.mode = sound ? static_cast<Mode>(mode) : Mode::train;
  sound &= read_flag(reader, step.update);
  sound &= read_flag(reader, step.overlaps);
  step.micro_batches = reader.number<int32_t>();
  const uint8_t is_short = reader.number<uint8_t>();
  sound &= is_short <= 2;
  step.short_last = is_short == 1;
  step.short_all = is_short == 2;
  step.denominator = reader.number<double>();
  sound &= is_divisor(step.denominator);
  step.rate = reader.number<double>();
  sound &= std::isfinite(step.rate);
  step.per_update = reader.number<int32_t>();
  sound &= step.per_update >= 0;
  step.denominators = read_numbers(reader, numbers);
  return sound && std::all_of(step.denominators.begin(), step.denominators.end(), is_divisor);
}

bool read_ready(ByteReader& reader, std::vector<double>& numbers, Control& control) {
  control.squares = read_numbers(reader, numbers);
  return std::none_of(control.squares.begin(), control.squares.end(),
                      [](double sum) { return sum < 0; });
}

bool read_commit(ByteReader& reader, Control& control) {
  control.scale = reader.number<double>();
  return std::isfinite(control.scale) && control.scale >= 0;
}

bool read_done(ByteReader& reader, RankTimes& times) {
  times.begin = reader.number<int64_t>();
  times.end = reader.number<int64_t>();
  times.busy = reader.number<int64_t>();
  times.begin_received = reader.number<int64_t>();
  times.end_sent = reader.number<int64_t>();
  constexpr int64_t kMost = int64_t{1} << 59;  // so that no difference overflows
  for (const int64_t t : {times.begin, times.end, times.begin_received, times.end_sent})
    if (t <= -kMost || t >= kMost) return false;
  return times.begin <= times.end && times.busy >= 0 && times.busy <= times.end - times.begin;
}

bool read_fields(ByteReader& reader, std::vector<double>& numbers, Control& control) {
  switch (control.kind) {
    case ControlKind::begin:
      control.step.sequence = control.sequence;
      return read_begin(reader, numbers, control.step);
    case ControlKind::ready: return read_ready(reader, numbers, control);
    case ControlKind::commit: return read_commit(reader, control);
    case ControlKind::done: return read_done(reader, control.times);
  }
  return false;
}

}  // namespace

Result<Control> decode_control(std::span<const std::byte> bytes, std::vector<double>& numbers) {
  ByteReader reader(bytes);
  Control control;
  const uint8_t kind = reader.number<uint8_t>();
  if (kind > static_cast<uint8_t>(ControlKind::done))
    return Status(Code::protocol, cat("control message of the unknown kind ", kind));
  control.kind = static_cast<ControlKind>(kind);
  control.sequence = reader.number<uint64_t>();
  const bool sound = read_fields(reader, numbers, control);
  if (!reader.at_end() || !sound)
    return Status(
        Code::protocol,
        cat("control message of kind ", kind, " and ", bytes.size(), " bytes, ",
            reader.at_end() ? "with a value that cannot be" : "which its fields do not fill"));
  return control;
}

}  // namespace weft

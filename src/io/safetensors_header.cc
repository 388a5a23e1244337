// The header of safetensors files: JSON is read as a stream of events, because a tree would hide
// duplicate keys and the form of numbers, and to check the limits before memory is allocated.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/fault.h"
#include "base/text.h"
#include "io/safetensors.h"

namespace weft {

namespace {

using Parser = nlohmann::json;

constexpr std::string_view kMetadata = "__metadata__";
constexpr uint64_t kFormatHeaderBytes = 100'000'000;

struct DTypeRow {
  std::string_view name;
  uint32_t bits;
};
// In the order of the reference implementation. Its writer sorts in this order, last row first.
constexpr DTypeRow kDTypes[] = {
    {"BOOL", 8},        {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
    {"I8", 8},          {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
    {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16},    {"BF16", 16},
    {"I32", 32},        {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64},
    {"I64", 64},        {"U64", 64},
};

const DTypeRow* find_dtype(std::string_view name) {
  const auto* row = std::find_if(std::begin(kDTypes), std::end(kDTypes),
                                 [&](const DTypeRow& r) { return r.name == name; });
  return row == std::end(kDTypes) ? nullptr : row;
}

// Receives the events of nlohmann's parser. Each handler returns whether to continue; `status`
// keeps the first error.
class HeaderReader {
 public:
  explicit HeaderReader(const SafetensorsLimits& limits) : limits_(limits) {}

  SafetensorsHeader header;
  Status status;

  bool null() { return refuse("null"); }
  bool boolean(bool) { return refuse("a boolean"); }
  bool number_integer(int64_t) { return refuse("a negative number"); }
  bool number_float(double, const std::string& text) {
    return refuse(cat("the number ", shown(text)));
  }
  bool binary(Parser::binary_t&) { return refuse("binary data"); }

  bool number_unsigned(uint64_t value) {
    if (at_ != At::shape && at_ != At::offsets) return refuse("a number");
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      return refuse(cat("the number ", value));
    if (at_ == At::shape) {
      Shape& shape = entry_.shape;
      if (shape.rank == kMaxRank) return stop(cat("shape has more than ", kMaxRank, " dimensions"));
      shape[shape.rank++] = static_cast<int64_t>(value);
      return true;
    }
    if (offsets_ == 2) return stop("data_offsets has more than 2 numbers");
    (offsets_++ == 0 ? entry_.begin : entry_.end) = value;
    return true;
  }

  bool string(std::string& value) {
    if (at_ == At::metadata) {
      header.metadata[metadata_key_] = std::move(value);
      return true;
    }
    if (at_ != At::tensor || field_ != kDType) return refuse("a string");
    entry_.dtype = std::move(value);
    return true;
  }

  bool start_object(size_t) {
    if (at_ == At::start) {
      at_ = At::top;
    } else if (at_ == At::top) {
      at_ = key_ == kMetadata ? At::metadata : At::tensor;
      entry_ = SafetensorsEntry();
      entry_.name = key_;
      seen_ = {};
    } else {
      return refuse("an object");
    }
    return true;
  }

  bool start_array(size_t) {
    if (at_ != At::tensor || field_ == kDType) return refuse("an array");
    at_ = field_ == kShape ? At::shape : At::offsets;
    offsets_ = 0;
    return true;
  }

  bool end_array() {
    if (at_ == At::offsets && offsets_ != 2)
      return stop(cat("data_offsets has ", offsets_, " numbers, expected 2"));
    at_ = At::tensor;
    return true;
  }

  bool key(std::string& name) {
    if (at_ == At::top) return top_key(name);
    if (at_ == At::metadata) {
      if (header.metadata.contains(name)) return stop(cat("duplicate key ", shown(name)));
      metadata_key_ = std::move(name);
      return true;
    }
    const auto found = std::find(std::begin(kFields), std::end(kFields), name);
    if (found == std::end(kFields))
      return stop(cat("unknown key ", shown(name), ", expected dtype, shape and data_offsets"));
    field_ = static_cast<size_t>(found - std::begin(kFields));
    if (seen_[field_]) return stop(cat("duplicate key ", shown(name)));
    seen_[field_] = true;
    return true;
  }

  bool end_object() {
    if (at_ == At::tensor) {
      for (size_t i = 0; i < seen_.size(); ++i)
        if (!seen_[i]) return stop(cat("has no ", kFields[i]));
      if (!find_dtype(entry_.dtype)) return stop(cat("unknown dtype ", shown(entry_.dtype)));
      header.entries.push_back(std::move(entry_));
    }
    at_ = at_ == At::top ? At::end : At::top;
    return true;
  }

  bool parse_error(size_t position, const std::string&, const Parser::exception&) {
    if (status.ok()) status = fault(cat("header is not valid JSON near byte ", position));
    return false;
  }

 private:
  enum class At : uint8_t { start, top, metadata, tensor, shape, offsets, end };
  static constexpr std::string_view kFields[] = {"dtype", "shape", "data_offsets"};
  static constexpr size_t kDType = 0, kShape = 1;

  bool top_key(std::string& name) {
    if (name == kMetadata) {
      if (metadata_seen_) return fail(cat("duplicate key ", shown(name)));
      metadata_seen_ = true;
    } else {
      if (Status s = check_tensor_name(name); !s.ok()) return fail(s.text());
      if (header.entries.size() == limits_.tensors)
        return fail(cat("more than ", limits_.tensors, " tensors"));
    }
    key_ = std::move(name);
    return true;
  }

  bool fail(std::string text) {
    status = fault(std::move(text));
    return false;
  }

  // An error in the object of key_.
  bool stop(const std::string& text) {
    return fail(key_ == kMetadata ? cat("metadata: ", text)
                                  : cat("tensor ", shown(key_), ": ", text));
  }

  bool refuse(const std::string& found) {
    constexpr std::string_view integer = "an integer from 0 to 9223372036854775807";
    switch (at_) {
      case At::start: return fail(cat("header expects an object, found ", found));
      case At::top: return stop(cat("expected an object, found ", found));
      case At::metadata:
        return stop(cat("key ", shown(metadata_key_), " expects a string, found ", found));
      case At::shape: return stop(cat("shape expects ", integer, ", found ", found));
      case At::offsets: return stop(cat("data_offsets expects ", integer, ", found ", found));
      default:
        return stop(cat(kFields[field_], " expects ", field_ == kDType ? "a string" : "an array",
                        ", found ", found));
    }
  }

  const SafetensorsLimits& limits_;
  At at_ = At::start;
  std::string key_, metadata_key_;
  SafetensorsEntry entry_;
  std::array<bool, 3> seen_{};
  size_t field_ = 0;
  int offsets_ = 0;
  bool metadata_seen_ = false;
};

Status check_size(const SafetensorsEntry& entry) {
  const auto refuse = [&](const auto&... parts) {
    return fault(cat("tensor ", shown(entry.name), ": ", parts...));
  };
  int64_t elements = 1, bits = 0;
  bool wraps = false;
  for (int i = 0; i < entry.shape.rank; ++i)
    wraps = wraps || __builtin_mul_overflow(elements, entry.shape[i], &elements);
  wraps = wraps || __builtin_mul_overflow(elements, int64_t{find_dtype(entry.dtype)->bits}, &bits);
  const std::string what = cat(entry.dtype, entry.shape.text());
  if (wraps) return refuse(what, " has more bytes than a 64-bit size can count");
  if (bits % 8 != 0) return refuse(what, " is not a whole number of bytes");
  if (entry.end < entry.begin)
    return refuse("ends at byte ", entry.end, " before it begins at ", entry.begin);
  const uint64_t bytes = static_cast<uint64_t>(bits) / 8;
  if (bytes != entry.end - entry.begin)
    return refuse(what, " has ", bytes, " bytes, but data_offsets give ", entry.end - entry.begin);
  return {};
}

// No hole, no overlap, nothing after the last: each byte of the file belongs to one tensor.
Status check_cover(std::vector<SafetensorsEntry>& entries, uint64_t data_bytes) {
  std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  uint64_t next = 0;
  for (const SafetensorsEntry& entry : entries) {
    if (entry.begin != next) {
      const char* kind =
          entry.begin < next ? ", which overlaps another tensor" : ", which leaves a hole";
      return fault(cat("tensor ", shown(entry.name), ": begins at byte ", entry.begin,
                       ", expected ", next, kind));
    }
    next = entry.end;
  }
  if (next != data_bytes)
    return fault(cat("tensors end at byte ", next, ", but the file holds ", data_bytes,
                     " after its header"));
  return {};
}

Status check_unique(const std::vector<SafetensorsEntry>& entries) {
  std::vector<std::string_view> names;
  names.reserve(entries.size());
  for (const SafetensorsEntry& entry : entries) names.push_back(entry.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  return twice == names.end() ? Status() : fault(cat("duplicate key ", shown(*twice)));
}

std::string json_text(const std::string& text) {
  return Parser(text).dump(-1, ' ', false, Parser::error_handler_t::replace);
}

}  // namespace

Result<uint64_t> safetensors_header_bytes(const unsigned char prefix[8], uint64_t file_bytes,
                                          const SafetensorsLimits& limits) {
  uint64_t count = 0;
  std::memcpy(
      &count, prefix,
      sizeof count);  // little-endian, as everything here (base/hash.cc refuses other machines)
  const uint64_t most = std::min(limits.header_bytes, kFormatHeaderBytes);
  if (count < 2 || count > most)
    return fault(
        cat("is not a safetensors file: header has ", count, " bytes, expected 2 to ", most));
  if (count > file_bytes - 8)
    return fault(cat("header has ", count, " bytes, but the file holds ", file_bytes - 8,
                     " after the first 8"));
  return count;
}

Result<SafetensorsHeader> parse_safetensors_header(std::string_view json, uint64_t data_bytes,
                                                   const SafetensorsLimits& limits) {
  // The parser would skip a byte order mark and treat NUL as the end of the text; other readers do
  // not.
  const size_t first = json.find_first_not_of(" \t\r\n");
  if (first == json.npos || json[first] != '{') return fault("header expects an object");
  if (json.find('\0') != json.npos) return fault("header is not valid JSON: it contains a NUL");
  HeaderReader reader(limits);
  const bool read = Parser::sax_parse(json.begin(), json.end(), &reader,
                                      Parser::input_format_t::json, /*strict=*/true);
  if (!reader.status.ok()) return reader.status;
  if (!read) return fault("header is not valid JSON");
  for (const SafetensorsEntry& entry : reader.header.entries) WEFT_TRY(check_size(entry));
  WEFT_TRY(check_unique(reader.header.entries));
  WEFT_TRY(check_cover(reader.header.entries, data_bytes));
  return std::move(reader.header);
}

std::string print_safetensors_header(const SafetensorsHeader& header) {
  std::string json = "{";
  if (!header.metadata.empty()) {
    json += cat(json_text(std::string(kMetadata)), ":{");
    const char* comma = "";
    for (const auto& [key, value] : header.metadata) {
      json += cat(comma, json_text(key), ":", json_text(value));
      comma = ",";
    }
    json += header.entries.empty() ? "}" : "},";
  }
  const char* comma = "";
  for (const SafetensorsEntry& entry : header.entries) {
    json += cat(comma, json_text(entry.name), ":{\"dtype\":", json_text(entry.dtype),
                ",\"shape\":", entry.shape.text(), ",\"data_offsets\":[", entry.begin, ",",
                entry.end, "]}");
    comma = ",";
  }
  json += "}";
  json.append((8 - json.size() % 8) % 8, ' ');
  const uint64_t count = json.size();
  std::string out(sizeof count, '\0');
  std::memcpy(out.data(), &count, sizeof count);
  return out + json;
}

const char* file_dtype(DType dtype) {
  switch (dtype) {
    case DType::f32: return "F32";
    case DType::i32: return "I32";
    case DType::f64: return "F64";
    case DType::bf16: return "BF16";
  }
  return "";
}

Result<SafetensorsHeader> lay_out_safetensors(const std::vector<TensorSpec>& tensors,
                                              const SafetensorsMetadata& metadata) {
  for (const auto& [key, value] : metadata)
    if (!valid_utf8(key) || !valid_utf8(value))
      return Status(Code::invalid, cat("metadata ", shown(key), " is not UTF-8"));
  std::vector<const TensorSpec*> order;
  for (const TensorSpec& tensor : tensors) {
    WEFT_TRY(check_tensor_name(tensor.name));
    WEFT_TRY(check_shape(std::span(tensor.desc.shape.dims.data(),
                                   static_cast<size_t>(tensor.desc.shape.rank)),
                         tensor.desc.dtype)
                 .within(cat("tensor ", shown(tensor.name))));
    order.push_back(&tensor);
  }
  const auto row = [](const TensorSpec* t) { return find_dtype(file_dtype(t->desc.dtype)); };
  std::sort(order.begin(), order.end(), [&](const TensorSpec* a, const TensorSpec* b) {
    return row(a) != row(b) ? row(a) > row(b) : a->name < b->name;
  });
  SafetensorsHeader header;
  header.metadata = metadata;
  uint64_t next = 0;
  for (const TensorSpec* tensor : order) {
    SafetensorsEntry entry{tensor->name, file_dtype(tensor->desc.dtype), tensor->desc.shape, next,
                           0};
    if (__builtin_add_overflow(next, uint64_t{tensor->desc.bytes()}, &next) || next > uint64_t{1}
                                                                                          << 62)
      return Status(Code::invalid, cat("tensor ", shown(tensor->name),
                                       ": the file would have more than 2^62 bytes"));
    entry.end = next;
    header.entries.push_back(std::move(entry));
  }
  if (Status s = check_unique(header.entries); !s.ok()) return Status(Code::invalid, s.text());
  return header;
}

Result<std::vector<size_t>> split_tensors(const std::vector<TensorSpec>& tensors,
                                          uint64_t shard_bytes) {
  WEFT_TRY(lay_out_safetensors(tensors, {}).status());
  std::vector<size_t> ends;
  uint64_t bytes = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const uint64_t more = tensors[i].desc.bytes();
    const bool empty = i == (ends.empty() ? 0 : ends.back());
    if (!empty && (bytes > shard_bytes || more > shard_bytes - bytes)) {
      ends.push_back(i);
      bytes = 0;
    }
    bytes += more;
  }
  if (!tensors.empty()) ends.push_back(tensors.size());
  return ends;
}

}  // namespace weft

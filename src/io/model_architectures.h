// The architectures of Hugging Face's Transformers that weft knows, as tables: what the fields of
// config.json mean, and which keys of a preset have them.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace weft {

// A number, the key of the preset that takes it, and the value of Transformers if the field is
// missing: `value`, or that of the field `like`, divided by that of the field `over`.
struct Number {
  const char *field, *key;
  double value = 0;
  const char *like = nullptr, *over = nullptr;
  bool whole = true;
  bool nullable = false;  // null is 0
};

// True or false, which is 1 or 0 of the key.
struct FlagField {
  const char *field, *key;
  bool value;  // of Transformers if the field is missing
};

inline constexpr std::string_view kOr = " or ";

// A field with the values for which weft computes the same result as without the field. The first
// one is written.
struct Fixed {
  const char* field;
  std::string_view values;  // JSON, separated by kOr
};

// A key of the preset that must have this value.
struct FixedKey {
  const char *key, *value;
};

// Sliding windows of attention: none, in all layers, only in some that other fields name, or in all
// but the last one of every `period` layers, unless layer_types differs.
enum class Windows : uint8_t { none, all_layers, some_layers, periodic };

struct Architecture {
  std::string_view type;
  std::span<const std::string_view> presets;  // with the same keys; the first one is written
  const char* loader;                         // the class of Transformers
  std::string_view prefix;                    // of the names in files, except that of the head
  std::span<const Number> numbers;
  std::span<const FlagField> flags = {};  // besides tie_word_embeddings
  std::span<const char* const> dropouts;  // probabilities, which must be equal
  double dropout = 0;                     // of Transformers if such a field is missing
  std::span<const Fixed> fixed;
  std::span<const FixedKey> fixed_keys;
  const char *inner = nullptr, *width = nullptr;  // inner layer: null, or four times the width
  bool tied = false;                              // of Transformers if the field is missing
  bool rotary = false;                            // has rope_scaling or rope_parameters
  const char* rotation_type = "rope_type";        // the name of this field of rope_scaling
  bool local_rotary = false;  // rope_parameters has an object for each type of layers
  Windows windows = Windows::none;
  double window = 0;        // of Transformers if the field is missing; 0: none
  double period = 0;        // of periodic windows
  bool has_period = false;  // sliding_window_pattern sets another period
  std::span<const char* const> ignored;
};

std::span<const Architecture> architectures();

// Of all architectures.
std::span<const Fixed> common_fixed();
std::span<const char* const> common_ignored();

}  // namespace weft

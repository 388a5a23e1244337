// Python's methods and texts of values where they differ from those of C++: white space, slices,
// repr() and JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace weft::jinja {

enum class Side : uint8_t { both, left, right };

// str.isspace() of one code point.
bool is_space(char32_t point);
// str.strip(), lstrip() and rstrip(). `chars`: the characters that are removed instead of white
// space.
std::string_view stripped(std::string_view text, Side side,
                          std::optional<std::string_view> chars = {});
// As std::string::find(), which takes the product of both lengths at worst; this takes their sum.
size_t find_text(std::string_view text, std::string_view part, size_t begin);
// repr() of a float.
std::string real_text(double value);
// repr() of a text.
std::string repr(std::string_view text);
// The text as JSON, with json.dumps(ensure_ascii=False).
void append_json(std::string& out, std::string_view text);

}  // namespace weft::jinja

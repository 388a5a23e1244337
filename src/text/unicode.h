// Code points of UTF-8 text: properties, normal forms and small letters, as the `tokenizers`
// library defines them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace weft {

// The first or last code point of valid UTF-8, which is removed from `text`.
char32_t take_code_point(std::string_view& text);
char32_t take_last_code_point(std::string_view& text);
void append_code_point(std::string& out, char32_t point);
size_t count_code_points(std::string_view text);

bool is_white_space(char32_t point);  // White_Space
bool is_numeric(char32_t point);      // general category N
bool is_punctuation(char32_t point);  // general category P, and the symbols of ASCII
bool is_printable(char32_t point);    // str.isprintable() of Python
bool is_word(char32_t point);         // Alphabetic, M, Nd, Pc or Join_Control

enum class NormalForm : uint8_t { c, d, kc, kd };
std::string normalized(std::string_view text, NormalForm form);
std::string lower_case(std::string_view text);

}  // namespace weft

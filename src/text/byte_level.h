// The alphabet of byte-level BPE: each byte is written as one visible character, as GPT-2 does.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace weft {

char32_t byte_letter(unsigned char byte);
std::optional<unsigned char> byte_of_letter(char32_t letter);

std::string to_byte_letters(std::string_view bytes);
// Null if a character of this UTF-8 text is not in the alphabet.
std::optional<std::string> from_byte_letters(std::string_view letters);

}  // namespace weft

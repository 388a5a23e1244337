// For abi_test.py: code that allocates, compares and copies, and reaches for nothing else.
#include <map>
#include <string>

std::map<std::string, int> stay_in(const std::string& text, int value) {
  return {{text + "!", value}};
}

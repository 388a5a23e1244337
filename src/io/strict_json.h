// Strict reading of JSON: duplicate, unknown and missing keys, wrong types and too many levels are
// errors that name them.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "base/result.h"
#include "io/json.h"

namespace weft {

enum class Fractions : uint8_t { refuse, allow };

// Receives the content of a large object or array, value by value, instead of the tree. The tree
// has an empty one. `key` is that of the nearest object; duplicate keys are left to it.
class JsonPart {
 public:
  virtual ~JsonPart() = default;
  virtual Status open() = 0;  // an object or array inside of it begins
  virtual Status close() = 0;
  virtual Status value(const std::string& key, const Json& value) = 0;
};

struct JsonLimits {
  Fractions fractions = Fractions::refuse;
  size_t depth = 5;
  size_t values = size_t{1} << 16;  // in the tree, where each takes about 60 bytes
  // The object at this key of the root has large members.
  std::string parent = {};
  std::map<std::string, JsonPart*> parts = {};
};
// One object.
Result<Json> read_json(std::string_view text, const JsonLimits& limits = {});

// Reads the known keys of an object one by one; the remaining keys are unknown.
class Fields {
 public:
  // `where` is the beginning of each message. The object is borrowed.
  Fields(const Json& object, std::string where) : object_(object), where_(std::move(where)) {}

  Status format(uint64_t known);  // checks the number "format"
  Status number(const char* key, uint64_t& out);
  Status real(const char* key, double& out);  // finite, from 0
  Status text(const char* key, std::string& out);
  Status boolean(const char* key, bool& out);
  Status digest(const char* key, Digest& out);
  Status texts(const char* key, std::map<std::string, std::string>& out);
  Result<const Json*> list(const char* key);
  Result<const Json*> object(const char* key);
  bool has(const char* key) const { return object_.members().contains(key); }
  // The key is missing, or its value is null, which counts as read.
  bool absent(const char* key);
  bool taken(const std::string& key) const { return taken_.contains(key); }
  Status finish() const;

 private:
  Result<const Json*> take(const char* key, const char* expected, bool (Json::*is)() const);

  const Json& object_;
  std::string where_;
  std::set<std::string> taken_;
};

// A list of strings.
Status read_texts(const Json& list, const std::string& where, std::vector<std::string>& out);

}  // namespace weft

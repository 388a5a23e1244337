// Hostile files. Each row is a kind of fault that some reader of this format once had; the text is
// part of the error.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "files.h"
#include "io/cluster.h"
#include "io/json.h"
#include "io/manifest.h"
#include "io/plan_file.h"
#include "io/profile.h"
#include "io/safetensors.h"
#include "io/tokenizer_json.h"
#include "test_data.h"

namespace weft {
namespace {

using test::Directory;
using test::fine;
using test::says;
using test::slurp;
using test::spill;

std::string count_of(uint64_t n) {
  std::string out(8, '\0');
  std::memcpy(out.data(), &n, 8);
  return out;
}

std::string file_of(const std::string& json, size_t data) {
  return count_of(json.size()) + json + std::string(data, '\1');
}

// One tensor "t" with these fields.
std::string tensor(const std::string& fields) { return "{\"t\":{" + fields + "}}"; }

std::string f32(const std::string& shape, const std::string& offsets) {
  return tensor("\"dtype\":\"F32\",\"shape\":" + shape + ",\"data_offsets\":" + offsets);
}

struct Row {
  const char* name;
  std::string bytes;
  std::string says;  // empty: accepted
};

void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

std::string name_of(const testing::TestParamInfo<Row>& row) { return row.param.name; }

class Hostile : public testing::TestWithParam<Row> {};

TEST_P(Hostile, File) {
  const Directory directory;
  const std::string path = directory / "file";
  spill(path, GetParam().bytes);
  const Status status = SafetensorsFile::open(path).status();
  if (GetParam().says.empty()) {
    EXPECT_TRUE(fine(status));
  } else {
    EXPECT_TRUE(says(status, {path, GetParam().says}));
    EXPECT_EQ(status.code(), Code::data);
  }
}

const std::string kOne = "\"t\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}";
const std::string kLast = "9223372036854775807";
const std::string kFit = f32("[1]", "[0,4]");

INSTANTIATE_TEST_SUITE_P(
    Prefix, Hostile,
    testing::Values(
        Row{"empty_file", "", "has 0 bytes, expected at least 8"},
        Row{"seven_bytes", std::string(7, '\0'), "has 7 bytes"},
        Row{"count_of_zero", count_of(0), "header has 0 bytes"},
        Row{"count_of_one", count_of(1) + "{", "header has 1 bytes"},
        Row{"count_of_all_ones", count_of(~uint64_t{0}) + "{}",
            "header has 18446744073709551615 bytes"},
        Row{"count_that_wraps_with_eight", count_of(~uint64_t{0} - 7) + "{}",
            "header has 18446744073709551608 bytes"},
        Row{"count_above_the_limit", count_of((16u << 20) + 1) + "{}", "expected 2 to 16777216"},
        Row{"count_beyond_the_file", count_of(3) + "{}", "but the file holds 2"},
        Row{"count_far_beyond_the_file", count_of(16u << 20) + "{}", "but the file holds 2"}),
    name_of);

INSTANTIATE_TEST_SUITE_P(
    Json, Hostile,
    testing::Values(
        Row{"empty_object", file_of("{}", 0), ""},
        Row{"empty_metadata", file_of("{\"__metadata__\":{}}", 0), ""},
        Row{"white_space_around", file_of(" \n{ }\t\r ", 0), ""},
        Row{"white_space_only", file_of(std::string(1 << 20, ' '), 0), "expects an object"},
        Row{"much_white_space", file_of("{}" + std::string(1 << 20, ' '), 0), ""},
        Row{"brace_only", file_of("{ ", 0), "not valid JSON"},
        Row{"byte_255", file_of("\xFF\xFF", 0), "expects an object"},
        Row{"byte_order_mark", file_of("\xEF\xBB\xBF{}", 0), "expects an object"},
        Row{"array", file_of("[]", 0), "expects an object"},
        Row{"two_objects", file_of("{}{}", 0), "not valid JSON"},
        Row{"nul_then_garbage", file_of(std::string("{}\0{\"", 5), 0), "contains a NUL"},
        Row{"comment", file_of("{/**/}", 0), "not valid JSON"},
        Row{"trailing_comma", file_of("{" + kOne + ",}", 4), "not valid JSON"},
        Row{"single_quotes", file_of("{'t':1}", 0), "not valid JSON"},
        Row{"name_not_utf8", file_of("{\"\xFF\":{}}", 0), "not valid JSON"},
        Row{"name_overlong_utf8", file_of("{\"\xC0\x80\":{}}", 0), "not valid JSON"},
        Row{"name_with_lone_surrogate", file_of("{\"\\ud800\":{}}", 0), "not valid JSON"},
        Row{"name_with_nul", file_of("{\"a\\u0000b\":{}}", 0), "'a\\x00b' contains a NUL"},
        Row{"name_empty", file_of("{\"\":{}}", 0), "name is empty"},
        Row{"name_too_long", file_of("{\"" + std::string(513, 'n') + "\":{}}", 0), "513 bytes"},
        Row{"deep_nesting", file_of("{\"t\":" + std::string(100000, '['), 0),
            "tensor 't': expected an object, found an array"},
        Row{"deep_nesting_in_metadata",
            file_of("{\"__metadata__\":{\"a\":" + std::string(100000, '{'), 0), "expects a string"},
        Row{"deep_nesting_in_shape", file_of(f32(std::string(100000, '['), "[0,4]"), 4),
            "shape expects an integer"},
        Row{"number_in_metadata", file_of("{\"__metadata__\":{\"a\":1}}", 0),
            "key 'a' expects a string, found a number"},
        Row{"null_metadata", file_of("{\"__metadata__\":null}", 0),
            "metadata: expected an object, found null"},
        Row{"number_for_tensor", file_of("{\"t\":1}", 0), "expected an object, found a number"}),
    name_of);

INSTANTIATE_TEST_SUITE_P(
    Keys, Hostile,
    testing::Values(
        Row{"one_tensor", file_of(kFit, 4), ""},
        Row{"duplicate_tensor", file_of("{" + kOne + "," + kOne + "}", 4), "duplicate key 't'"},
        Row{"duplicate_tensor_unescaped",
            file_of("{" + kOne +
                        ",\"\\u0074\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
                    8),
            "duplicate key 't'"},
        Row{"duplicate_metadata", file_of("{\"__metadata__\":{},\"__metadata__\":{}}", 0),
            "duplicate key '__metadata__'"},
        Row{"duplicate_in_metadata", file_of("{\"__metadata__\":{\"a\":\"\",\"a\":\"\"}}", 0),
            "metadata: duplicate key 'a'"},
        Row{"duplicate_in_tensor", file_of(tensor("\"dtype\":\"F32\",\"dtype\":\"F32\""), 0),
            "tensor 't': duplicate key 'dtype'"},
        Row{"unknown_key", file_of(tensor("\"strides\":[1]"), 0),
            "tensor 't': unknown key 'strides'"},
        Row{"no_dtype", file_of(tensor("\"shape\":[1],\"data_offsets\":[0,4]"), 4), "has no dtype"},
        Row{"no_shape", file_of(tensor("\"dtype\":\"F32\",\"data_offsets\":[0,4]"), 4),
            "has no shape"},
        Row{"no_offsets", file_of(tensor("\"dtype\":\"F32\",\"shape\":[1]"), 4),
            "has no data_offsets"},
        Row{"unknown_dtype",
            file_of(tensor("\"dtype\":\"F33\",\"shape\":[1],\"data_offsets\":[0,4]"), 4),
            "unknown dtype 'F33'"},
        Row{"dtype_in_lower_case",
            file_of(tensor("\"dtype\":\"f32\",\"shape\":[1],\"data_offsets\":[0,4]"), 4),
            "unknown dtype 'f32'"},
        Row{"dtype_number", file_of(tensor("\"dtype\":32"), 0),
            "dtype expects a string, found a number"},
        Row{"shape_string", file_of(tensor("\"shape\":\"1\""), 0),
            "shape expects an array, found a string"},
        Row{"shape_object", file_of(tensor("\"shape\":{}"), 0),
            "shape expects an array, found an object"},
        Row{"dimension_string", file_of(f32("[\"1\"]", "[0,4]"), 4), "shape expects an integer"},
        Row{"dimension_true", file_of(f32("[true]", "[0,4]"), 4), "found a boolean"},
        Row{"dimension_float", file_of(f32("[1.0]", "[0,4]"), 4), "found the number '1.0'"},
        Row{"dimension_exponent", file_of(f32("[1e0]", "[0,4]"), 4), "found the number '1e0'"},
        Row{"dimension_negative", file_of(f32("[-1]", "[0,4]"), 4), "found a negative number"},
        Row{"dimension_minus_zero", file_of(f32("[-0]", "[0,0]"), 0), "found a negative number"},
        Row{"dimension_beyond_int64", file_of(f32("[9223372036854775808]", "[0,4]"), 4),
            "found the number 9223372036854775808"},
        Row{"dimension_beyond_uint64", file_of(f32("[18446744073709551617]", "[0,4]"), 4),
            "found the number '18446744073709551617'"},
        Row{"nine_dimensions", file_of(f32("[1,1,1,1,1,1,1,1,1]", "[0,4]"), 4),
            "more than 8 dimensions"},
        Row{"eight_dimensions", file_of(f32("[1,1,1,1,1,1,1,1]", "[0,4]"), 4), ""},
        Row{"one_offset", file_of(f32("[1]", "[4]"), 4), "data_offsets has 1 numbers"},
        Row{"three_offsets", file_of(f32("[1]", "[0,4,4]"), 4),
            "data_offsets has more than 2 numbers"}),
    name_of);

INSTANTIATE_TEST_SUITE_P(
    Extents, Hostile,
    testing::Values(
        Row{"scalar", file_of(f32("[]", "[0,4]"), 4), ""},
        Row{"zero_elements", file_of(f32("[2,0]", "[0,0]"), 0), ""},
        Row{"shape_wraps_to_zero", file_of(f32("[4294967296,4294967296]", "[0,0]"), 0),
            "more bytes than a 64-bit size"},
        Row{"shape_wraps_before_a_zero", file_of(f32("[4611686018427387904,2,0]", "[0,0]"), 0),
            "more bytes than a 64-bit size"},
        Row{"shape_wraps_to_minus_four", file_of(f32("[2,18446744073709551614]", "[0,4]"), 4),
            "found the number 18446744073709551614"},
        Row{"shape_wraps_to_minus_two", file_of(f32("[2," + kLast + "]", "[0,4]"), 4),
            "more bytes than a 64-bit size"},
        Row{"bytes_wrap", file_of(f32("[4611686018427387905]", "[0,4]"), 4),
            "more bytes than a 64-bit size"},
        Row{"end_before_begin", file_of(f32("[1]", "[4,0]"), 4),
            "ends at byte 0 before it begins at 4"},
        Row{"negative_offset", file_of(f32("[1]", "[-4,0]"), 4), "data_offsets expects an integer"},
        Row{"offset_through_double", file_of(f32("[1]", "[0,4.0]"), 4),
            "data_offsets expects an integer"},
        Row{"huge_end", file_of(f32("[1]", "[0," + kLast + "]"), 4),
            "has 4 bytes, but data_offsets give " + kLast},
        Row{"shape_smaller_than_extent", file_of(f32("[1]", "[0,8]"), 8),
            "F32[1] has 4 bytes, but data_offsets give 8"},
        Row{"shape_larger_than_extent", file_of(f32("[3]", "[0,8]"), 8),
            "F32[3] has 12 bytes, but data_offsets give 8"},
        Row{"half_a_byte",
            file_of(tensor("\"dtype\":\"F4\",\"shape\":[1],\"data_offsets\":[0,0]"), 0),
            "is not a whole number of bytes"},
        Row{"two_halves_of_a_byte",
            file_of(tensor("\"dtype\":\"F4\",\"shape\":[2],\"data_offsets\":[0,1]"), 1), ""},
        Row{"hole_in_front", file_of(f32("[1]", "[4,8]"), 8),
            "begins at byte 4, expected 0, which leaves a hole"},
        Row{"hole_between",
            file_of("{" + kOne + ",\"u\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[5,6]}}",
                    6),
            "leaves a hole"},
        Row{"overlap",
            file_of("{" + kOne + ",\"u\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[3,4]}}",
                    4),
            "overlaps another"},
        Row{"same_bytes_twice",
            file_of("{" + kOne + ",\"u\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
                    4),
            "overlaps another"},
        Row{"trailing_bytes", file_of(kFit, 5), "tensors end at byte 4, but the file holds 5"},
        Row{"missing_bytes", file_of(kFit, 2), "tensors end at byte 4, but the file holds 2"},
        Row{"bytes_without_tensors", file_of("{}", 1), "tensors end at byte 0"}),
    name_of);

TEST(HostileLimits, TensorsAreCounted) {
  SafetensorsLimits limits;
  limits.tensors = 2;
  const std::string zero = "{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}";
  EXPECT_TRUE(fine(
      parse_safetensors_header("{\"a\":" + zero + ",\"b\":" + zero + "}", 0, limits).status()));
  EXPECT_TRUE(says(parse_safetensors_header(
                       "{\"a\":" + zero + ",\"b\":" + zero + ",\"c\":" + zero + "}", 0, limits)
                       .status(),
                   {"more than 2 tensors"}));
}

TEST(HostileLimits, TheHeaderMayBeAsLongAsTheFormatAllows) {
  SafetensorsLimits limits;
  limits.header_bytes = ~uint64_t{0};
  const std::string most = count_of(100'000'000), more = count_of(100'000'001);
  const auto count = [&](const std::string& prefix) {
    return safetensors_header_bytes(reinterpret_cast<const unsigned char*>(prefix.data()),
                                    1'000'000'000, limits);
  };
  ASSERT_TRUE(fine(count(most).status()));
  EXPECT_EQ(count(most).value(), 100'000'000u);
  EXPECT_TRUE(says(count(more).status(), {"expected 2 to 100000000"}));
}

// Each value takes memory, so each format has a limit of them.
TEST(HostileLimits, ValuesOfJsonAreCounted) {
  EXPECT_LE(sizeof(Json), 64u);
  std::string text = R"({"format":1,"cuts":[0)";
  for (int i = 0; i < 1 << 20; ++i) text += ",0";
  text += "]}";
  EXPECT_TRUE(says(parse_cluster(text).status(), {"has more than 1048576 values"}));
  EXPECT_TRUE(says(parse_manifest(text).status(), {"has more than 1048576 values"}));
  EXPECT_TRUE(says(parse_plan(text).status(), {"has more than 262144 values"}));
  EXPECT_TRUE(says(parse_profile(text).status(), {"has more than 1048576 values"}));
  EXPECT_TRUE(says(parse_tokenizer(text).status(), {"has more than 1048576 values"}));
}

TEST(HostilePlan, AGroupIsAnObject) {
  EXPECT_TRUE(says(parse_plan(R"({"format":1,"weft":"","rows":[],"cuts":[],"optimizer":{},)"
                              R"("model_hash":"00000000000000000000000000000000","groups":[1]})")
                       .status(),
                   {"'groups' expects objects, found number"}));
}

// A file with a few bytes changed, removed or doubled is refused, or says exactly what the bytes
// say: each tensor lies in the file, has the size of its shape, and reads as the bytes at its
// place.
TEST(HostileMutations, AreRefusedOrExact) {
  const Directory directory;
  const std::string whole = slurp(std::string(WEFT_TEST_DATA) + "/reference.safetensors");
  const std::string path = directory / "file";
  std::mt19937 random(1);
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  int accepted = 0;
  for (int round = 0; round < 10000; ++round) {
    std::string bytes = whole;
    for (size_t edits = 1 + below(3); edits > 0 && !bytes.empty(); --edits) {
      const size_t at = below(bytes.size());
      switch (below(5)) {
        case 0: bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8))); break;
        case 1: bytes[at] = "0123456789{}[],:\"-.e \\\0"[below(24)]; break;
        case 2: bytes.erase(at, 1 + below(4)); break;
        case 3: bytes.insert(at, bytes.substr(below(bytes.size()), 1 + below(8))); break;
        default: bytes.resize(1 + at); break;
      }
    }
    spill(path, bytes);
    auto opened = SafetensorsFile::open(path);
    if (!opened.ok()) {
      ASSERT_EQ(opened.status().text().rfind(path, 0), 0u) << opened.status().text();
      continue;
    }
    ++accepted;
    const SafetensorsFile& file = opened.value();
    ASSERT_EQ(file.bytes(), bytes.size());
    uint64_t next = 0;
    for (const SafetensorsEntry& entry : file.entries()) {
      ASSERT_EQ(entry.begin, next);
      next = entry.end;
      std::string read(entry.end - entry.begin, '\0');
      ASSERT_TRUE(fine(file.read_bytes(entry, std::as_writable_bytes(std::span(read)))));
      uint64_t count = 0;
      std::memcpy(&count, bytes.data(), 8);
      ASSERT_EQ(read, bytes.substr(8 + count + entry.begin, read.size()));
    }
  }
  EXPECT_GT(accepted, 100);
  EXPECT_LT(accepted, 5000);
}

}  // namespace
}  // namespace weft

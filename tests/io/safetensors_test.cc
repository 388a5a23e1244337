// What the writer writes the reader reads, and both agree with the reference implementation's file
// (tests/data/make_safetensors.py).
#include "io/safetensors.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <set>

#include "files.h"
#include "test_data.h"

namespace weft {
namespace {

using test::Directory;
using test::fine;
using test::says;
using test::slurp;
using test::spill;

template <typename T>
std::span<std::byte> memory_of(std::vector<T>& values) {
  return std::as_writable_bytes(std::span(values));
}
template <typename T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

const std::string kReference = std::string(WEFT_TEST_DATA) + "/reference.safetensors";
const std::vector<float> kWeight = {
    1.0f, -2.5f, 3e-40f, 0.0f, std::numeric_limits<float>::infinity(), 65504.0f};
const std::vector<float> kBeta = {0.5f};
const std::vector<int32_t> kTokens = {3, -1, 2147483647};
const std::vector<double> kLoss = {0.1};
const SafetensorsMetadata kMetadata = {{"note", "line\n\ttab \\ \xC3\xA9 \x7F"}};
constexpr const char* kBetaName = "b\xC3\xA9ta \"x\"";

std::vector<TensorSpec> reference_tensors() {
  return {{"tokens", {DType::i32, {3}}},
          {"a/weight", {DType::f32, {2, 3}}},
          {kBetaName, {DType::f32, {1}}},
          {"empty", {DType::f32, {0, 3}}},
          {"loss", {DType::f64, {}}}};
}

Status write_reference_tensor(SafetensorsWriter& writer, const std::string& name) {
  if (name == "tokens") return writer.write(name, bytes_of(kTokens));
  if (name == "a/weight") return writer.write(name, bytes_of(kWeight));
  if (name == "loss") return writer.write(name, bytes_of(kLoss));
  if (name == "empty") return writer.write(name, {});
  return writer.write(name, bytes_of(kBeta));
}

TEST(Safetensors, ReadsTheReferenceFile) {
  auto opened = SafetensorsFile::open(kReference);
  ASSERT_TRUE(fine(opened.status()));
  const SafetensorsFile& file = opened.value();
  EXPECT_EQ(file.metadata(), kMetadata);
  ASSERT_EQ(file.entries().size(), 5u);
  const SafetensorsEntry* weight = file.find("a/weight");
  ASSERT_NE(weight, nullptr);
  EXPECT_EQ(weight->spec().value(), (TensorSpec{"a/weight", {DType::f32, {2, 3}}}));
  std::vector<float> values(6);
  ASSERT_TRUE(fine(file.read_bytes(*weight, memory_of(values))));
  EXPECT_EQ(values, kWeight);
  std::vector<int32_t> tokens(3);
  ASSERT_NE(file.find("tokens"), nullptr);
  ASSERT_TRUE(fine(file.read_bytes(*file.find("tokens"), memory_of(tokens))));
  EXPECT_EQ(tokens, kTokens);
  ASSERT_NE(file.find("empty"), nullptr);
  EXPECT_TRUE(fine(file.read_bytes(*file.find("empty"), {})));
  ASSERT_NE(file.find("loss"), nullptr);
  EXPECT_EQ(file.find("loss")->shape.rank, 0);
  EXPECT_NE(file.find(kBetaName), nullptr);
  EXPECT_EQ(file.find("los"), nullptr);
  EXPECT_EQ(file.find("tokens "), nullptr);
}

TEST(Safetensors, RefusesToReadATensorOfAnotherSizeOrKind) {
  auto opened = SafetensorsFile::open(kReference);
  ASSERT_TRUE(fine(opened.status()));
  const SafetensorsFile& file = opened.value();
  std::vector<float> floats(3);
  EXPECT_TRUE(says(file.read_bytes(*file.find("a/weight"), memory_of(floats)),
                   {kReference, "'a/weight'", "has 24 bytes", "memory has 12"}));

  const Directory directory;
  const std::string json = R"({"half":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]}})";
  spill(directory / "x",
        std::string(1, static_cast<char>(json.size())) + std::string(7, '\0') + json + "ab");
  auto half = SafetensorsFile::open(directory / "x");
  ASSERT_TRUE(fine(half.status()));
  EXPECT_TRUE(
      says(half.value().entries()[0].spec().status(), {"'half'", "BF16", "expected F32, I32"}));
}

TEST(Safetensors, ReadsHalvesAsFloats) {
  const Directory directory;
  const std::string json = R"({"b":{"dtype":"BF16","shape":[3],"data_offsets":[0,6]},)"
                           R"("h":{"dtype":"F16","shape":[3],"data_offsets":[6,12]},)"
                           R"("i":{"dtype":"I16","shape":[1],"data_offsets":[12,14]}})";
  const uint16_t bits[] = {0x3f80, 0xc000, 0x0001, 0x3c00, 0xc000, 0x0001, 7};
  const std::string data(reinterpret_cast<const char*>(bits), sizeof bits);
  spill(directory / "x",
        std::string(1, static_cast<char>(json.size())) + std::string(7, '\0') + json + data);
  auto opened = SafetensorsFile::open(directory / "x");
  ASSERT_TRUE(fine(opened.status()));
  const SafetensorsFile& file = opened.value();
  std::vector<float> floats(3);
  ASSERT_TRUE(fine(file.read_floats(*file.find("b"), 0, floats)));
  EXPECT_EQ(floats, (std::vector<float>{1, -2, 0x1p-133f}));
  ASSERT_TRUE(fine(file.read_floats(*file.find("h"), 0, floats)));
  EXPECT_EQ(floats, (std::vector<float>{1, -2, 0x1p-24f}));
  EXPECT_EQ(file.find("h")->float_spec().value(), (TensorSpec{"h", {DType::f32, {3}}}));
  EXPECT_TRUE(says(file.read_floats(*file.find("h"), 1, floats),
                   {"'h'", "has 6 bytes, requested are 6 from byte 2"}));
  floats.resize(1);
  ASSERT_TRUE(fine(file.read_floats(*file.find("h"), 1, floats)));
  EXPECT_EQ(floats[0], -2);
  EXPECT_TRUE(says(file.read_floats(*file.find("i"), 0, floats),
                   {directory / "x", "'i'", "I16", "expected F32, F16 or BF16"}));
}

TEST(Safetensors, ReadsFloatsOfAnyNumberOfPieces) {
  const Directory directory;
  const size_t n = 40000;  // more than are converted at a time
  std::vector<uint16_t> halves(n);
  for (size_t i = 0; i < n; ++i) halves[i] = static_cast<uint16_t>(0x3f80 + i % 100);
  const std::string json = R"({"b":{"dtype":"BF16","shape":[40000],"data_offsets":[0,80000]}})";
  spill(directory / "x", std::string(1, static_cast<char>(json.size())) + std::string(7, '\0') +
                             json +
                             std::string(reinterpret_cast<const char*>(halves.data()), 2 * n));
  auto file = SafetensorsFile::open(directory / "x");
  ASSERT_TRUE(fine(file.status()));
  std::vector<float> floats(n - 5);
  ASSERT_TRUE(fine(file.value().read_floats(file.value().entries()[0], 5, floats)));
  for (size_t i = 0; i < floats.size(); ++i)
    ASSERT_EQ(std::bit_cast<uint32_t>(floats[i]), uint32_t{halves[i + 5]} << 16) << i;
}

TEST(Safetensors, WritesTheBytesOfTheReference) {
  const Directory directory;
  const std::string expected = slurp(kReference);
  for (const bool in_order : {true, false}) {
    const std::string path = directory / (in_order ? "in-order" : "as-declared");
    auto writer = SafetensorsWriter::create(path, reference_tensors(), kMetadata);
    ASSERT_TRUE(fine(writer.status()));
    if (in_order) {
      for (const SafetensorsEntry& entry : writer.value().order())
        ASSERT_TRUE(fine(write_reference_tensor(writer.value(), entry.name)));
    } else {
      for (const TensorSpec& tensor : reference_tensors())
        ASSERT_TRUE(fine(write_reference_tensor(writer.value(), tensor.name)));
    }
    EXPECT_FALSE(std::filesystem::exists(path)) << "appears before it is whole";
    auto written = writer.value().finish();
    ASSERT_TRUE(fine(written.status()));
    EXPECT_EQ(slurp(path), expected);
    EXPECT_EQ(written.value().bytes, expected.size());
    EXPECT_EQ(written.value().checksum, hash_bytes(expected.data(), expected.size()));
    EXPECT_EQ(SafetensorsFile::open(path).value().checksum().value(), written.value().checksum);
  }
}

TEST(Safetensors, WritesAFileWithoutTensors) {
  const Directory directory;
  for (const SafetensorsMetadata& metadata : {SafetensorsMetadata(), kMetadata}) {
    const std::string path = directory / "none";
    auto writer = SafetensorsWriter::create(path, {}, metadata);
    ASSERT_TRUE(fine(writer.status()));
    ASSERT_TRUE(fine(writer.value().finish().status()));
    auto file = SafetensorsFile::open(path);
    ASSERT_TRUE(fine(file.status()));
    EXPECT_TRUE(file.value().entries().empty());
    EXPECT_EQ(file.value().metadata(), metadata);
  }
}

TEST(Safetensors, WriterRefusesNamesThatCannotBe) {
  const Directory directory;
  const auto create = [&](std::vector<TensorSpec> tensors) {
    return SafetensorsWriter::create(directory / "x", tensors).status();
  };
  const Desc f32{DType::f32, {1}};
  EXPECT_TRUE(says(create({{"__metadata__", f32}}), {"'__metadata__'", "reserved"}));
  EXPECT_TRUE(says(create({{"", f32}}), {"name is empty"}));
  EXPECT_TRUE(says(create({{std::string("a\0b", 3), f32}}), {"'a\\x00b'", "NUL"}));
  EXPECT_TRUE(says(create({{"\xC3", f32}}), {"not UTF-8"}));
  EXPECT_TRUE(says(create({{"a\xED\xA0\x80", f32}}), {"not UTF-8"}));
  EXPECT_TRUE(says(create({{std::string(513, 'a'), f32}}), {"513 bytes", "at most 512"}));
  EXPECT_TRUE(says(create({{"w", f32}, {"w", f32}}), {"duplicate", "'w'"}));
  EXPECT_TRUE(
      says(create({{"w", {DType::f32, {int64_t{1} << 40, int64_t{1} << 40}}}}), {"'w'", "64-bit"}));
  EXPECT_TRUE(says(SafetensorsWriter::create(directory / "x", {}, {{"k", "\xFF"}}).status(),
                   {"metadata 'k'", "not UTF-8"}));
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

TEST(Safetensors, PiecesInAnyOrderMakeTheSameFile) {
  const Directory directory;
  std::vector<float> values(1000);
  std::iota(values.begin(), values.end(), 0.5f);
  const auto bytes = bytes_of(values);
  std::set<std::string> files, checksums;
  for (const std::vector<uint64_t>& offsets :
       {std::vector<uint64_t>{0, 1000, 2000, 3000}, {3000, 0, 2000, 1000}}) {
    auto made = SafetensorsWriter::create(directory / "x", {{"a", {DType::f32, {1000}}}});
    ASSERT_TRUE(fine(made.status()));
    for (const uint64_t offset : offsets)
      ASSERT_TRUE(fine(made.value().write_piece("a", offset, bytes.subspan(offset, 1000))));
    auto written = made.value().finish();
    ASSERT_TRUE(fine(written.status()));
    checksums.insert(written.value().checksum.hex());
    files.insert(slurp(directory / "x"));
    const std::string& file = *files.begin();
    EXPECT_EQ(written.value().checksum, hash_bytes(file.data(), file.size()));
  }
  EXPECT_EQ(files.size(), 1u);
  EXPECT_EQ(checksums.size(), 1u);
}

TEST(Safetensors, WriterTakesEachTensorOnce) {
  const Directory directory;
  auto made = SafetensorsWriter::create(directory / "x",
                                        {{"a", {DType::f32, {2}}}, {"b", {DType::f32, {1}}}});
  ASSERT_TRUE(fine(made.status()));
  SafetensorsWriter writer = made.take();
  const std::vector<float> two = {1, 2};
  EXPECT_TRUE(says(writer.write("c", bytes_of(two)), {"'c'", "not declared"}));
  EXPECT_TRUE(says(writer.write("b", bytes_of(two)), {"'b'", "has 4 bytes, got 8"}));
  EXPECT_TRUE(fine(writer.write("a", bytes_of(two))));
  EXPECT_TRUE(says(writer.write("a", bytes_of(two)), {"'a'", "already"}));
  EXPECT_TRUE(says(writer.finish().status(), {"'b'", "not written"}));
  EXPECT_TRUE(says(writer.finish().status(), {"finished"}));
  EXPECT_TRUE(says(writer.write("b", bytes_of(two)), {"finished"}));
  EXPECT_TRUE(std::filesystem::is_empty(directory.path())) << "the hidden file is left behind";
}

TEST(Safetensors, ThePreviousFileStaysUntilTheNewOneIsWhole) {
  const Directory directory;
  spill(directory / "x", "previous");
  {
    auto writer = SafetensorsWriter::create(directory / "x", {{"a", {DType::f32, {1}}}});
    ASSERT_TRUE(fine(writer.status()));
    ASSERT_TRUE(fine(writer.value().write("a", bytes_of(kBeta))));
    EXPECT_EQ(slurp(directory / "x"), "previous");
  }
  EXPECT_EQ(slurp(directory / "x"), "previous");
  auto writer = SafetensorsWriter::create(directory / "x", {{"a", {DType::f32, {1}}}});
  ASSERT_TRUE(fine(writer.value().write("a", bytes_of(kBeta))));
  ASSERT_TRUE(fine(writer.value().finish().status()));
  EXPECT_TRUE(fine(SafetensorsFile::open(directory / "x").status()));
}

TEST(Safetensors, RefusesWhatIsNoRegularFile) {
  const Directory directory;
  ASSERT_EQ(mkfifo((directory / "pipe").c_str(), 0600), 0);
  EXPECT_TRUE(says(SafetensorsFile::open(directory / "pipe").status(), {"pipe", "regular file"}));
  EXPECT_TRUE(says(SafetensorsFile::open(directory.path()).status(),
                   {directory.path(), "regular file", "directory"}));
  EXPECT_TRUE(says(SafetensorsFile::open("/dev/zero").status(), {"/dev/zero", "regular file"}));
  EXPECT_EQ(SafetensorsFile::open(directory / "none").status().code(), Code::not_found);
  std::filesystem::create_symlink(kReference, directory / "link");
  EXPECT_TRUE(fine(SafetensorsFile::open(directory / "link").status()));
  EXPECT_TRUE(says(SafetensorsFile::open(directory / "link", {}, Links::refuse).status(),
                   {"found a link"}));
}

TEST(Safetensors, AFileCutShortAfterOpeningIsAnError) {
  const Directory directory;
  const std::string path = directory / "x";
  std::filesystem::copy_file(kReference, path);
  auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(fine(file.status()));
  std::filesystem::resize_file(path, file.value().bytes() - 1);
  std::vector<int32_t> tokens(3);
  EXPECT_TRUE(says(file.value().read_bytes(*file.value().find("tokens"), memory_of(tokens)),
                   {path, "'tokens'", "expected 1 more"}));
  EXPECT_TRUE(says(file.value().checksum().status(), {path, "ends at byte"}));
}

// In a child, since the limit and the signal's fate are those of a process.
TEST(Safetensors, AFullDiskIsAnErrorThatNamesThePath) {
  const Directory directory;
  const std::string path = directory / "big";
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{4096, 4096};
    setrlimit(RLIMIT_FSIZE, &limit);
    auto writer = SafetensorsWriter::create(path, {{"a", {DType::f32, {1 << 20}}}});
    const bool told = !writer.ok() && writer.status().code() == Code::io &&
                      says(writer.status(), {path + ": cannot reserve", "file too large"});
    _exit(told && std::filesystem::is_empty(directory.path()) ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST(Safetensors, NamesAreCompared) {
  const std::vector<TensorSpec> expected = {
      {"a", {DType::f32, {1}}}, {"b", {DType::f32, {2}}}, {"c", {DType::f32, {2}}}};
  EXPECT_TRUE(fine(compare_tensors("x", expected, {expected[2], expected[0], expected[1]})));
  EXPECT_TRUE(
      says(compare_tensors("x", expected, {expected[0], {"b", {DType::f32, {1, 2}}}, {"d", {}}}),
           {"x: ", "1 missing tensor: 'c'", "1 surplus tensor: 'd'",
            "'b' is f32[1,2], expected f32[2]"}));
  std::vector<TensorSpec> many;
  for (int i = 0; i < 20; ++i) many.push_back({"t" + std::to_string(i), {}});
  EXPECT_TRUE(
      says(compare_tensors("x", many, {}), {"20 missing tensors: 't0', 't1', 't2' and 17 more"}));
}

}  // namespace
}  // namespace weft

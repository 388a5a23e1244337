// What a rank reads itself: only files below its directory that are those of rank 0.
#include "runtime/weight_files.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "support/directory.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

struct WeightFilesTest : testing::Test {
  WeightFilesTest() { write(path, 1); }

  // Tensor "w" of 2 x 3 floats from `first` on.
  static void write(const std::string& to, float first) {
    SafetensorsHeader header;
    header.entries.push_back(
        {.name = "w", .dtype = "F32", .shape = {2, 3}, .begin = 0, .end = 6 * sizeof(float)});
    std::ofstream out(to, std::ios::binary);
    out << print_safetensors_header(header);
    for (int i = 0; i < 6; ++i) {
      const float value = first + static_cast<float>(i);
      out.write(reinterpret_cast<const char*>(&value), sizeof value);
    }
  }
  static FileOffer offer(const std::string& of) {
    const auto file = SafetensorsFile::open(of);
    EXPECT_TRUE(file.ok()) << file.status().text();
    return {of, file.value().fingerprint().value()};
  }
  static Status open(WeightFiles& files, const FileOffer& offered, uint64_t index = 0) {
    return files.open(index, encode(offered));
  }
  void refuses(const std::string& allowed, const FileOffer& offered) {
    WeightFiles files(allowed);
    EXPECT_EQ(open(files, offered).text(), "the file is not read here");
    EXPECT_FALSE(files.find(encode(TensorPlace{0, "w"})).ok());
  }

  const test::Directory own;
  const std::string directory = own.path(), path = directory + "/weights";
};

TEST_F(WeightFilesTest, ReadsPiecesOfAnAcceptedFile) {
  WeightFiles files(directory);
  ASSERT_TRUE(open(files, offer(path)).ok());
  const auto found = files.find(encode(TensorPlace{0, "w"}));
  ASSERT_TRUE(found.ok()) << found.status().text();
  ParamPiece piece;
  piece.shape = {2, 3};
  float values[3];
  ASSERT_TRUE(read_weights(found.value(), piece, 2, values).ok());
  EXPECT_EQ(values[0], 3);
  EXPECT_EQ(values[2], 5);
  files.close();
  EXPECT_FALSE(files.find(encode(TensorPlace{0, "w"})).ok());
}

TEST_F(WeightFilesTest, RefusesFilesWithoutAReason) {
  const FileOffer fine = offer(path);
  const std::string beside = directory + "-beside", link = directory + "/in/link";
  fs::create_directory(directory + "/in");
  fs::create_symlink(path, link);
  refuses("", fine);
  refuses(beside, fine);
  refuses(directory + "/in", {link, fine.fingerprint});
  refuses(directory + "/in", {directory + "/in/../weights", fine.fingerprint});
  refuses(directory, {"weights", fine.fingerprint});
  refuses(directory, {directory + "/missing", fine.fingerprint});
  refuses(directory, {directory, fine.fingerprint});
  refuses("/", {"/dev/null", fine.fingerprint});
  std::ofstream(directory + "/text") << "no weights";
  refuses(directory, {directory + "/text", fine.fingerprint});
  const std::string other = directory + "/other";
  write(other, 2);
  refuses(directory, {other, fine.fingerprint});
}

TEST_F(WeightFilesTest, RefusesMalformedRequests) {
  WeightFiles files(directory);
  EXPECT_EQ(open(files, offer(path), 1).text(),
            "an offer of file 1, expected file 0 of at most 1024");
  EXPECT_EQ(files.open(0, {}).code(), Code::protocol);
  ASSERT_TRUE(open(files, offer(path)).ok());
  EXPECT_EQ(files.find(encode(TensorPlace{1, "w"})).status().text(),
            "a tensor of file 1, expected one of 1");
  EXPECT_EQ(files.find(encode(TensorPlace{0, "v"})).status().text(), path + ": has no tensor 'v'");
  EXPECT_EQ(files.find({}).status().code(), Code::protocol);
}

TEST_F(WeightFilesTest, NamesAFileThatWasTruncated) {
  WeightFiles files(directory);
  ASSERT_TRUE(open(files, offer(path)).ok());
  fs::resize_file(path, fs::file_size(path) - 4);
  const auto found = files.find(encode(TensorPlace{0, "w"}));
  ASSERT_TRUE(found.ok());
  ParamPiece piece;
  piece.shape = {2, 3};
  float values[6];
  EXPECT_EQ(read_weights(found.value(), piece, 0, values).text(),
            "tensor 'w': " + path + ": ends at byte " + std::to_string(fs::file_size(path)) +
                ", expected 4 more");
}

}  // namespace
}  // namespace weft

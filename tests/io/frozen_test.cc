// Checkpoints of a run share the files of parameters that it does not train.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "checkpoints.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using test::Directory;
using test::fine;
using test::kSmallShard;
using test::manifest_of;
using test::model_tensors;
using test::values_of;

// The first two tensors are frozen. Frozen values are those of step 0, the others those of `step`.
uint64_t step_of(const std::string& tensor, uint64_t step) {
  const auto all = model_tensors();
  return tensor == all[0].name || tensor == all[1].name ? 0 : step;
}

struct Written {
  std::string path;
  size_t tensors = 0;
};

Written write(const std::string& directory, uint64_t step, const std::string& same) {
  CheckpointWriter::Frozen frozen{.tensors = {}, .same = same};
  std::vector<TensorSpec> model;
  const auto all = model_tensors();
  for (size_t i = 0; i < all.size(); ++i) (i < 2 ? frozen.tensors : model).push_back(all[i]);
  auto made = CheckpointWriter::begin(directory, manifest_of(step), model, {}, kSmallShard, frozen);
  EXPECT_TRUE(fine(made.status()));
  CheckpointWriter writer = made.take();
  Written out;
  for (const auto& [part, name] : writer.order()) {
    const auto spec =
        std::find_if(all.begin(), all.end(),
                     [&name = name](const TensorSpec& tensor) { return tensor.name == name; });
    const std::vector<float> values = values_of(*spec, step_of(name, step));
    EXPECT_TRUE(fine(writer.write(part, name, 0, std::as_bytes(std::span(values)))));
    ++out.tensors;
  }
  const auto path = writer.commit();
  EXPECT_TRUE(fine(path.status()));
  out.path = path.value();
  return out;
}

void expect_values(const std::string& path, uint64_t step) {
  auto checkpoint = Checkpoint::open(path);
  ASSERT_TRUE(fine(checkpoint.status()));
  ASSERT_TRUE(fine(checkpoint.value().verify()));
  for (const TensorSpec& tensor : model_tensors()) {
    std::vector<float> found(static_cast<size_t>(tensor.desc.elements()));
    ASSERT_TRUE(
        fine(checkpoint.value().read_model(tensor.name, std::as_writable_bytes(std::span(found)))));
    EXPECT_EQ(found, values_of(tensor, step_of(tensor.name, step))) << tensor.name;
  }
}

std::set<ino_t> files_of(const std::string& path) {
  std::set<ino_t> out;
  for (const auto& entry : fs::directory_iterator(path)) {
    struct stat info {};
    EXPECT_EQ(stat(entry.path().c_str(), &info), 0);
    if (entry.path().extension() == ".safetensors") out.insert(info.st_ino);
  }
  return out;
}

TEST(FrozenParameters, HaveFilesThatCheckpointsShare) {
  const Directory directory;
  const Written first = write(directory.path(), 1, {}),
                second = write(directory.path(), 2, first.path);
  EXPECT_EQ(first.tensors, model_tensors().size());
  EXPECT_EQ(second.tensors, model_tensors().size() - 2);
  std::set<ino_t> both = files_of(first.path);
  const size_t files = both.size();
  both.merge(files_of(second.path));
  EXPECT_LT(both.size(), 2 * files);
  expect_values(first.path, 1);
  // The third one removes the first.
  const Written third = write(directory.path(), 3, second.path);
  EXPECT_FALSE(fs::exists(first.path));
  expect_values(second.path, 2);
  expect_values(third.path, 3);
}

// The run still has the values.
TEST(FrozenParameters, AreWrittenIfTheFileIsDamaged) {
  const Directory directory;
  const Written first = write(directory.path(), 1, {});
  std::string bytes = test::slurp(first.path + "/model-00001.safetensors");
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  test::spill(first.path + "/model-00001.safetensors", bytes);
  const Written second = write(directory.path(), 2, first.path);
  EXPECT_EQ(second.tensors, model_tensors().size());
  expect_values(second.path, 2);
}

TEST(FrozenParameters, AreWrittenIfThereIsNoFileToShare) {
  const Directory directory;
  const Written first = write(directory.path(), 1, {});
  fs::remove_all(first.path);
  const Written second = write(directory.path(), 2, first.path);
  EXPECT_EQ(second.tensors, model_tensors().size());
  expect_values(second.path, 2);
}

}  // namespace
}  // namespace weft

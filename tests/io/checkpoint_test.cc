#include "io/checkpoint.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "checkpoints.h"
#include "weft.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using test::check_checkpoint;
using test::Directory;
using test::fine;
using test::kSmallShard;
using test::manifest_of;
using test::model_tensors;
using test::names_in;
using test::optimizer_tensors;
using test::says;
using test::slurp;
using test::spill;
using test::write_checkpoint;

// Opens and reads all; returns the first failure of either.
Status open_and_check(const std::string& path) {
  auto opened = Checkpoint::open(path);
  if (!opened.ok()) return opened.status();
  return check_checkpoint(opened.value());
}

TEST(Checkpoint, ComesBackAsItWas) {
  const Directory directory;
  const std::string dir = directory / "made/on/demand";
  auto path = write_checkpoint(dir, 10);
  ASSERT_TRUE(fine(path.status()));
  EXPECT_EQ(path.value(), dir + "/step-00000010");
  EXPECT_EQ(slurp(dir + "/latest"), "step-00000010\n");
  EXPECT_EQ(names_in(dir), (std::set<std::string>{"latest", "step-00000010"}));
  for (const std::string& given : {dir, dir + "/", path.value(), path.value() + "/"}) {
    auto opened = Checkpoint::open(given);
    ASSERT_TRUE(fine(opened.status()));
    Checkpoint& checkpoint = opened.value();
    EXPECT_EQ(checkpoint.path(), path.value());
    EXPECT_EQ(checkpoint.warning(), "");
    Manifest manifest = checkpoint.manifest();
    // 64 | 24 + 12 + 20 + 4 bytes of model, twice that of optimizer state.
    EXPECT_EQ(std::count_if(manifest.shards.begin(), manifest.shards.end(),
                            [](auto& s) { return s.part == ShardPart::model; }),
              2);
    EXPECT_GE(manifest.shards.size(), 5u);
    manifest.shards.clear();
    EXPECT_EQ(manifest, manifest_of(10));
    EXPECT_EQ(checkpoint.model(), model_tensors());
    EXPECT_TRUE(fine(check_checkpoint(checkpoint)));
    EXPECT_TRUE(fine(checkpoint.verify()));
  }
}

TEST(Checkpoint, TypesOfTensorsHaveTheirNamesInTheCInterface) {
  const Directory directory;
  const std::vector<TensorSpec> tensors = {
      {"a", {DType::f32, {2}}}, {"b", {DType::i32, {2}}}, {"c", {DType::f64, {2}}}};
  auto writer = CheckpointWriter::begin(directory.path(), manifest_of(1), tensors, {});
  ASSERT_TRUE(fine(writer.status()));
  for (const TensorSpec& tensor : tensors) {
    const std::vector<std::byte> zeros(tensor.desc.bytes());
    ASSERT_TRUE(fine(writer.value().write(ShardPart::model, tensor.name, 0, zeros)));
  }
  ASSERT_TRUE(fine(writer.value().commit().status()));
  weft_checkpoint* checkpoint = nullptr;
  ASSERT_EQ(weft_checkpoint_open(directory.path().c_str(), &checkpoint, nullptr), WEFT_OK);
  const char* dtype = nullptr;
  std::set<std::string> found;
  for (uint32_t i = 0; i < 3; ++i) {
    const std::string name = weft_checkpoint_tensor(checkpoint, i, nullptr, &dtype);
    found.insert(name + ' ' + dtype);
  }
  EXPECT_EQ(found, (std::set<std::string>{"a F32", "b I32", "c F64"}));
  EXPECT_EQ(weft_checkpoint_tensor(checkpoint, 3, nullptr, &dtype), nullptr);
  EXPECT_EQ(dtype, nullptr);
  weft_checkpoint_free(checkpoint);
}

TEST(Checkpoint, ShardsKeepToTheirLimit) {
  const Directory directory;
  auto path = write_checkpoint(directory.path(), 1);
  ASSERT_TRUE(fine(path.status()));
  for (const std::string& name : names_in(path.value())) {
    if (name == "manifest.json") continue;
    auto file = SafetensorsFile::open(path.value() + "/" + name);
    ASSERT_TRUE(fine(file.status()));
    EXPECT_LE(file.value().entries().back().end, kSmallShard) << name;
  }
}

TEST(Checkpoint, AModelWithoutOptimizerStateOrWithoutTensors) {
  const Directory directory;
  auto writer = CheckpointWriter::begin(directory / "a", manifest_of(0), {}, {});
  ASSERT_TRUE(fine(writer.status()));
  ASSERT_TRUE(fine(writer.value().commit().status()));
  auto opened = Checkpoint::open(directory / "a");
  ASSERT_TRUE(fine(opened.status()));
  EXPECT_TRUE(opened.value().model().empty());
  std::byte byte[4];
  EXPECT_TRUE(says(opened.value().read_model("w", byte),
                   {"step-00000000", "contains no model tensor 'w'"}));
}

TEST(Checkpoint, TwoAreKept) {
  const Directory directory;
  for (const uint64_t step : {10, 20, 30, 40})
    ASSERT_TRUE(fine(write_checkpoint(directory.path(), step).status()));
  EXPECT_EQ(names_in(directory.path()),
            (std::set<std::string>{"latest", "step-00000030", "step-00000040"}));
  EXPECT_TRUE(fine(open_and_check(directory / "step-00000030")));
  // One that is broken does not count.
  fs::remove(directory / "step-00000040/manifest.json");
  ASSERT_TRUE(fine(write_checkpoint(directory.path(), 50).status()));
  EXPECT_EQ(names_in(directory.path()),
            (std::set<std::string>{"latest", "step-00000030", "step-00000050"}));
}

TEST(Checkpoint, TheSameStepIsReplaced) {
  const Directory directory;
  for (const uint64_t step : {10, 20, 20})
    ASSERT_TRUE(fine(write_checkpoint(directory.path(), step).status()));
  EXPECT_EQ(names_in(directory.path()),
            (std::set<std::string>{"latest", "step-00000010", "step-00000020"}));
  EXPECT_TRUE(fine(open_and_check(directory.path())));
}

TEST(Checkpoint, NewerOnesAreNotOverwritten) {
  const Directory directory;
  ASSERT_TRUE(fine(write_checkpoint(directory.path(), 100).status()));
  const Status status = write_checkpoint(directory.path(), 10).status();
  EXPECT_TRUE(says(status, {directory.path(), "step-00000100", "newer than step 10"}));
  EXPECT_EQ(status.code(), Code::state);
  EXPECT_FALSE(CheckpointWriter::may_write(directory.path(), 99).ok());
  EXPECT_TRUE(fine(CheckpointWriter::may_write(directory.path(), 100)));
  EXPECT_TRUE(fine(CheckpointWriter::may_write(directory / "none", 1)));
}

TEST(Checkpoint, WithoutCommitNothingIsLeft) {
  const Directory directory;
  {
    auto writer =
        CheckpointWriter::begin(directory.path(), manifest_of(1), model_tensors(), {}, kSmallShard);
    ASSERT_TRUE(fine(writer.status()));
    const auto values = test::values_of(model_tensors()[0], 1);
    ASSERT_TRUE(
        fine(writer.value().write(ShardPart::model, "embed", 0, std::as_bytes(std::span(values)))));
    EXPECT_EQ(names_in(directory.path()), (std::set<std::string>{".step-00000001.tmp"}));
    EXPECT_TRUE(says(Checkpoint::open(directory.path()).status(),
                     {directory.path(),
                      "contains no checkpoint such as step-00000010, no "
                      "config.json and no adapter_config.json"}));
  }
  EXPECT_TRUE(fs::is_empty(directory.path()));
}

TEST(Checkpoint, TheWriterKeepsToItsLists) {
  const Directory directory;
  const auto values = test::values_of(model_tensors()[0], 1);
  const auto bytes = std::as_bytes(std::span(values));
  auto made = CheckpointWriter::begin(directory.path(), manifest_of(1), model_tensors(), {});
  ASSERT_TRUE(fine(made.status()));
  CheckpointWriter writer = made.take();
  const auto write = [&](const char* name, uint64_t offset, std::span<const std::byte> piece) {
    return writer.write(ShardPart::model, name, offset, piece);
  };
  EXPECT_TRUE(says(write("tail", 0, bytes), {"model tensor 'tail'", "not declared"}));
  EXPECT_TRUE(says(writer.write(ShardPart::optimizer, "embed", 0, bytes),
                   {"optimizer tensor 'embed'", "not declared"}));
  EXPECT_TRUE(says(write("embed", 4, bytes), {"'embed'", "has 64 bytes, got 64 from byte 4"}));
  EXPECT_TRUE(fine(write("embed", 32, bytes.subspan(32))));
  EXPECT_TRUE(says(write("embed", 0, bytes), {"'embed'", "lacks 32 bytes, got 64"}));
  EXPECT_TRUE(fine(write("embed", 0, bytes.first(32))));
  EXPECT_TRUE(says(write("embed", 0, bytes.first(4)), {"'embed'", "written already"}));
  EXPECT_TRUE(says(writer.commit().status(), {"'0.bias'", "not written"}));
  EXPECT_TRUE(says(writer.commit().status(), {"finished"}));
  EXPECT_TRUE(says(write("0.weight", 0, bytes), {"finished"}));
}

TEST(Checkpoint, OneThatMayNotBeReadIsNotPassedOver) {
  if (geteuid() == 0 && seteuid(65534) != 0) GTEST_SKIP() << "cannot be another user";
  {
    const Directory directory;
    for (const uint64_t step : {10, 20})
      ASSERT_TRUE(fine(write_checkpoint(directory.path(), step).status()));
    for (const char* file : {"step-00000020/model-00001.safetensors", "step-00000020/manifest.json",
                             "step-00000020", "latest"}) {
      SCOPED_TRACE(file);
      const fs::path path = directory / file;
      const fs::perms before = fs::status(path).permissions();
      fs::permissions(path, fs::perms::none);
      const Status status = Checkpoint::open(directory.path()).status();
      EXPECT_EQ(status.code(), Code::io);
      EXPECT_TRUE(says(status, {file, "permission denied"}));
      fs::permissions(path, before);
    }
    EXPECT_TRUE(fine(open_and_check(directory.path())));
  }
  EXPECT_EQ(seteuid(getuid()), 0);
}

TEST(Checkpoint, IsNoDirectoryForOthers) {
  const Directory directory;
  auto first = write_checkpoint(directory.path(), 10);
  ASSERT_TRUE(fine(first.status()));
  const auto before = names_in(first.value());
  for (const std::string& place :
       {first.value(), first.value() + "/", directory / "step-00000011"}) {
    const Status status = write_checkpoint(place, 20).status();
    EXPECT_EQ(status.code(), Code::invalid);
    EXPECT_TRUE(says(status, {place, "is a checkpoint"}));
  }
  EXPECT_EQ(names_in(first.value()), before);
  EXPECT_FALSE(fs::exists(directory / "step-00000011"));
}

TEST(Checkpoint, IsReadInPieces) {
  const Directory directory;
  ASSERT_TRUE(fine(write_checkpoint(directory.path(), 3).status()));
  auto opened = Checkpoint::open(directory.path());
  ASSERT_TRUE(fine(opened.status()));
  const TensorSpec tensor = model_tensors()[0];
  const auto values = test::values_of(tensor, 3);
  const auto expected = std::as_bytes(std::span(values));
  std::vector<std::byte> piece(24);
  const auto read = [&](uint64_t offset) {
    return opened.value().read_piece(ShardPart::model, tensor.name, offset, piece);
  };
  ASSERT_TRUE(fine(read(8)));
  EXPECT_TRUE(std::equal(piece.begin(), piece.end(), expected.begin() + 8));
  EXPECT_TRUE(says(read(48), {"'embed'", "has 64 bytes, requested are 24 from byte 48"}));
  EXPECT_TRUE(says(read(UINT64_MAX), {"'embed'", "has 64 bytes"}));
}

struct Damage {
  const char* name;
  // Damages the checkpoint in this directory.
  void (*damage)(const std::string& step);
  std::vector<std::string_view> says;
  bool found_on_opening;
};

void PrintTo(const Damage& damage, std::ostream* out) { *out << damage.name; }

void swap_files(const std::string& a, const std::string& b) {
  fs::rename(a, a + ".aside");
  fs::rename(b, a);
  fs::rename(a + ".aside", b);
}

void flip(const std::string& path, size_t from_end) {
  std::string bytes = slurp(path);
  bytes[bytes.size() - from_end] ^= 1;
  spill(path, bytes);
}

void edit(const std::string& path, const std::string& from, const std::string& to) {
  std::string text = slurp(path);
  const size_t at = text.find(from);
  ASSERT_NE(at, std::string::npos) << text;
  spill(path, text.replace(at, from.size(), to));
}

const std::string kShard2 = "/model-00002.safetensors";
const std::string kState1 = "/optimizer-00001.safetensors";
const std::string kManifest = "/manifest.json";

class DamagedCheckpoint : public testing::TestWithParam<Damage> {};

TEST_P(DamagedCheckpoint, IsRefused) {
  const Directory directory;
  ASSERT_TRUE(fine(write_checkpoint(directory.path(), 10).status()));
  ASSERT_TRUE(fine(write_checkpoint(directory.path(), 20).status()));
  const std::string step = directory / "step-00000020";
  GetParam().damage(step);
  const Status status = open_and_check(step);
  EXPECT_TRUE(says(status, {step}));
  for (const std::string_view part : GetParam().says) EXPECT_TRUE(says(status, {part}));
  EXPECT_EQ(Checkpoint::open(step).ok(), !GetParam().found_on_opening);
  if (!GetParam().found_on_opening) {
    EXPECT_TRUE(says(Checkpoint::open(step).value().verify(),
                     {step, "checksum", "model tensors '0.weight'"}));
  }
  // The one before is opened in its stead, and the caller can tell.
  auto opened = Checkpoint::open(directory.path());
  ASSERT_TRUE(fine(opened.status()));
  EXPECT_EQ(opened.value().manifest().step, 10u);
  EXPECT_NE(opened.value().warning().find("fell back to step-00000010: step-00000020 is damaged: " +
                                          step),
            std::string::npos)
      << opened.value().warning();
  EXPECT_TRUE(fine(check_checkpoint(opened.value())));
  // The run that goes on from there saves below the damaged one, and later in its place.
  EXPECT_TRUE(fine(write_checkpoint(directory.path(), 15).status()));
  EXPECT_EQ(Checkpoint::open(directory.path()).value().manifest().step, 15u);
  EXPECT_TRUE(fine(write_checkpoint(directory.path(), 20).status()));
  EXPECT_TRUE(fine(open_and_check(directory.path())));
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, DamagedCheckpoint,
    testing::Values(
        Damage{"shard_cut_short",
               [](const std::string& step) {
                 fs::resize_file(step + kShard2, fs::file_size(step + kShard2) - 1);
               },
               {"model-00002", "'head'"},
               true},
        Damage{"shard_empty",
               [](const std::string& step) { spill(step + kShard2, ""); },
               {"model-00002", "has 0 bytes", "'head'"},
               true},
        Damage{"shard_deleted",
               [](const std::string& step) { fs::remove(step + kState1); },
               {"optimizer-00001", "'embed.exp_avg'"},
               true},
        Damage{"shard_longer",
               [](const std::string& step) { spill(step + kShard2, slurp(step + kShard2) + "x"); },
               {"model-00002"},
               true},
        Damage{"shard_value_flipped",
               [](const std::string& step) { flip(step + kShard2, 1); },
               {"model-00002", "checksum is", "model tensor '0.weight'"},
               false},
        Damage{"shards_swapped",
               [](const std::string& step) {
                 swap_files(step + kShard2, step + "/model-00001.safetensors");
               },
               {"model-0000", "has ", "bytes, expected"},
               true},
        Damage{"shard_of_another_step",
               [](const std::string& step) {
                 fs::copy_file(step + "/../step-00000010" + kShard2, step + kShard2,
                               fs::copy_options::overwrite_existing);
               },
               {"model-00002", "checksum is", "'0.weight'"},
               false},
        Damage{"shard_with_a_tensor_renamed",
               [](const std::string& step) { edit(step + kShard2, "head", "hood"); },
               {"model-00002", "missing model tensors: 'head'"},
               true},
        Damage{"shard_is_a_link",
               [](const std::string& step) {
                 fs::rename(step + kShard2, step + "/../aside");
                 fs::create_symlink("../aside", step + kShard2);
               },
               {"model-00002", "found a link"},
               true},
        Damage{"shard_is_a_directory",
               [](const std::string& step) {
                 fs::remove(step + kShard2);
                 fs::create_directory(step + kShard2);
               },
               {"model-00002", "regular file"},
               true},
        Damage{"manifest_deleted",
               [](const std::string& step) { fs::remove(step + kManifest); },
               {"manifest.json", "no such file"},
               true},
        Damage{"manifest_empty",
               [](const std::string& step) { spill(step + kManifest, ""); },
               {"manifest.json", "expected a JSON object"},
               true},
        Damage{"manifest_cut_short",
               [](const std::string& step) { fs::resize_file(step + kManifest, 100); },
               {"manifest.json", "not valid JSON"},
               true},
        Damage{"manifest_changed",
               [](const std::string& step) { edit(step + kManifest, "0.001", "0.002"); },
               {"manifest.json", "checksum is"},
               true},
        Damage{"manifest_is_a_link",
               [](const std::string& step) {
                 fs::rename(step + kManifest, step + "/../aside");
                 fs::create_symlink("../aside", step + kManifest);
               },
               {"manifest.json", "found a link"},
               true}),
    [](const testing::TestParamInfo<Damage>& row) { return std::string(row.param.name); });

TEST(Checkpoint, LatestIsAHintNotATruth) {
  const Directory directory;
  ASSERT_TRUE(fine(write_checkpoint(directory.path(), 10).status()));
  ASSERT_TRUE(fine(write_checkpoint(directory.path(), 20).status()));
  const auto opened_step = [&]() -> uint64_t {
    auto opened = Checkpoint::open(directory.path());
    EXPECT_TRUE(fine(opened.status()));
    EXPECT_NE(opened.value().warning(), "");
    return opened.value().manifest().step;
  };
  for (const std::string text :
       {"", "step-00000030\n", "../step-00000010\n", "/etc/passwd", "step-10", "step-0000000010"}) {
    spill(directory / "latest", text);
    EXPECT_EQ(opened_step(), 20u) << text;
  }
  spill(directory / "latest", std::string(1 << 20, 'x'));
  EXPECT_EQ(opened_step(), 20u);
  fs::remove(directory / "latest");
  EXPECT_EQ(opened_step(), 20u);
  spill(directory / "latest", "step-00000010\n");
  EXPECT_EQ(Checkpoint::open(directory.path()).value().manifest().step, 10u);
}

TEST(Checkpoint, EachThatIsPassedOverIsNamed) {
  const Directory directory;
  for (const uint64_t step : {10, 20})
    ASSERT_TRUE(fine(write_checkpoint(directory.path(), step).status()));
  fs::copy(directory / "step-00000010", directory / "step-00000005", fs::copy_options::recursive);
  flip(directory / "step-00000020" + kShard2, 1);
  fs::remove(directory / "step-00000010" + kManifest);
  const auto opened = Checkpoint::open(directory.path());
  ASSERT_TRUE(fine(opened.status()));
  EXPECT_EQ(opened.value().path(), directory / "step-00000005");
  const std::string& warning = opened.value().warning();
  EXPECT_EQ(warning.find("fell back to step-00000005: step-00000020 is damaged: "), 0u) << warning;
  EXPECT_NE(warning.find("checksum is "), std::string::npos) << warning;
  EXPECT_NE(warning.find("; step-00000010 is damaged: "), std::string::npos) << warning;
  flip(directory / "step-00000005" + kState1, 1);
  EXPECT_TRUE(says(Checkpoint::open(directory.path()).status(),
                   {"none of its 3 checkpoints is intact", "step-00000020 is damaged"}));
}

// An older checkpoint in fewer files might still be opened, and the steps since then would be lost.
TEST(Checkpoint, TooFewDescriptorsAreNoDamage) {
  const Directory directory;
  for (const uint64_t step : {10, 20})
    ASSERT_TRUE(fine(write_checkpoint(directory.path(), step).status()));
  const int next = dup(STDIN_FILENO);
  ASSERT_GE(next, 0);
  close(next);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit one_more{static_cast<rlim_t>(next) + 1, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &one_more), 0);
  const auto opened = Checkpoint::open(directory.path());
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(opened.status().code(), Code::no_memory);
  EXPECT_TRUE(says(opened.status(), {"step-00000020", "too many open files"}));
}

TEST(Checkpoint, AResumedRunMayWriteBelowWhatAKilledWriterLeft) {
  const Directory directory;
  ASSERT_TRUE(fine(write_checkpoint(directory.path(), 10).status()));
  ASSERT_TRUE(fine(write_checkpoint(directory.path(), 30).status()));
  spill(directory / "latest", "step-00000010\n");
  ASSERT_TRUE(fine(write_checkpoint(directory.path(), 20).status()));
  EXPECT_EQ(Checkpoint::open(directory.path()).value().manifest().step, 20u);
  ASSERT_TRUE(fine(write_checkpoint(directory.path(), 40).status()));
  EXPECT_EQ(names_in(directory.path()),
            (std::set<std::string>{"latest", "step-00000030", "step-00000040"}));
}

TEST(Checkpoint, WhatIsNoneIsRefused) {
  const Directory directory;
  EXPECT_TRUE(says(Checkpoint::open(directory.path()).status(),
                   {directory.path(), "contains no checkpoint"}));
  EXPECT_EQ(Checkpoint::open(directory / "none").status().code(), Code::not_found);
  ASSERT_TRUE(fine(write_checkpoint(directory.path(), 10).status()));
  fs::remove(directory / "step-00000010/manifest.json");
  EXPECT_TRUE(says(Checkpoint::open(directory.path()).status(),
                   {directory.path(), "none of its 1 checkpoints", "manifest.json"}));
}

// A full disk, in a child since the limit is one of the process: the failure names the file, and
// what was there stays.
TEST(Checkpoint, AFullDiskLeavesTheOneBefore) {
  const Directory directory;
  ASSERT_TRUE(fine(write_checkpoint(directory.path(), 10).status()));
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1024, 1024};
    setrlimit(RLIMIT_FSIZE, &limit);
    const Status status = write_checkpoint(directory.path(), 20).status();
    _exit(status.code() == Code::io && says(status, {".step-00000020.tmp/", "file too large"}) ? 0
                                                                                               : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(names_in(directory.path()), (std::set<std::string>{"latest", "step-00000010"}));
  EXPECT_TRUE(fine(open_and_check(directory.path())));
}

}  // namespace
}  // namespace weft

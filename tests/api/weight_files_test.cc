// Ranks of other processes read weights themselves if they have the file, and are sent them
// otherwise: the values are the same.
#include <filesystem>
#include <mutex>
#include <thread>

#include "api/drivers.h"

namespace {

namespace fs = std::filesystem;

struct Lines {
  std::mutex mutex;
  std::string text;
  static void add(weft_log_level, const char* line, void* payload) {
    auto* const lines = static_cast<Lines*>(payload);
    const std::lock_guard lock(lines->mutex);
    lines->text += line;
    lines->text += '\n';
  }
  bool has(const std::string& part) {
    const std::lock_guard lock(mutex);
    return text.find(part) != std::string::npos;
  }
};

weft_status serve(const std::string& endpoint, int32_t rank, const char* weights_dir) {
  weft_mesh_config config = defaults(weft_mesh_config_init);
  config.endpoint = endpoint.c_str();
  config.rank = rank;
  weft_mesh* joined = nullptr;
  Error err;
  weft_status status = weft_mesh_join(&config, &joined, &err);
  weft_run_config run = defaults(weft_run_config_init);
  run.weights_dir = weights_dir;
  if (status == WEFT_OK) status = weft_run_serve(joined, nullptr, nullptr, &run, &err);
  weft_mesh_free(joined);
  return status;
}

PlanPtr plan_with_seed(uint64_t seed, uint32_t ranks) {
  weft_plan_config config = plan_config(ranks);
  config.seed = seed;
  return new_plan(small_model(), config);
}

// A file with the weights of this seed. Returns their digest.
std::string export_weights(uint64_t seed, const std::string& path) {
  const RunPtr run = start(plan_with_seed(seed, 1));
  Error err;
  EXPECT_EQ(weft_run_export(run.get(), path.c_str(), &err), WEFT_OK) << err.text;
  return digest(run);
}

// Rank 0, and ranks 1 and 2 with these directories.
struct ThreeRanks {
  ThreeRanks(const char* first, const char* second) {
    weft_mesh* listening = nullptr;
    Error err;
    EXPECT_EQ(weft_mesh_listen(nullptr, &listening, &err), WEFT_OK) << err.text;
    mesh.reset(listening);
    const char* const directories[] = {first, second};
    for (int32_t rank = 1; rank <= 2; ++rank)
      others[rank - 1] = std::thread([this, rank, directory = directories[rank - 1],
                                      endpoint = std::string(weft_mesh_endpoint(listening))] {
        served[rank - 1] = serve(endpoint, rank, directory);
      });
    weft_run_config config = defaults(weft_run_config_init);
    config.log = Lines::add;
    config.log_payload = &lines;
    weft_run* out = nullptr;
    EXPECT_EQ(weft_run_start(plan.get(), listening, &config, &out, &err), WEFT_OK) << err.text;
    run.reset(out);
  }
  ~ThreeRanks() {
    run.reset();
    for (int i = 0; i < 2; ++i) {
      others[i].join();
      EXPECT_EQ(served[i], WEFT_OK);
    }
  }
  void load(const CheckpointPtr& from, weft_load what = WEFT_LOAD_WEIGHTS) {
    Error err;
    EXPECT_EQ(weft_run_load(run.get(), from.get(), what, &err), WEFT_OK) << err.text;
  }
  bool reads(int rank) {
    const std::string name = "rank " + std::to_string(rank);
    const bool itself = lines.has(name + " reads its weights itself");
    EXPECT_NE(itself, lines.has(name + " is sent its weights"));
    return itself;
  }

  Lines lines;
  PlanPtr plan = plan_with_seed(1, 3);
  MeshPtr mesh;
  weft_status served[2] = {};
  std::thread others[2];
  RunPtr run;
};

struct WeightFiles : testing::Test {
  Directory directory;
  const std::string file = directory.path() + "/weights";
};

TEST_F(WeightFiles, OneRankReadsThemAndOneIsSentThem) {
  const std::string expected = export_weights(2, file);
  const CheckpointPtr opened = open_checkpoint(file);
  ThreeRanks ranks(directory.path().c_str(), nullptr);
  EXPECT_NE(digest(ranks.run), expected);
  ranks.load(opened);
  EXPECT_TRUE(ranks.reads(1));
  EXPECT_FALSE(ranks.reads(2));
  EXPECT_EQ(digest(ranks.run), expected);
}

// The file at the path is another one since rank 0 opened it, with the same size and header.
TEST_F(WeightFiles, AFileWithOtherContentsIsNotRead) {
  const std::string expected = export_weights(2, file);
  const CheckpointPtr opened = open_checkpoint(file);
  const std::string other = directory.path() + "/other";
  EXPECT_NE(export_weights(3, other), expected);
  EXPECT_EQ(fs::file_size(other), fs::file_size(file));
  fs::rename(other, file);
  ThreeRanks ranks(directory.path().c_str(), "/");
  ranks.load(opened);
  EXPECT_FALSE(ranks.reads(1));
  EXPECT_FALSE(ranks.reads(2));
  EXPECT_EQ(digest(ranks.run), expected);
}

TEST_F(WeightFiles, OnlyFilesBelowTheDirectoryAreRead) {
  const std::string expected = export_weights(2, file), below = directory.path() + "/below";
  fs::create_directory(below);
  fs::create_symlink(file, below + "/link");
  const CheckpointPtr opened = open_checkpoint(below + "/link");
  ThreeRanks ranks(below.c_str(), directory.path().c_str());
  ranks.load(opened);
  EXPECT_FALSE(ranks.reads(1)) << "the link leads out of the directory";
  EXPECT_TRUE(ranks.reads(2));
  EXPECT_EQ(digest(ranks.run), expected);
}

TEST_F(WeightFiles, RanksReadCheckpointsToo) {
  const RunPtr saved = start(plan_with_seed(2, 2), 1);
  weft_save_config config = defaults(weft_save_config_init);
  config.directory = file.c_str();
  Error err;
  ASSERT_EQ(weft_run_save(saved.get(), &config, &err), WEFT_OK) << err.text;
  ThreeRanks ranks("/", nullptr);
  ranks.load(open_checkpoint(file), WEFT_LOAD_ALL);
  EXPECT_TRUE(ranks.reads(1));
  EXPECT_EQ(digest(ranks.run), digest(saved));
}

}  // namespace

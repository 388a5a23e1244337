// Functions that return no status work without memory, and so do later steps of a run: operator new
// fails on request.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <new>

#include "api/api.h"

namespace {

bool starved = false;

}  // namespace

void* operator new(size_t size) {
  void* at = starved ? nullptr : std::malloc(size);
  if (!at) throw std::bad_alloc();
  return at;
}
void operator delete(void* at) noexcept { std::free(at); }
void operator delete(void* at, size_t) noexcept { std::free(at); }

namespace {

TEST(NoMemory, ATensorOfAFileIsDescribed) {
  char path[] = "/tmp/weft-no-memory-XXXXXX";
  const int file = mkstemp(path);
  ASSERT_GE(file, 0);
  close(file);
  const char* const names[] = {"a.name.longer.than.a.string.keeps.in.itself",
                               "another.name.longer.than.a.string.keeps.in.itself"};
  const std::string header = std::string("{\"") + names[0] +
                             R"(":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},")" + names[1] +
                             R"(":{"dtype":"BF16","shape":[2,2],"data_offsets":[8,16]}})";
  std::ofstream out(path, std::ios::binary);
  for (unsigned i = 0; i < 8; ++i) out.put(static_cast<char>(header.size() >> (8 * i)));
  out << header << std::string(16, '\0');
  out.close();
  weft_checkpoint* checkpoint = nullptr;
  Error err;
  ASSERT_EQ(weft_checkpoint_open(path, &checkpoint, &err), WEFT_OK) << err.text;
  weft_desc descs[2];
  const char *dtypes[2], *found[2];
  starved = true;
  for (uint32_t i = 0; i < 2; ++i)
    found[i] = weft_checkpoint_tensor(checkpoint, i, &descs[i], &dtypes[i]);
  starved = false;
  for (uint32_t i = 0; i < 2; ++i) EXPECT_STREQ(found[i], names[i]);
  EXPECT_STREQ(dtypes[0], "F32");
  EXPECT_STREQ(dtypes[1], "BF16");
  EXPECT_EQ(descs[0].dtype, static_cast<uint32_t>(WEFT_F32));
  EXPECT_EQ(descs[1].dtype, 0u);
  EXPECT_EQ(descs[1].n_dims, 2u);
  weft_checkpoint_free(checkpoint);
  std::filesystem::remove(path);
}

TEST(NoMemory, StepsAfterTheFirstNeedNone) {
  const RunPtr run = start(small_model(), plan_config(2));
  const TensorPtr x = noise({6, 6}), y = noise({6, 3}, 2), out = zeros({6, 8});
  weft_tensor *const inputs[] = {x.get(), y.get()}, *const outputs[] = {out.get()};
  Error err;
  const auto steps = [&] {
    return weft_run_step(run.get(), inputs, 2, WEFT_TRAIN, nullptr, 0, nullptr, &err) == WEFT_OK &&
           weft_run_step(run.get(), inputs, 2, WEFT_FORWARD, outputs, 1, nullptr, &err) == WEFT_OK;
  };
  EXPECT_TRUE(steps()) << err.text;
  starved = true;
  const bool done = steps();
  starved = false;
  EXPECT_TRUE(done) << err.text;
}

}  // namespace

// Presets for packed samples: their inputs, and the loss of a sample with several sequences.
#include "api/drivers.h"

namespace {

constexpr const char* kModel = "gpt-nano:blocks=2,width=16,heads=2,context=12,vocabulary=31";
constexpr int64_t kTime = 12;

ModelPtr model_of(bool packed) {
  weft_model* out = nullptr;
  weft_preset_info info = sized<weft_preset_info>();
  Error err;
  EXPECT_EQ((packed ? weft_model_packed : weft_model_preset)(kModel, 0, 1, &out, &info, &err),
            WEFT_OK)
      << err.text;
  EXPECT_EQ(info.seq_len, kTime);
  return ModelPtr(out);
}

// A sequence that begins at `first` of row `row`.
struct Sequence {
  int64_t row, first;
  int32_t length;
};

// The mean loss over the targets of such rows.
double loss_of(const std::vector<Sequence>& sequences, int64_t rows, bool packed) {
  TensorPtr tensors[3];
  weft_tensor* pointers[3] = {};
  int32_t* data[3] = {};
  for (size_t i = 0; i < 3; ++i) {
    tensors[i] = zeros({rows, kTime}, WEFT_I32);
    pointers[i] = tensors[i].get();
    data[i] = static_cast<int32_t*>(weft_tensor_data(pointers[i]));
  }
  std::fill_n(data[1], rows * kTime, -1);
  for (const Sequence& s : sequences)
    for (int32_t i = 0; i < s.length; ++i) {
      const int64_t at = s.row * kTime + s.first + i;
      data[0][at] = (s.length * 5 + i * 3) % 31;
      data[1][at] = i < 2 ? -1 : (s.length + i) % 31;
      data[2][at] = i;
    }
  const RunPtr run = start(model_of(packed), plan_config(1, 1, static_cast<uint32_t>(rows)));
  double loss = 0;
  Error err;
  EXPECT_EQ(weft_run_step(run.get(), pointers, packed ? 3 : 2, WEFT_EVAL, nullptr, 0, &loss, &err),
            WEFT_OK)
      << err.text;
  return loss;
}

TEST(Packing, HasAThirdInput) {
  const ModelPtr model = model_of(true);
  weft_item item = sized<weft_item>();
  std::vector<std::string> names;
  for (uint32_t i = 0; weft_model_describe(model.get(), WEFT_ITEM_INPUT, i, &item) == WEFT_OK; ++i)
    names.push_back(item.name);
  EXPECT_EQ(names, (std::vector<std::string>{"tokens", "targets", "positions"}));
}

TEST(Packing, TheLossIsThatOfTheSequencesAsSamples) {
  const double packed = loss_of({{0, 0, 4}, {0, 4, 5}, {1, 0, 3}, {1, 3, 9}}, 2, true);
  EXPECT_NEAR(packed, loss_of({{0, 0, 4}, {1, 0, 5}, {2, 0, 3}, {3, 0, 9}}, 4, false), 1e-6);
  EXPECT_NE(packed, loss_of({{0, 0, 4}, {0, 4, 5}, {1, 0, 3}, {1, 3, 9}}, 2, false));
}

TEST(Packing, NeedsTokens) {
  weft_model* out = nullptr;
  Error err;
  expect_error(weft_model_packed("mlp", 0, 1, &out, nullptr, &err), err, WEFT_EINVAL,
               {"model 'mlp' does not take tokens, so its samples are not packed"});
  EXPECT_EQ(out, nullptr);
}

}  // namespace

// Indices and targets that are out of range are refused when a step is submitted, and the run goes
// on.
#include "api/api.h"

namespace {

TEST(Indices, ATargetThatIsNoClassIsRefusedByName) {
  const ModelPtr model = new_model();
  const weft_value x = add_linear(model, "logits", add_input(model, "x", {1, 2}), 5);
  const weft_desc label = desc({1}, WEFT_I32);
  weft_value y = {};
  Error err;
  ASSERT_EQ(weft_model_add_input(model.get(), "class", &label, 0, &y, &err), WEFT_OK) << err.text;
  add_node(model, "softmax_cross_entropy", {x, y}, "loss");
  const TensorPtr data = noise({1, 2}), targets = zeros({1}, WEFT_I32);
  const RunPtr run = start(model, plan_config(1, 1, 1));
  const auto train = [&](int32_t target) {
    *static_cast<int32_t*>(weft_tensor_data(targets.get())) = target;
    return submit(run, {data.get(), targets.get()}, WEFT_TRAIN, 0, &err);
  };
  expect_error(train(-1), err, WEFT_EINVAL, {"'class'", "no target that counts"});
  for (const int32_t target : {-100, -2, 5})
    expect_error(train(target), err, WEFT_EDATA,
                 {"input 'class': node 'loss' (softmax_cross_entropy): input 1: element 0 is ",
                  std::to_string(target).c_str(),
                  ", expected 0 to 4, or -1 for a target that does not count"});
  ASSERT_EQ(train(4), WEFT_OK) << err.text;
  EXPECT_EQ(finish(run).kind, static_cast<uint32_t>(WEFT_EVENT_DONE));
}

// An input that a mode does not read may have any number.
TEST(Indices, AnIndexOutsideOfItsTableIsRefusedByName) {
  const ModelPtr model = new_model();
  const weft_desc ids = desc({1, 3}, WEFT_I32);
  weft_value tokens = {}, rows = {}, y = {};
  Error err;
  ASSERT_EQ(weft_model_add_input(model.get(), "tokens", &ids, 0, &tokens, &err), WEFT_OK);
  ASSERT_EQ(weft_model_add_input(model.get(), "class", &ids, 0, &y, &err), WEFT_OK);
  ASSERT_EQ(weft_model_add_embedding(model.get(), "table", tokens, 10, 4, 0, &rows, &err), WEFT_OK)
      << err.text;
  ASSERT_EQ(weft_model_add_output(model.get(), rows, &err), WEFT_OK) << err.text;
  add_node(model, "softmax_cross_entropy", {rows, y}, "loss");
  const TensorPtr bad = zeros({6, 3}, WEFT_I32), good = zeros({6, 3}, WEFT_I32);
  static_cast<int32_t*>(weft_tensor_data(bad.get()))[16] = 10;
  const RunPtr run = start(model, plan_config(2));
  for (const weft_step_mode mode : {WEFT_TRAIN, WEFT_EVAL, WEFT_FORWARD})
    expect_error(
        submit(run, {bad.get(), good.get()}, mode, 0, &err), err, WEFT_EDATA,
        {"input 'tokens': node 'table' (embedding): input 0: element 16 is 10, expected 0 to 9"});
  expect_error(submit(run, {good.get(), bad.get()}, WEFT_EVAL, 0, &err), err, WEFT_EDATA,
               {"input 'class': node 'loss' (softmax_cross_entropy): input 1: element 16 is 10, "});
  EXPECT_EQ(step(run, {good.get(), bad.get()}, WEFT_FORWARD).kind,
            static_cast<uint32_t>(WEFT_EVENT_DONE));
}

TEST(Indices, APositionThatNoRowCanHaveAndAnEmptyMaskAreRefused) {
  for (const uint32_t flags : {uint32_t{WEFT_NODE_CAUSAL}, uint32_t{0}}) {
    const ModelPtr model = new_model();
    const weft_value qkv = add_input(model, "qkv", {1, 2, 12});
    const weft_desc rows = desc({1, 2}, WEFT_I32);
    weft_value i32 = {}, out = {};
    Error err;
    ASSERT_EQ(weft_model_add_input(model.get(), "rows", &rows, 0, &i32, &err), WEFT_OK);
    weft_node_config attention = defaults(weft_node_config_init);
    const weft_value inputs[] = {qkv, i32};
    attention.op = "attention";
    attention.name = "a";
    attention.inputs = inputs;
    attention.n_inputs = 2;
    attention.heads = 2;
    attention.flags = flags;
    ASSERT_EQ(weft_model_add_node(model.get(), &attention, &out, &err), WEFT_OK) << err.text;
    ASSERT_EQ(weft_model_add_output(model.get(), out, &err), WEFT_OK) << err.text;
    const TensorPtr data = noise({6, 2, 12}), marks = zeros({6, 2}, WEFT_I32);
    auto* mark = static_cast<int32_t*>(weft_tensor_data(marks.get()));
    for (int i = 0; i < 12; ++i) mark[i] = flags ? 0 : 1;
    mark[8] = flags ? 1 : 0;
    mark[9] = 0;
    const RunPtr run = start(model, plan_config(1));
    expect_error(submit(run, {data.get(), marks.get()}, WEFT_FORWARD, 0, &err), err, WEFT_EDATA,
                 {"input 'rows': node 'a' (attention): ",
                  flags ? "position 1 at element 8" : "all 2 elements of sample 4 are 0"});
    mark[8] = flags ? 0 : 1;
    EXPECT_EQ(step(run, {data.get(), marks.get()}, WEFT_FORWARD).kind,
              static_cast<uint32_t>(WEFT_EVENT_DONE));
  }
}

}  // namespace

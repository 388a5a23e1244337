// What a user op with parameters and a stash must not do, and the errors for it.
#include <cstring>

#include "api/low_rank_model.h"

namespace {

struct Refusal {
  const char* what;
  void (*change)(weft_op& op);
  std::vector<const char*> parts;
};

TEST(UserOpRefused, AWrongStashIsRefusedWithTheNode) {
  const Refusal rows[] = {
      {"samples",
       [](weft_op& op) {
         op.shape = [](weft_op_call* call) -> int32_t {
           LowRank::shape(call);
           call->stash.desc.dims[1] = call->inputs[0].desc.dims[0];
           return 0;
         };
       },
       {"node 'n' (low_rank)", "stash mixes samples", "f32[1,1]", "f32[2,2]"}},
      {"dtype",
       [](weft_op& op) {
         op.shape = [](weft_op_call* call) -> int32_t {
           LowRank::shape(call);
           call->stash.desc.dtype = WEFT_F64;
           return 0;
         };
       },
       {"node 'n' (low_rank)", "shape's stash is f64[1,2]", "f32 or i32"}},
      {"only for two",
       [](weft_op& op) {
         op.shape = [](weft_op_call* call) -> int32_t {
           LowRank::shape(call);
           if (call->inputs[0].desc.dims[0] == 1) call->stash.desc = {};
           return 0;
         };
       },
       {"node 'n' (low_rank)", "the stash depends on the number of samples"}},
  };
  for (const Refusal& row : rows) {
    SCOPED_TRACE(row.what);
    const ModelPtr model = new_model();
    weft_op op = low_rank_op();
    row.change(op);
    add_low_rank_op(model, op);
    Error err;
    weft_value out = {};
    const weft_value x = add_input(model, "x", {1, 8});
    const weft_param a = add_param(model, "a", {8, 2}), b = add_param(model, "b", {2, 8});
    EXPECT_EQ(add_node(model, "low_rank", "n", x, {a, b}, &out, err), WEFT_EINVAL);
    for (const char* part : row.parts)
      EXPECT_NE(std::strstr(err.text, part), nullptr) << part << " is not in: " << err.text;
  }
}

TEST(UserOpRefused, WrongParametersAreRefusedWithTheReasonAndTheShapes) {
  const ModelPtr model = new_model();
  add_low_rank_op(model);
  Error err;
  weft_value out = {};
  const weft_value x = add_input(model, "x", {1, 8});
  const weft_param a = add_param(model, "a", {8, 2}), b = add_param(model, "b", {3, 8});
  expect_error(add_node(model, "low_rank", "n", x, {a, b}, &out, err), err, WEFT_EUSER,
               {"node 'n' (low_rank)", "shape returned 3: expected x [n, width], A [width, rank]",
                "inputs: f32[1,8]", "parameters: f32[8,2], f32[3,8]"});
  expect_error(add_node(model, "low_rank", "n", x, {}, &out, err), err, WEFT_EUSER,
               {"one input and two parameters", "parameters: none"});
}

TEST(UserOpRefused, TheReasonOfAFailureIsInTheError) {
  weft_op op = low_rank_op();
  op.backward_params = [](const weft_op_call* call) -> int32_t {
    std::memset(call->err->text, 'z', sizeof call->err->text);
    std::memcpy(call->err->text, "no\tluck", 7);
    return -4;
  };
  const RunPtr run = start(low_rank_model(op), four());
  const Outcome outcome = step(run, {batch_x().get(), batch_y().get()});
  EXPECT_EQ(outcome.status, WEFT_EUSER);
  EXPECT_NE(outcome.text.find("node 'third' (low_rank)"), std::string::npos) << outcome.text;
  EXPECT_NE(outcome.text.find("backward_params returned -4: no\\x09luckzzz"), std::string::npos)
      << outcome.text;
}

TEST(UserOpRefused, WithoutTheirGradientTheyCannotBeTrained) {
  weft_op op = low_rank_op();
  op.backward_params = nullptr;
  const ModelPtr model = low_rank_model(op);
  const weft_plan_config config = four();
  weft_plan* plan = nullptr;
  Error err;
  expect_error(weft_plan_new(model.get(), &config, &plan, &err), err, WEFT_EINVAL,
               {"(low_rank)", "has no gradient for its parameters"});

  const ModelPtr forward = new_model();
  add_low_rank_op(forward, op);
  const weft_value x = add_input(forward, "x", {1, 8});
  const weft_param a = add_param(forward, "a", {8, 2}), b = add_param(forward, "b", {2, 8});
  EXPECT_EQ(weft_model_add_output(forward.get(), add_own(forward, "n", x, a, b), &err), WEFT_OK);
  const RunPtr run = start(forward, plan_config());
  EXPECT_EQ(step(run, {noise({6, 8}).get()}, WEFT_FORWARD).outputs.size(), 3u);
}

}  // namespace

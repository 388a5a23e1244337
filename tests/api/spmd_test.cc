// SPMD programs: pieces of tensors, dropout, and the same bits wherever coordinates run.
#include "api/spmd.h"
#include "api/drivers.h"

namespace {

// Parameters are drawn, read, written and hashed as a whole: the sizes of axes decide rounding
// only.
TEST(Axes, APieceHasTheNumbersOfItsWhole) {
  std::vector<float> weight;
  std::string first;
  double loss = 0;
  for (const uint32_t wide : {1u, 2u, 4u, 8u}) {
    weft_plan_config config = plan_config(1, 2, 2);
    config.seed = 3;
    const RunPtr run = start(cut_layer(1, wide), config);
    const std::vector<float> found = read(run, "weight", WEFT_VALUE, {8, 3});
    const TensorPtr x = noise({4, 8}, 1), y = noise({4, 3}, 2);
    const std::string before = digest(run);
    const double now = step(run, {x.get(), y.get()}, WEFT_NO_UPDATE).loss;
    if (wide == 1) {
      weight = found;
      first = before;
      loss = now;
    }
    EXPECT_EQ(found, weight) << wide;
    EXPECT_EQ(before, first) << wide;
    EXPECT_NEAR(now, loss, 1e-5 * loss) << wide;
    const TensorPtr other = noise({8, 3}, 9);
    Error err;
    ASSERT_EQ(weft_run_write(run.get(), "weight", WEFT_VALUE, other.get(), &err), WEFT_OK);
    EXPECT_EQ(read(run, "weight", WEFT_VALUE, {8, 3}), values(other));
  }
}

// What differs by coordinate has other masks, and what is the same at all has the same mask.
TEST(Axes, DropoutFollowsTheValue) {
  for (const bool cut : {true, false}) {
    const ModelPtr model = new_model();
    Error err;
    ASSERT_EQ(add_axis(model, "wide", 4, err), WEFT_OK) << err.text;
    const weft_value x = add_input(model, "x", {1, 64}), y = add_input(model, "y", {1, 64});
    if (cut) {
      ASSERT_EQ(weft_model_cut_input(model.get(), x, 1, "wide", 0, &err), WEFT_OK) << err.text;
    }
    weft_node_config dropout = defaults(weft_node_config_init);
    dropout.op = "dropout";
    dropout.inputs = &x;
    dropout.n_inputs = 1;
    dropout.factor = 0.5;
    weft_value out = {};
    ASSERT_EQ(weft_model_add_node(model.get(), &dropout, &out, &err), WEFT_OK) << err.text;
    const Collective reduce =
        cut ? Collective{"all_gather", "wide", {}, 1} : Collective{"all_reduce", "wide"};
    ASSERT_EQ(add(model, reduce, out, &out, err), WEFT_OK) << err.text;
    weft_param scale = {};
    const weft_desc d = desc({64, 64});
    ASSERT_EQ(weft_model_add_param(model.get(), "w", &d, WEFT_INIT_ZEROS, 0, &scale, &err),
              WEFT_OK);
    weft_node_config linear = defaults(weft_node_config_init);
    linear.op = "linear";
    linear.inputs = &out;
    linear.params = &scale;
    linear.n_inputs = linear.n_params = 1;
    ASSERT_EQ(weft_model_add_node(model.get(), &linear, &out, &err), WEFT_OK) << err.text;
    add_node(model, "mse", {out, y});
    // With an output of 0, dL/dw [i][o] is -2/64 x[i] y[o]: it shows which x were dropped.
    const RunPtr run = start(model, plan_config(1, 1, 1));
    const TensorPtr ones = zeros({1, 64});
    for (int i = 0; i < 64; ++i) floats(ones)[i] = 1;
    step(run, {ones.get(), ones.get()}, WEFT_NO_UPDATE);
    const std::vector<float> grad = read(run, "w", WEFT_GRAD, {64, 64});
    int kept = 0, repeated = 0;
    for (size_t i = 0; i < 64; ++i) {
      const float times = grad[i * 64] * -32;
      if (cut)
        EXPECT_TRUE(times == 0 || times == 2) << times;
      else
        EXPECT_TRUE(times == 0 || times == 8) << times;
      kept += times != 0;
      repeated += i >= 16 && grad[i * 64] == grad[(i - 16) * 64];
    }
    EXPECT_GT(kept, 10);
    EXPECT_LT(kept, 54);
    EXPECT_LT(repeated, 44);
  }
}

// Where the pieces are heads, or parts of the second dimension, masks are those of the whole.
TEST(Axes, DropoutOfPiecesIsThatOfTheWhole) {
  for (const char* op : {"dropout", "attention"}) {
    const bool attention = op[0] == 'a';
    double whole = 0;
    for (const int32_t wide : {1, 2, 4}) {
      const ModelPtr model = new_model();
      Error err;
      ASSERT_EQ(add_axis(model, "wide", static_cast<uint32_t>(wide), err), WEFT_OK) << err.text;
      const weft_value x = add_input(model, "x", {1, 4, 8}), y = add_input(model, "y", {1, 4, 8});
      const uint32_t dim = attention ? 2 : 1;
      ASSERT_EQ(weft_model_cut_input(model.get(), x, dim, "wide", 0, &err), WEFT_OK) << err.text;
      const weft_value operands[] = {x, x, x};
      weft_node_config config = defaults(weft_node_config_init);
      config.op = op;
      config.inputs = operands;
      config.n_inputs = attention ? 3 : 1;
      config.heads = attention ? 4 / wide : 0;
      config.factor = 0.4;
      weft_value out = {};
      ASSERT_EQ(weft_model_add_node(model.get(), &config, &out, &err), WEFT_OK) << err.text;
      ASSERT_EQ(add(model, {"all_gather", "wide", {}, static_cast<int32_t>(dim)}, out, &out, err),
                WEFT_OK)
          << err.text;
      add_node(model, "mse", {out, y});
      const TensorPtr in = noise({4, 4, 8}, 1), target = noise({4, 4, 8}, 2);
      const RunPtr run = start(model, plan_config(1, 2, 2));
      const double loss = step(run, {in.get(), target.get()}, WEFT_NO_UPDATE).loss;
      if (wide == 1) whole = loss;
      EXPECT_NEAR(loss, whole, 1e-6) << op << ", " << wide;
    }
  }
}

// Two layers in pieces, with dropout between them, in two stages.
ModelPtr two_layers() {
  ModelPtr model = new_model();
  Error err;
  EXPECT_EQ(add_axis(model, "deep", 2, err), WEFT_OK) << err.text;
  EXPECT_EQ(add_axis(model, "wide", 2, err), WEFT_OK) << err.text;
  weft_value x = add_input(model, "x", {1, 12});
  const weft_value y = add_input(model, "y", {1, 12});
  for (const char* name : {"first", "second"}) {
    weft_node_config config = defaults(weft_node_config_init);
    const auto add_one = [&](const char* op, weft_value in) {
      const std::string full = std::string(name) + "." + op;
      config.op = op;
      config.name = full.c_str();
      config.inputs = &in;
      config.n_inputs = 1;
      weft_value made = {};
      EXPECT_EQ(weft_model_add_node(model.get(), &config, &made, &err), WEFT_OK) << err.text;
      config = defaults(weft_node_config_init);
      return made;
    };
    const weft_desc d = desc({2, 12, 12});
    weft_param weight = {};
    EXPECT_EQ(weft_model_add_param(model.get(), name, &d, WEFT_INIT_NORMAL, 0.3, &weight, &err),
              WEFT_OK);
    EXPECT_EQ(weft_model_cut_param(model.get(), weight, 2, "wide", 0, &err), WEFT_OK) << err.text;
    EXPECT_EQ(weft_model_cut_param(model.get(), weight, 0, "deep", WEFT_CUT_DROP, &err), WEFT_OK)
        << err.text;
    config.params = &weight;
    config.n_params = 1;
    x = add_one("gelu", add_one("linear", x));
    config.factor = 0.3;
    x = add_one("dropout", x);
    config.axis_name = "wide";
    config.axis = 1;
    x = add_one("all_gather", x);
    config.axis_name = "deep";
    x = add_one("all_reduce", x);
  }
  EXPECT_EQ(weft_model_add_output(model.get(), x, &err), WEFT_OK) << err.text;
  add_node(model, "mse", {x, y}, "loss");
  return model;
}

// That train with one result.
std::vector<std::string> schedules() {
  std::vector<std::string> out;
  weft_schedule_info info = sized<weft_schedule_info>();
  for (uint32_t i = 0; weft_schedule_describe(i, &info) == WEFT_OK; ++i)
    if (!info.asynchronous && !info.forward_only) out.push_back(info.name);
  EXPECT_GT(out.size(), 10u);
  return out;
}

TEST(Axes, AnyMeshAndScheduleGiveTheSameBits) {
  weft_optimizer optimizer = unclipped();
  optimizer.rate = 0.01;
  optimizer.weight_decay = 0.1;
  optimizer.clip = 0.5;
  const TensorPtr x = noise({8, 12}, 1), y = noise({8, 12}, 2);
  std::vector<double> losses;
  std::string last;
  const std::vector<std::vector<weft_axis>> meshes = {
      {},
      {{"deep", 2, 0}},
      {{"wide", 2, 0}, {"deep", 2, 0}},
      {{"stage", 2, 0}, {"deep", 2, 0}},
      {{"data", 2, 0}, {"deep", 2, 0}},
      {{"data", 2, 0}, {"stage", 2, 0}, {"deep", 2, 0}, {"wide", 2, 0}}};
  int turn = 0;
  for (const auto& axes : meshes)
    for (const std::string& schedule : schedules()) {
      weft_plan_config config = plan_config(1, 4, 2);
      const char* recomputes[] = {"none", "stage", "every:2"};
      const char* parts[] = {"optimizer", "parameters", "none"};
      config.axes = axes.data();
      config.n_axes = static_cast<uint32_t>(axes.size());
      config.gradient_groups = 2;
      config.optimizer = &optimizer;
      config.schedule = schedule.c_str();
      config.recompute = recomputes[turn % 3];
      if (axes.size() > 1 && axes[0].name == std::string("data"))
        config.shard = parts[turn / 3 % 3];
      ++turn;
      config.seed = 4;
      const RunPtr run = start(two_layers(), config, turn % 2 ? 2 : 0);
      std::vector<double> found;
      for (int s = 0; s < 3; ++s) found.push_back(loss_of_step(run, x, y));
      if (losses.empty()) {
        losses = found;
        last = digest(run);
      }
      EXPECT_EQ(found, losses) << axes.size() << " axes, " << schedule;
      EXPECT_EQ(digest(run), last) << axes.size() << " axes, " << schedule;
    }
}

// A layer per position, whose weight all coordinates have: x and the targets of the loss are cut
// over the positions, in as many pieces as the axes have coordinates.
ModelPtr per_position(const char* loss, uint32_t rows, uint32_t columns, uint32_t flags) {
  ModelPtr model = new_model();
  Error err;
  EXPECT_EQ(add_axis(model, "rows", rows, err), WEFT_OK) << err.text;
  EXPECT_EQ(add_axis(model, "columns", columns, err), WEFT_OK) << err.text;
  const bool classes = loss != std::string("mse");
  const weft_value x = add_input(model, "x", {1, 2, 6, 4});
  const weft_desc d = classes ? desc({1, 2, 6}, WEFT_I32) : desc({1, 2, 6, 5});
  weft_value y = {};
  EXPECT_EQ(weft_model_add_input(model.get(), "y", &d, 0, &y, &err), WEFT_OK) << err.text;
  for (const weft_value input : {x, y}) {
    EXPECT_EQ(weft_model_cut_input(model.get(), input, 1, "rows", flags, &err), WEFT_OK)
        << err.text;
    EXPECT_EQ(weft_model_cut_input(model.get(), input, 2, "columns", 0, &err), WEFT_OK) << err.text;
  }
  add_node(model, loss, {add_linear(model, "layer", x, 5), y}, "loss");
  return model;
}

// The loss and the gradients are those of all pieces, as the uncut model has them.
TEST(Axes, TargetsThatAreCutGiveTheLossOfTheWhole) {
  for (const char* loss : {"mse", "softmax_cross_entropy"}) {
    const TensorPtr x = noise({4, 2, 6, 4}, 1);
    TensorPtr y = noise({4, 2, 6, 5}, 2);
    if (loss[0] == 's') {
      y = zeros({4, 2, 6}, WEFT_I32);
      auto* classes = static_cast<int32_t*>(weft_tensor_data(y.get()));
      for (int i = 0; i < 48; ++i) classes[i] = i % 6 - 1;  // those of -1 are not counted
    }
    double whole = 0;
    std::vector<float> gradient;
    const struct {
      uint32_t rows, columns, flags, ranks;
    } cuts[] = {{1, 1, 0, 1}, {2, 1, WEFT_CUT_DROP, 1}, {1, 3, 0, 1},
                {2, 3, 0, 1}, {2, 3, WEFT_CUT_DROP, 1}, {2, 3, WEFT_CUT_DROP, 2}};
    std::string of_cut;
    for (const auto& cut : cuts) {
      weft_plan_config config = plan_config(1, 2, 2);
      const weft_axis axis = {"rows", 2, 0};
      config.axes = &axis;
      config.n_axes = cut.ranks - 1;
      const RunPtr run = start(per_position(loss, cut.rows, cut.columns, cut.flags), config);
      const double found = step(run, {x.get(), y.get()}, WEFT_NO_UPDATE).loss;
      const std::vector<float> grad = read(run, "layer.weight", WEFT_GRAD, {4, 5});
      if (gradient.empty()) {
        whole = found;
        gradient = grad;
        EXPECT_GT(whole, 0.1);
      }
      EXPECT_NEAR(found, whole, 1e-6) << loss << " " << cut.rows << " " << cut.columns;
      for (size_t i = 0; i < grad.size(); ++i)
        EXPECT_NEAR(grad[i], gradient[i], 1e-6) << loss << " " << cut.rows << " " << cut.columns;
      step(run, {x.get(), y.get()});
      if (cut.ranks == 2) {
        EXPECT_EQ(digest(run), of_cut) << loss;
      }
      of_cut = digest(run);
    }
  }
}

// A collective that only passes a value on has no node of its own at a coordinate.
TEST(Axes, InputsAndTheirGradientsAreWhole) {
  const ModelPtr model = new_model();
  Error err;
  ASSERT_EQ(add_axis(model, "wide", 2, err), WEFT_OK) << err.text;
  const weft_value x = add_input(model, "x", {1, 6}, WEFT_INPUT_WANT_GRAD),
                   y = add_input(model, "y", {1, 6});
  for (const weft_value input : {x, y}) {
    ASSERT_EQ(weft_model_cut_input(model.get(), input, 1, "wide", 0, &err), WEFT_OK) << err.text;
  }
  add_node(model, "mse", {x, y});
  weft_item item = sized<weft_item>();
  ASSERT_EQ(weft_model_describe(model.get(), WEFT_ITEM_INPUT, 0, &item), WEFT_OK);
  EXPECT_EQ(item.desc.dims[1], 6);
  const RunPtr run = start(model, plan_config(1, 1, 2));
  const TensorPtr in = noise({2, 6});
  step(run, {in.get(), in.get()}, WEFT_NO_UPDATE);
  EXPECT_EQ(read(run, "x", WEFT_GRAD, {2, 6}), std::vector<float>(12, 0));
  const TensorPtr flat = zeros({12});
  expect_error(weft_run_read(run.get(), "x", WEFT_GRAD, flat.get(), &err), err, WEFT_EINVAL,
               {"gradient of input 'x' is f32[12,6], the tensor f32[12]"});
}

TEST(Axes, OutputsMayBeTheSameValue) {
  const ModelPtr model = new_model();
  Error err;
  ASSERT_EQ(add_axis(model, "wide", 2, err), WEFT_OK) << err.text;
  const weft_value x = add_input(model, "x", {1, 3});
  weft_value sent = {}, kept = {}, dropped = {};
  ASSERT_EQ(add(model, {"broadcast", "wide", {1}, 0, {}, "sent"}, x, &sent, err), WEFT_OK);
  ASSERT_EQ(add(model, {"mask", "wide", {0}, 0, {}, "kept"}, sent, &kept, err), WEFT_OK);
  ASSERT_EQ(add(model, {"mask", "wide", {1}, 0, {}, "dropped"}, sent, &dropped, err), WEFT_OK);
  for (const weft_value output : {sent, kept, dropped}) {
    ASSERT_EQ(weft_model_add_output(model.get(), output, &err), WEFT_OK) << err.text;
  }
  ASSERT_EQ(weft_model_cut_output(model.get(), dropped, 1, "wide", 0, &err), WEFT_OK) << err.text;
  weft_item item = sized<weft_item>();
  ASSERT_EQ(weft_model_describe(model.get(), WEFT_ITEM_OUTPUT, 2, &item), WEFT_OK);
  EXPECT_EQ(item.desc.dims[1], 6) << "an output is described as it is delivered";
  ASSERT_EQ(weft_model_describe(model.get(), WEFT_ITEM_NODE, 2, &item), WEFT_OK);
  EXPECT_EQ(item.desc.dims[1], 3);
  for (const std::vector<weft_axis>& axes : {std::vector<weft_axis>{}, {{"wide", 2, 0}}}) {
    weft_plan_config config = plan_config(1, 1, 2);
    config.axes = axes.data();
    config.n_axes = static_cast<uint32_t>(axes.size());
    config.schedule = "forward";
    const RunPtr run = start(model, config);
    const TensorPtr in = noise({2, 3});
    const Outcome found = step(run, {in.get()}, WEFT_FORWARD);
    ASSERT_EQ(found.outputs.size(), 1u);
    const std::vector<float> v = values(in);
    EXPECT_EQ(found.outputs[0][0], v);
    EXPECT_EQ(found.outputs[0][1], v);
    EXPECT_EQ(found.outputs[0][2], (std::vector<float>{0, 0, 0, v[0], v[1], v[2],  //
                                                       0, 0, 0, v[3], v[4], v[5]}));
  }
}

weft_plan_config spread(const std::vector<weft_axis>& axes) {
  weft_plan_config config = plan_config(1, 4, 2);
  config.axes = axes.data();
  config.n_axes = static_cast<uint32_t>(axes.size());
  config.seed = 4;
  return config;
}

// Files have whole parameters and whole optimizer state.
TEST(Axes, ACheckpointGoesOnUnderAnotherMesh) {
  const Directory directory;
  const TensorPtr x = noise({8, 12}, 1), y = noise({8, 12}, 2);
  const std::vector<weft_axis> all = {{"deep", 2, 0}, {"wide", 2, 0}}, some = {{"deep", 2, 0}};
  Error err;
  std::string expected;
  {
    const RunPtr run = start(two_layers(), spread(all), 1);
    loss_of_step(run, x, y);
    weft_save_config config = defaults(weft_save_config_init);
    config.directory = directory.path().c_str();
    ASSERT_EQ(weft_run_save(run.get(), &config, &err), WEFT_OK) << err.text;
    loss_of_step(run, x, y);
    expected = digest(run);
  }
  const CheckpointPtr checkpoint = open_checkpoint(directory.path());
  weft_desc first = {};
  EXPECT_STREQ(weft_checkpoint_tensor(checkpoint.get(), 0, &first, nullptr), "first");
  EXPECT_EQ(elements(first), 2 * 12 * 12);
  const RunPtr run = start(two_layers(), spread(some));
  ASSERT_EQ(weft_run_load(run.get(), checkpoint.get(), WEFT_LOAD_ALL, &err), WEFT_OK) << err.text;
  EXPECT_EQ(digest(run), digest(checkpoint));
  loss_of_step(run, x, y);
  EXPECT_EQ(digest(run), expected);
}

TEST(Axes, APlanIsReadBackAndPredicted) {
  const Directory directory;
  const std::string path = directory.path() + "/plan";
  const std::vector<weft_axis> axes = {{"stage", 2, 0}, {"deep", 2, 0}};
  const ModelPtr model = two_layers();
  Error err;
  weft_profile_config measured = defaults(weft_profile_config_init);
  measured.micro_batch_size = 2;
  measured.repeats = 2;
  weft_profile* profile = nullptr;
  ASSERT_EQ(weft_profile_new(model.get(), &measured, &profile, &err), WEFT_OK) << err.text;
  weft_node_times linear = sized<weft_node_times>();
  int64_t step_ns = 0;
  for (uint32_t i = 0; i < weft_profile_nodes(profile); ++i) {
    ASSERT_EQ(weft_profile_node(profile, i, &linear), WEFT_OK);
    if (linear.name == std::string("first.linear")) step_ns = linear.forward_ns;
  }
  EXPECT_GT(step_ns, 0) << "of all coordinates";
  weft_plan_config config = spread(axes);
  config.profile = profile;
  const PlanPtr plan = new_plan(model, config);
  weft_prediction* prediction = nullptr;
  ASSERT_EQ(weft_plan_simulate(plan.get(), 0, &prediction, &err), WEFT_OK) << err.text;
  weft_prediction_info info = sized<weft_prediction_info>();
  ASSERT_EQ(weft_prediction_describe(prediction, &info), WEFT_OK);
  EXPECT_EQ(info.ranks, 4u);
  EXPECT_GT(info.step_ns, step_ns);
  weft_prediction_free(prediction);
  weft_profile_free(profile);
  ASSERT_EQ(weft_plan_save(plan.get(), path.c_str(), &err), WEFT_OK) << err.text;
  weft_plan* back = nullptr;
  ASSERT_EQ(weft_plan_load(model.get(), path.c_str(), &back, &err), WEFT_OK) << err.text;
  EXPECT_EQ(weft_plan_stages(back), 2u);
  EXPECT_EQ(weft_plan_bytes(back, 3), weft_plan_bytes(plan.get(), 3));
  weft_plan_free(back);
  const ModelPtr other = cut_layer(2, 2);
  EXPECT_LT(weft_plan_load(other.get(), path.c_str(), &back, &err), 0);
}

// Nothing ties the prediction of sum_loss to its targets.
TEST(Axes, SumLossTakesPredictionsOfAnyShape) {
  const ModelPtr model = new_model();
  Error err;
  EXPECT_EQ(add_axis(model, "deep", 2, err), WEFT_OK) << err.text;
  const weft_value x = add_input(model, "x", {1, 8});
  add_node(model, "sum_loss", {add_linear(model, "layer", x, 3), x}, "loss");
  const std::vector<weft_axis> axes = {{"deep", 2, 0}};
  EXPECT_NE(new_plan(model, spread(axes)), nullptr);
}

}  // namespace

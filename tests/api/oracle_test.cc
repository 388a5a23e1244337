// Whole training steps against an outside oracle: gradients of all parameters, losses, norms and
// weights as PyTorch computes them (tests/data/make_step_values.py), however the model is cut,
// scheduled and recomputed. The weights have the same bits for all schedules, cuts and threads.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "api/api.h"
#include "test_data.h"

namespace {

using nlohmann::json;

constexpr double kTolerance = 3e-6;  // of max(1, |value|): some roundings of a float

const json& cases() {
  static const json all = json::parse(std::ifstream(WEFT_TEST_DATA "/step_values.json"));
  return all;
}

weft_desc desc_of(const json& shape, weft_dtype dtype) {
  weft_desc out = {};
  out.dtype = dtype;
  for (const json& d : shape) out.dims[out.n_dims++] = d.get<int64_t>();
  return out;
}

TensorPtr tensor_of(const weft_desc& d, const json* data = nullptr) {
  weft_tensor* out = nullptr;
  Error err;
  EXPECT_EQ(weft_tensor_new(&d, &out, &err), WEFT_OK) << err.text;
  for (size_t i = 0; data && i < data->size(); ++i) {
    if (d.dtype == WEFT_I32)
      static_cast<int32_t*>(weft_tensor_data(out))[i] = (*data)[i].get<int32_t>();
    else
      static_cast<float*>(weft_tensor_data(out))[i] = static_cast<float>((*data)[i].get<double>());
  }
  return TensorPtr(out);
}

weft_dtype dtype_of(const json& input) { return input["dtype"] == "i32" ? WEFT_I32 : WEFT_F32; }

void add(const ModelPtr& model, const json& node, std::map<std::string, weft_value>& values,
         std::map<std::string, weft_param>& params) {
  const std::string name = node["name"], op = node["op"];
  const json& attrs = node["attrs"];
  std::vector<weft_value> in;
  std::vector<weft_param> weights;
  for (const json& i : node["in"]) in.push_back(values.at(i));
  for (const json& p : node["params"]) weights.push_back(params.at(p));
  weft_node_config config = defaults(weft_node_config_init);
  config.name = name.c_str();
  config.op = op.c_str();
  config.inputs = in.data();
  config.n_inputs = static_cast<uint32_t>(in.size());
  config.params = weights.data();
  config.n_params = static_cast<uint32_t>(weights.size());
  config.heads = attrs.value("heads", 0);
  config.factor = attrs.value("factor", 0.0);
  config.axis = attrs.value("axis", 0);
  config.begin = attrs.value("begin", int64_t{0});
  config.end = attrs.value("end", int64_t{0});
  for (const json& d : attrs.value("dims", json::array())) config.dims[config.n_dims++] = d;
  if (attrs.value("causal", false)) config.flags |= WEFT_NODE_CAUSAL;
  if (attrs.value("tanh", false)) config.flags |= WEFT_NODE_TANH;
  if (attrs.value("out_in", false)) config.flags |= WEFT_NODE_OUT_IN;
  if (attrs.value("positions", false)) config.flags |= WEFT_NODE_POSITIONS;
  Error err;
  ASSERT_EQ(weft_model_add_node(model.get(), &config, &values[name], &err), WEFT_OK) << err.text;
}

ModelPtr model_of(const json& m) {
  ModelPtr model = new_model();
  std::map<std::string, weft_value> values;
  std::map<std::string, weft_param> params;
  Error err;
  for (const json& input : m["inputs"]) {
    const std::string name = input["name"];
    const weft_desc d = desc_of(input["shape"], dtype_of(input));
    EXPECT_EQ(weft_model_add_input(model.get(), name.c_str(), &d, 0, &values[name], &err), WEFT_OK)
        << err.text;
  }
  for (const auto& [name, shape] : m["params"].items()) {
    const weft_desc d = desc_of(shape, WEFT_F32);
    EXPECT_EQ(weft_model_add_param(model.get(), name.c_str(), &d, WEFT_INIT_ZEROS, 0, &params[name],
                                   &err),
              WEFT_OK)
        << err.text;
  }
  for (const json& node : m["nodes"]) add(model, node, values, params);
  return model;
}

// One way to run a case.
class Trainer {
 public:
  Trainer(const json& c, const json& how, uint32_t threads)
      : case_(c), asynchronous_(c["plan"].contains("segment")) {
    const json &o = c["optimizer"], &p = c["plan"];
    weft_optimizer optimizer = unclipped();
    optimizer.rule = o["rule"] == "sgd" ? WEFT_SGD : WEFT_ADAMW;
    optimizer.rate = o["rate"];
    optimizer.momentum = o.value("momentum", 0.0);
    optimizer.eps = o.value("eps", optimizer.eps);
    optimizer.weight_decay = o.value("weight_decay", 0.0);
    optimizer.clip = o.value("clip", 0.0);
    const std::string schedule = how["schedule"], recompute = how.value("recompute", "none");
    const std::vector<std::string> names = how["cuts"];
    std::vector<const char*> cuts;
    for (const std::string& name : names) cuts.push_back(name.c_str());
    const json mesh = how.value("axes", json::object());
    std::vector<weft_axis> axes;
    for (auto at = mesh.begin(); at != mesh.end(); ++at)
      axes.push_back({at.key().c_str(), at.value(), 0});
    weft_plan_config config = defaults(weft_plan_config_init);
    config.axes = axes.data();
    config.n_axes = static_cast<uint32_t>(axes.size());
    config.gradient_groups = how.value("gradient_groups", 0u);
    config.ranks = std::max(how["ranks"].get<uint32_t>(), 1u);
    config.schedule = schedule.c_str();
    config.recompute = recompute.c_str();
    config.chunks = how.value("chunks", 0u);
    config.vertical_sync = how.value("vertical_sync", 0u);
    config.cuts = cuts.data();
    config.n_cuts = static_cast<uint32_t>(cuts.size());
    config.micro_batches = p["micro_batches"];
    config.micro_batch_size = p["micro_batch_size"];
    config.short_size = p.value("short_size", 0u);
    config.segment = p.value("segment", 0u);
    config.optimizer = &optimizer;
    const json rows = c.value("groups", json::array());
    std::vector<weft_parameter_group> groups;
    for (const json& row : rows) {
      weft_parameter_group& group = groups.emplace_back(defaults(weft_parameter_group_init));
      group.pattern = row["pattern"].get_ref<const std::string&>().c_str();
      group.frozen = row.value("frozen", false);
      group.rate_factor = row.value("rate_factor", 1.0);
      group.weight_decay_factor = row.value("weight_decay_factor", 1.0);
    }
    config.groups = groups.data();
    config.n_groups = static_cast<uint32_t>(groups.size());
    run_ = start(model_of(c["model"]), config, threads);
    Error err;
    for (const auto& [name, shape] : c["model"]["params"].items()) {
      const TensorPtr first = tensor_of(desc_of(shape, WEFT_F32), &c["model"]["first"][name]);
      EXPECT_EQ(weft_run_write(run_.get(), name.c_str(), WEFT_VALUE, first.get(), &err), WEFT_OK)
          << err.text;
    }
  }

  void check_gradients() {
    Error err;
    submit_batches(0, 1, WEFT_NO_UPDATE);
    expect("gradients", WEFT_GRAD);
  }

  std::string digest() {
    Error err;
    char out[33] = {};
    EXPECT_EQ(weft_run_digest(run_.get(), out, &err), WEFT_OK) << err.text;
    return out;
  }

  void check_training() {
    const size_t all = case_["batches"].size(),
                 several = asynchronous_ ? case_["plan"]["segment"].get<size_t>() : 1;
    for (size_t first = 0; first < all; first += several)
      submit_batches(first, std::min(several, all - first), WEFT_TRAIN);
    const json& expected = case_["expected"];
    ASSERT_EQ(losses_.size(), expected["losses"].size());
    for (size_t u = 0; u < losses_.size(); ++u) {
      expect_near(losses_[u], expected["losses"][u], "loss of update " + std::to_string(u));
      expect_near(norms_[u], expected["norms"][u], "norm of update " + std::to_string(u));
    }
    expect("weights", WEFT_VALUE);
  }

 private:
  void expect_near(double got, double expected, const std::string& what) {
    EXPECT_NEAR(got, expected, kTolerance * std::max(1.0, std::fabs(expected))) << what;
  }

  // All parameters against what the case expects of them.
  void expect(const char* key, weft_part part) {
    Error err;
    for (const auto& [name, expected] : case_["expected"][key].items()) {
      const TensorPtr found = tensor_of(desc_of(case_["model"]["params"][name], WEFT_F32));
      ASSERT_EQ(weft_run_read(run_.get(), name.c_str(), part, found.get(), &err), WEFT_OK)
          << err.text;
      ASSERT_EQ(values(found).size(), expected.size());
      for (size_t i = 0; i < expected.size(); ++i)
        expect_near(values(found)[i], expected[i],
                    std::string(key) + " of " + name + ", element " + std::to_string(i));
    }
  }

  // `n` batches from `first` as one step.
  void submit_batches(size_t first, size_t n, weft_step_mode mode) {
    std::vector<TensorPtr> tensors;
    std::vector<weft_tensor*> inputs;
    for (size_t i = 0; i < case_["model"]["inputs"].size(); ++i) {
      json data = json::array(), shape = case_["batches"][first][i]["shape"];
      shape[0] = 0;
      for (size_t b = first; b < first + n; ++b) {
        const json& part = case_["batches"][b][i];
        data.insert(data.end(), part["data"].begin(), part["data"].end());
        shape[0] = shape[0].get<int64_t>() + part["shape"][0].get<int64_t>();
      }
      tensors.push_back(tensor_of(desc_of(shape, dtype_of(case_["model"]["inputs"][i])), &data));
      inputs.push_back(tensors.back().get());
    }
    Error err;
    ASSERT_EQ(submit(run_, inputs, mode, 0, &err), WEFT_OK) << err.text;
    weft_event event = sized<weft_event>();
    do {
      ASSERT_EQ(weft_run_poll(run_.get(), &event, -1, nullptr), 1);
      ASSERT_NE(event.kind, static_cast<uint32_t>(WEFT_EVENT_ERROR)) << event.text;
      if (event.kind != (asynchronous_ ? WEFT_EVENT_UPDATE : WEFT_EVENT_DONE) || mode != WEFT_TRAIN)
        continue;
      losses_.push_back(event.loss);
      norms_.push_back(event.grad_norm);
    } while (event.kind != WEFT_EVENT_DONE);
  }

  const json& case_;
  bool asynchronous_;
  RunPtr run_;
  std::vector<double> losses_, norms_;
};

class Oracle : public testing::TestWithParam<size_t> {};

// The ways of the case, and, with a flush, every axis of a mesh: what PyTorch computes knows none.
std::vector<json> ways_of(const json& c) {
  std::vector<json> out = c["runs"];
  if (c["plan"].contains("segment")) return out;
  for (json how :
       {json{{"gradient_groups", 3}}, json{{"axes", {{"data", 2}}}},
        json{{"axes", {{"tensor", 2}}}},
        json{{"axes", {{"data", 2}, {"stage", 2}, {"tensor", 2}}}, {"gradient_groups", 4}}}) {
    how.update(json{{"schedule", "1f1b"}, {"ranks", 0}, {"cuts", json::array()}});
    out.push_back(how);
  }
  return out;
}

TEST_P(Oracle, TrainsAsPyTorchDoes) {
  const json& c = cases()[GetParam()];
  std::map<std::string, std::string> digests;  // by what decides rounding
  for (const json& how : ways_of(c))
    for (const uint32_t threads : {0u, 2u}) {
      SCOPED_TRACE(c["name"].get<std::string>() + ", " + how.dump() + ", threads " +
                   std::to_string(threads));
      Trainer(c, how, threads).check_gradients();
      Trainer trainer(c, how, threads);
      trainer.check_training();
      if (HasFailure()) return;
      const std::string rounding =
          how.contains("axes") || how.contains("gradient_groups")
              ? how.value("axes", json()).dump() + how.value("gradient_groups", json()).dump()
              : "";
      const std::string digest = trainer.digest();
      EXPECT_EQ(digests.emplace(rounding, digest).first->second, digest);
    }
}

std::string test_name(const testing::TestParamInfo<size_t>& info) {
  std::string name = cases()[info.param]["name"];
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return name;
}
INSTANTIATE_TEST_SUITE_P(Cases, Oracle, testing::Range(size_t{0}, cases().size()), test_name);

}  // namespace

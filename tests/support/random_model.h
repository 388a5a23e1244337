// Random models for equality tests: DAGs with skips, values used three times and more, parameters
// shared by distant nodes.
#pragma once

#include <memory>
#include <random>

#include "graph/model.h"

namespace weft::test {

// Every value is [samples, width], so any node can read any value. Aborts the test program if a
// node is refused. `shares`: half of the parameters share their gradients.
inline std::shared_ptr<Model> random_model(std::mt19937& rng, int nodes, int width = 4,
                                           bool shares = false) {
  auto model = std::make_shared<Model>();
  auto below = [&rng](size_t n) { return static_cast<size_t>(rng() % n); };
  auto must = [](auto result) {
    if (!result.ok()) {
      std::fprintf(stderr, "random_model: %s\n", result.status().text().c_str());
      std::abort();
    }
    return result.take();
  };
  const Shape row{1, width};
  std::vector<NodeId> values = {must(model->add_input("x", {DType::f32, row}, below(2) == 0))};
  if (below(2)) values.push_back(must(model->add_input("x2", {DType::f32, row}, false)));
  const NodeId target = must(model->add_input("target", {DType::f32, row}, false));
  std::vector<ParamId> weights;
  for (int n = 0; n < nodes; ++n) {
    // Mostly the newest values, sometimes one from far back.
    auto pick = [&] {
      return below(3) ? values[values.size() - 1 - below(std::min<size_t>(3, values.size()))]
                      : values[below(values.size())];
    };
    const size_t kind = below(5);
    NodeId made;
    if (kind < 2) {
      const bool fresh = weights.empty() || below(3);
      if (fresh) {
        weights.push_back(must(model->add_param("w" + std::to_string(weights.size()),
                                                Shape{width, width}, {InitKind::normal, 0.5})));
        if (shares && below(2)) (void)model->share_gradient(weights.back()).ok();
      }
      const NodeId in[] = {pick()};
      const ParamId w[] = {fresh ? weights.back() : weights[below(weights.size())]};
      made = must(model->add_node("", find_op("linear"), {}, in, w));
    } else if (kind == 2) {
      const NodeId in[] = {pick()};
      made = must(model->add_node("", find_op("relu"), {}, in, {}));
    } else {
      const NodeId in[] = {pick(), pick()};
      made = must(model->add_node("", find_op(kind == 3 ? "add" : "mul"), {}, in, {}));
    }
    values.push_back(made);
  }
  const NodeId loss_in[] = {values.back(), target};
  must(model->add_node("loss", find_op("mse"), {}, loss_in, {}));
  NodeId out = values[values.size() - 1 - below(3) % (values.size() - 1)];
  if (!model->node(out).is_input()) (void)model->add_output(out).ok();
  if (Status s = model->finish(); !s.ok()) {
    std::fprintf(stderr, "random_model: %s\n", s.text().c_str());
    std::abort();
  }
  return model;
}

}  // namespace weft::test

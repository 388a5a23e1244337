// Each collective against a plain reference: its values, its gradient, and the same bits wherever
// the coordinates are. A new collective is a row of kRows.
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <functional>

#include "api/spmd.h"

namespace {

// What a coordinate has of one sample.
struct Matrix {
  int64_t rows = 0, columns = 0;
  std::vector<double> values = {};
  double& at(int64_t row, int64_t column) {
    return values[static_cast<size_t>(row * columns + column)];
  }
};

Matrix zero(int64_t rows, int64_t columns) {
  return {rows, columns, std::vector<double>(static_cast<size_t>(rows * columns))};
}

// The matrices of the coordinates along one axis, before and after.
using Group = std::vector<Matrix>;

struct Row {
  const char* op;
  const char* axis;
  int64_t rows, columns;
  std::vector<int64_t> dims = {};  // all_to_all; otherwise the dimension, if the op takes one
  std::vector<int32_t> coordinates = {};
  std::function<Group(Group)> reference;
};

Group joined(Group in, int64_t dim) {
  const auto n = static_cast<int64_t>(in.size());
  const int64_t rows = in[0].rows, columns = in[0].columns;
  Matrix all = dim == 1 ? zero(n * rows, columns) : zero(rows, n * columns);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < columns; ++c)
        all.at(dim == 1 ? i * rows + r : r, dim == 1 ? c : i * columns + c) =
            in[static_cast<size_t>(i)].at(r, c);
  return Group(in.size(), all);
}

// Part `part` of `parts` along the dimension.
Matrix part_of(Matrix whole, int64_t dim, int64_t part, int64_t parts) {
  Matrix out =
      dim == 1 ? zero(whole.rows / parts, whole.columns) : zero(whole.rows, whole.columns / parts);
  for (int64_t r = 0; r < out.rows; ++r)
    for (int64_t c = 0; c < out.columns; ++c)
      out.at(r, c) =
          dim == 1 ? whole.at(part * out.rows + r, c) : whole.at(r, part * out.columns + c);
  return out;
}

// Sums are in double, or rounded to float after each addition.
bool round_sums = false;

Group sum(const Group& in) {
  Matrix all = in[0];
  for (size_t i = 1; i < in.size(); ++i)
    for (size_t e = 0; e < all.values.size(); ++e) {
      all.values[e] += in[i].values[e];
      if (round_sums) all.values[e] = static_cast<float>(all.values[e]);
    }
  return Group(in.size(), all);
}

Group scattered(Group in, int64_t dim) {
  const auto n = static_cast<int64_t>(in.size());
  for (int64_t i = 0; i < n; ++i)
    in[static_cast<size_t>(i)] = part_of(in[static_cast<size_t>(i)], dim, i, n);
  return in;
}

Group exchanged(const Group& in, int64_t cut, int64_t joint) {
  const auto n = static_cast<int64_t>(in.size());
  Group out;
  for (int64_t i = 0; i < n; ++i) {
    Group parts;
    for (const Matrix& m : in) parts.push_back(part_of(m, cut, i, n));
    out.push_back(joined(parts, joint)[0]);
  }
  return out;
}

Group from(const Group& in, const std::vector<int32_t>& sources) {
  Group out;
  for (const int32_t source : sources)
    out.push_back(source < 0 ? zero(in[0].rows, in[0].columns) : in[static_cast<size_t>(source)]);
  return out;
}

const Row kRows[] = {
    {"all_gather", "y", 2, 4, {1}, {}, [](Group g) { return joined(g, 1); }},
    {"all_gather", "x", 2, 4, {2}, {}, [](Group g) { return joined(g, 2); }},
    {"all_reduce", "x", 3, 2, {}, {}, sum},
    {"all_reduce", "y", 3, 2, {}, {}, sum},
    {"all_reduce", "y", 31, 37, {}, {}, sum},  // large: in pieces, and uneven ones
    {"all_to_all", "y", 3, 2, {1, 2}, {}, [](Group g) { return exchanged(g, 1, 2); }},
    {"all_to_all", "y", 2, 6, {2, 2}, {}, [](Group g) { return exchanged(g, 2, 2); }},
    {"broadcast",
     "y",
     2,
     2,
     {},
     {2},
     [](Group g) {
       return from(g, {2, 2, 2});
     }},
    {"mask",
     "y",
     2,
     2,
     {},
     {2, 0},
     [](Group g) {
       return from(g, {0, -1, 2});
     }},
    {"ppermute",
     "y",
     2,
     2,
     {},
     {2, 0, 1},
     [](Group g) {
       return from(g, {2, 0, 1});
     }},
    {"ppermute",
     "y",
     2,
     2,
     {},
     {-1, 0, -1},
     [](Group g) {
       return from(g, {-1, 0, -1});
     }},
    {"ppermute",
     "x",
     2,
     2,
     {},
     {1, 0},
     [](Group g) {
       return from(g, {1, 0});
     }},
    {"reduce_scatter", "y", 6, 2, {1}, {}, [](Group g) { return scattered(sum(g), 1); }},
    {"reduce_scatter", "x", 3, 4, {2}, {}, [](Group g) { return scattered(sum(g), 2); }},
};

constexpr int kX = 2, kY = 3, kSamples = 4, kSums = 2;

// Value number c = x * kY + y; those of the row's axis form a group.
Group collect(const Row& row, const Group& in) {
  Group out(in.size());
  const bool over_x = row.axis[0] == 'x';
  for (int other = 0; other < (over_x ? kY : kX); ++other) {
    Group group;
    const auto number = [&](int i) {
      return static_cast<size_t>(over_x ? i * kY + other : other * kY + i);
    };
    for (int i = 0; i < (over_x ? kX : kY); ++i) group.push_back(in[number(i)]);
    group = row.reference(group);
    for (size_t i = 0; i < group.size(); ++i) out[number(static_cast<int>(i))] = group[i];
  }
  return out;
}

weft_value add_collective(const ModelPtr& model, const Row& row, weft_value x) {
  Collective node{row.op, row.axis, row.coordinates, 0, {}, nullptr};
  if (row.dims.size() == 1) node.axis = static_cast<int32_t>(row.dims[0]);
  if (row.dims.size() == 2) node.dims = row.dims;
  weft_value out = {};
  Error err;
  EXPECT_EQ(add(model, node, x, &out, err), WEFT_OK) << err.text;
  return out;
}

weft_value flat(const ModelPtr& model, weft_value x, int64_t width) {
  weft_node_config config = defaults(weft_node_config_init);
  config.op = "reshape";
  config.inputs = &x;
  config.n_inputs = 1;
  config.n_dims = 2;
  config.dims[0] = -1;
  config.dims[1] = width;
  weft_value out = {};
  Error err;
  EXPECT_EQ(weft_model_add_node(model.get(), &config, &out, &err), WEFT_OK) << err.text;
  return out;
}

// Every coordinate multiplies what the collective gives it by its own weight; the sum of all goes
// into the loss.
struct Program {
  explicit Program(const Row& of) : row(of), model(new_model()) {
    Error err;
    EXPECT_EQ(weft_model_add_axis(model.get(), "x", kX, &err), WEFT_OK) << err.text;
    EXPECT_EQ(weft_model_add_axis(model.get(), "y", kY, &err), WEFT_OK) << err.text;
    const weft_value all =
        add_input(model, "in", {1, kX, kY, row.rows, row.columns}, WEFT_INPUT_WANT_GRAD);
    const weft_value target = add_input(model, "target", {1, kSums});
    const char* axes[] = {"x", "y"};
    for (uint32_t a = 0; a < 2; ++a)
      EXPECT_EQ(weft_model_cut_input(model.get(), all, a + 1, axes[a], WEFT_CUT_DROP, &err),
                WEFT_OK)
          << err.text;
    const weft_value made = add_collective(model, row, all);
    EXPECT_EQ(weft_model_add_output(model.get(), made, &err), WEFT_OK) << err.text;
    for (uint32_t a = 0; a < 2; ++a)
      EXPECT_EQ(weft_model_cut_output(model.get(), made, a + 1, axes[a], WEFT_CUT_DROP, &err),
                WEFT_OK)
          << err.text;
    const Matrix sample = collect(row, Group(kX * kY, zero(row.rows, row.columns)))[0];
    width = sample.rows * sample.columns;
    const weft_desc d = desc({kX, kY, width, kSums});
    weft_param weight = {};
    EXPECT_EQ(weft_model_add_param(model.get(), "weight", &d, WEFT_INIT_NORMAL, 1, &weight, &err),
              WEFT_OK)
        << err.text;
    for (uint32_t a = 0; a < 2; ++a)
      EXPECT_EQ(weft_model_cut_param(model.get(), weight, a, axes[a], WEFT_CUT_DROP, &err), WEFT_OK)
          << err.text;
    const weft_value operand = flat(model, made, width);
    weft_node_config linear = defaults(weft_node_config_init);
    linear.op = "linear";
    linear.name = "sums";
    linear.inputs = &operand;
    linear.params = &weight;
    linear.n_inputs = linear.n_params = 1;
    weft_value sums = {};
    EXPECT_EQ(weft_model_add_node(model.get(), &linear, &sums, &err), WEFT_OK) << err.text;
    for (const char* axis : axes) {
      const Row reduce{"all_reduce", axis, 0, 0, {}, {}, nullptr};
      sums = add_collective(model, reduce, sums);
    }
    add_node(model, "mse", {sums, target});
  }

  // The same in double. `in` and `weight` lie as the whole tensors do.
  double loss(const std::vector<double>& in, const std::vector<double>& weight,
              const std::vector<float>& target) const {
    double out = 0;
    for (int s = 0; s < kSamples; ++s) {
      double sums[kSums] = {};
      const Group made = outputs(in, s);
      for (size_t c = 0; c < made.size(); ++c)
        for (size_t e = 0; e < made[c].values.size(); ++e)
          for (size_t k = 0; k < kSums; ++k)
            sums[k] += made[c].values[e] * weight[(c * static_cast<size_t>(width) + e) * kSums + k];
      for (size_t k = 0; k < kSums; ++k) {
        const double off = sums[k] - target[static_cast<size_t>(s) * kSums + k];
        out += off * off / (kSamples * kSums);
      }
    }
    return out;
  }

  Group outputs(const std::vector<double>& in, int sample) const {
    Group group;
    const auto size = static_cast<std::ptrdiff_t>(row.rows * row.columns);
    for (int c = 0; c < kX * kY; ++c) {
      const auto begin = in.begin() + (sample * kX * kY + c) * size;
      group.push_back({row.rows, row.columns, {begin, begin + size}});
    }
    return collect(row, group);
  }

  Row row;
  ModelPtr model;
  int64_t width = 0;
};

struct Batch {
  TensorPtr in, target;
  explicit Batch(const Row& row)
      : in(noise({kSamples, kX, kY, row.rows, row.columns}, 7)),
        target(noise({kSamples, kSums}, 3)) {}
  std::vector<weft_tensor*> inputs() const { return {in.get(), target.get()}; }
};

weft_plan_config config_of(const std::vector<weft_axis>& axes) {
  weft_plan_config config = plan_config(1, 2, kSamples / 2);
  config.axes = axes.data();
  config.n_axes = static_cast<uint32_t>(axes.size());
  config.seed = 5;
  return config;
}

std::string name_of(const Row& row) {
  return std::string(row.op) + " over " + row.axis + " of " + std::to_string(row.rows) + " x " +
         std::to_string(row.columns);
}

// To the bit: sums are made from the first coordinate to the last.
TEST(Collectives, ValuesAreThoseOfTheReference) {
  round_sums = true;
  for (const Row& row : kRows) {
    SCOPED_TRACE(name_of(row));
    const Program program(row);
    const Batch batch(row);
    const RunPtr run = start(program.model, plan_config(1, 2, kSamples / 2));
    const Outcome found = step(run, batch.inputs(), WEFT_FORWARD);
    ASSERT_EQ(found.outputs.size(), 2u);
    const std::vector<float> in = values(batch.in);
    std::vector<double> expected;
    for (int s = 0; s < kSamples; ++s)
      for (const Matrix& m : program.outputs({in.begin(), in.end()}, s))
        expected.insert(expected.end(), m.values.begin(), m.values.end());
    std::vector<float> made = found.outputs[0][0];
    made.insert(made.end(), found.outputs[1][0].begin(), found.outputs[1][0].end());
    ASSERT_EQ(made.size(), expected.size());
    for (size_t i = 0; i < made.size(); ++i) ASSERT_EQ(made[i], expected[i]) << i;
  }
  round_sums = false;
}

// The loss is a square, so that differences in double have no error but rounding.
TEST(Collectives, GradientsAreThoseOfDifferences) {
  for (const Row& row : kRows) {
    SCOPED_TRACE(name_of(row));
    const Program program(row);
    const Batch batch(row);
    const RunPtr run = start(program.model, plan_config(1, 2, kSamples / 2));
    const std::vector<float> w = read(run, "weight", WEFT_VALUE, {kX, kY, program.width, kSums}),
                             x = values(batch.in), target = values(batch.target);
    std::vector<double> weight(w.begin(), w.end()), in(x.begin(), x.end());
    const double scale = 1 + program.loss(in, weight, target);
    EXPECT_NEAR(step(run, batch.inputs(), WEFT_NO_UPDATE).loss, scale - 1, 1e-5 * scale);
    const auto check = [&](std::vector<double>& at, const std::vector<float>& grad) {
      ASSERT_EQ(at.size(), grad.size());
      for (size_t i = 0; i < at.size(); i += 1 + at.size() / 60) {
        constexpr double kStep = 1e-3;
        const double value = at[i];
        at[i] = value + kStep;
        const double above = program.loss(in, weight, target);
        at[i] = value - kStep;
        const double below = program.loss(in, weight, target);
        at[i] = value;
        ASSERT_NEAR(grad[i], (above - below) / (2 * kStep), 1e-5 * scale) << i;
      }
    };
    check(in, read(run, "in", WEFT_GRAD, {kSamples, kX, kY, row.rows, row.columns}));
    check(weight, read(run, "weight", WEFT_GRAD, {kX, kY, program.width, kSums}));
  }
}

struct Trained {
  double loss = 0;
  std::string digest;
  std::vector<float> grad;
  friend bool operator==(const Trained&, const Trained&) = default;
};

Trained train(const Row& row, const RunPtr& run) {
  const Batch batch(row);
  Trained out;
  out.loss = step(run, batch.inputs()).loss;
  out.grad = read(run, "in", WEFT_GRAD, {kSamples, kX, kY, row.rows, row.columns});
  out.loss += step(run, batch.inputs()).loss;
  out.digest = digest(run);
  return out;
}

// A process that becomes a rank when it receives the address; forked while there is no thread.
class Child {
 public:
  Child() {
    EXPECT_EQ(pipe(way_), 0);
    pid_ = fork();
    if (pid_ == 0) serve();
  }
  ~Child() {
    close(way_[0]);
    close(way_[1]);
    int status = 0;
    EXPECT_EQ(waitpid(pid_, &status, 0), pid_);
    EXPECT_EQ(status, 0);
  }
  void join(const std::string& endpoint) {
    EXPECT_EQ(write(way_[1], endpoint.data(), endpoint.size()),
              static_cast<ssize_t>(endpoint.size()));
  }

 private:
  [[noreturn]] void serve() {
    char endpoint[200] = "";
    if (::read(way_[0], endpoint, sizeof endpoint - 1) <= 0) _exit(1);
    weft_mesh_config config = defaults(weft_mesh_config_init);
    config.endpoint = endpoint;
    weft_mesh* mesh = nullptr;
    weft_status status = weft_mesh_join(&config, &mesh, nullptr);
    if (status >= 0) status = weft_run_serve(mesh, nullptr, nullptr, nullptr, nullptr);
    weft_mesh_free(mesh);
    _exit(status < 0);
  }
  int way_[2] = {-1, -1};
  pid_t pid_;
};

// With a process for rank 1.
Trained train_in_processes(const Row& row, const PlanPtr& plan) {
  Child child;
  Error err;
  weft_mesh* mesh = nullptr;
  EXPECT_EQ(weft_mesh_listen(nullptr, &mesh, &err), WEFT_OK) << err.text;
  const MeshPtr owner(mesh);
  child.join(weft_mesh_endpoint(mesh));
  weft_run* run = nullptr;
  EXPECT_EQ(weft_run_start(plan.get(), mesh, nullptr, &run, &err), WEFT_OK) << err.text;
  const RunPtr started(run);
  return started ? train(row, started) : Trained();
}

TEST(Collectives, CoordinatesOnOtherRanksGiveTheSameBits) {
  for (const Row& row : kRows) {
    SCOPED_TRACE(name_of(row));
    const Program program(row);
    const Trained expected = train(row, start(new_plan(program.model, config_of({}))));
    const std::vector<std::vector<weft_axis>> meshes = {
        {{"x", 2, 0}}, {{"x", 2, 0}, {"y", 3, 0}}, {{"stage", 2, 0}, {"x", 2, 0}}};
    for (const auto& axes : meshes)
      for (const char* schedule : {"1f1b", "zb-h1"}) {
        weft_plan_config config = config_of(axes);
        const char* cut = "sums";
        config.schedule = schedule;
        if (axes[0].name == std::string("stage")) {
          config.cuts = &cut;
          config.n_cuts = 1;
        }
        const PlanPtr plan = new_plan(program.model, config);
        if (!plan) return;
        EXPECT_EQ(train(row, start(plan)), expected) << axes.size() << " axes, " << schedule;
        EXPECT_EQ(train(row, start(plan, 2)), expected) << axes.size() << " axes, threads";
      }
    const PlanPtr plan = new_plan(program.model, config_of(meshes[0]));
    EXPECT_EQ(train_in_processes(row, plan), expected) << "in processes";
  }
}

}  // namespace

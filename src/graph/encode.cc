#include "graph/encode.h"

#include "base/bytes.h"
#include "base/text.h"

namespace weft {

namespace {

constexpr uint32_t kFormat = 5;

void write_shape(ByteWriter& out, const Shape& shape) {
  out.number(static_cast<uint8_t>(shape.rank));
  for (int i = 0; i < shape.rank; ++i) out.number(shape[i]);
}

Result<Shape> read_shape(ByteReader& in) {
  const int rank = in.number<uint8_t>();
  if (rank > kMaxRank)
    return Status(Code::protocol,
                  cat("a shape has ", rank, " dimensions, expected at most ", kMaxRank));
  std::array<int64_t, kMaxRank> dims{};
  for (int i = 0; i < rank; ++i) dims[static_cast<size_t>(i)] = in.number<int64_t>();
  return Shape(std::span<const int64_t>(dims.data(), static_cast<size_t>(rank)));
}

template <typename Id>
void write_list(ByteWriter& out, const std::vector<Id>& ids) {
  out.number(static_cast<uint64_t>(ids.size()));
  for (Id id : ids) out.number(id);
}

template <typename T = int32_t>
std::vector<T> read_list(ByteReader& in) {
  std::vector<T> ids(in.count(sizeof(T)));
  for (T& id : ids) id = in.number<T>();
  return ids;
}

// All fields have names here: after a new one is added, this does not compile. Models with sections
// are not encoded.
void write_attrs(ByteWriter& out, const Attrs& attrs) {
  const auto& [axis, heads, flags, begin, end, factor, momentum, cap, dims, over, frequencies,
               section] = attrs;
  out.number(axis).number(heads).number(flags).number(begin).number(end);
  out.number(factor).number(momentum).number(cap);
  write_shape(out, dims);
  out.number(over.axis);
  write_list(out, over.coordinates);
  write_list(out, frequencies);
}

Result<Attrs> read_attrs(ByteReader& in) {
  Attrs attrs;
  auto& [axis, heads, flags, begin, end, factor, momentum, cap, dims, over, frequencies, section] =
      attrs;
  axis = in.number<int32_t>();
  heads = in.number<int32_t>();
  flags = in.number<uint32_t>();
  begin = in.number<int64_t>();
  end = in.number<int64_t>();
  factor = in.number<double>();
  momentum = in.number<double>();
  cap = in.number<double>();
  WEFT_TRY_ASSIGN(dims, read_shape(in));
  over.axis = in.number<int32_t>();
  over.coordinates = read_list(in);
  frequencies = read_list<float>(in);
  return attrs;
}

void write_cuts(ByteWriter& out, const std::vector<AxisCut>& cuts) {
  out.number(static_cast<uint64_t>(cuts.size()));
  for (const AxisCut& cut : cuts)
    out.number(cut.dim).number(cut.axis).number(static_cast<uint8_t>(cut.drop));
}

// Calls add(cut) for each cut.
template <typename F>
Status read_cuts(ByteReader& in, const F& add) {
  for (uint64_t i = 0, n = in.count(9); i < n; ++i) {
    const auto dim = in.number<int32_t>(), axis = in.number<int32_t>();
    const bool drop = in.number<uint8_t>() != 0;
    if (in.ok()) WEFT_TRY(add(AxisCut{dim, axis, drop}));
  }
  return {};
}

Status read_axis(ByteReader& in, Model& model) {
  const std::string name = in.text();
  const int32_t size = in.number<int32_t>();
  return in.ok() ? model.add_axis(name, size) : Status();
}

Status read_param(ByteReader& in, Model& model) {
  const std::string name = in.text();
  WEFT_TRY_ASSIGN(const Shape shape, read_shape(in));
  Init init;
  init.kind = in.number<InitKind>();
  init.value = in.number<double>();
  const bool shares = in.number<uint8_t>() != 0;
  if (init.kind > InitKind::normal)
    return Status(Code::protocol,
                  cat("parameter '", name, "' has an unknown kind of initial value"));
  if (!in.ok()) return {};  // the caller reports it
  WEFT_TRY_ASSIGN(const ParamId param, model.add_param(name, shape, init));
  if (shares) WEFT_TRY(model.share_gradient(param));
  return read_cuts(in, [&](const AxisCut& cut) { return model.cut_param(param, cut); });
}

Status read_node(ByteReader& in, Model& model, const OpFinder& find_user_op) {
  const std::string name = in.text(), op_name = in.text();
  const uint32_t version = in.number<uint32_t>();
  if (op_name.empty()) {
    const DType dtype = in.number<DType>();
    const bool wants_grad = in.number<uint8_t>() != 0;
    WEFT_TRY_ASSIGN(const Shape shape, read_shape(in));
    if (!in.ok()) return {};
    if (dtype != DType::f32 && dtype != DType::i32)
      return Status(Code::protocol, cat("input '", name, "' has an unknown dtype"));
    WEFT_TRY_ASSIGN(const NodeId input, model.add_input(name, {dtype, shape}, wants_grad));
    return read_cuts(in, [&](const AxisCut& cut) { return model.cut_input(input, cut); });
  }
  WEFT_TRY_ASSIGN(const Attrs attrs, read_attrs(in));
  const std::vector<int32_t> from = read_list(in), weights = read_list(in);
  const int32_t shard = in.number<int32_t>();
  if (!in.ok()) return {};
  if (shard < 0 || shard >= kMaxShards)
    return Status(Code::protocol,
                  cat("node '", name, "' is of shard ", shard, ", expected 0 to ", kMaxShards - 1));
  const Op* op = find_op(op_name);
  if (!op && find_user_op) op = find_user_op(op_name);
  if (!op)
    return Status(Code::not_found, cat("node '", name, "' needs the op '", op_name,
                                       "', which this process does not have"));
  if (op->version() != version)
    return Status(Code::unsupported,
                  cat("node '", name, "' needs version ", version, " of the op '", op_name,
                      "', this process has ", op->version()));
  return model.add_node(name, op, attrs, from, weights, {.node = -1, .shard = shard}).status();
}

}  // namespace

std::vector<std::byte> encode_model(const Model& model) {
  std::vector<std::byte> bytes;
  ByteWriter out(bytes);
  out.number(kFormat).number(static_cast<uint64_t>(model.axes().size()));
  for (const ModelAxis& axis : model.axes()) out.text(axis.name).number(axis.size);
  out.number(static_cast<uint64_t>(model.params().size()));
  for (const Param& p : model.params()) {
    out.text(p.name);
    write_shape(out, p.shape);
    out.number(p.init.kind).number(p.init.value).number(static_cast<uint8_t>(p.shares));
    write_cuts(out, p.cuts);
  }
  out.number(static_cast<uint64_t>(model.nodes().size()));
  for (NodeId id = 0; id < static_cast<NodeId>(model.nodes().size()); ++id) {
    const Node& n = model.node(id);
    out.text(n.name)
        .text(n.op ? std::string(n.op->name()) : "")
        .number(n.op ? n.op->version() : 0u);
    if (n.is_input()) {
      out.number(n.one.out.dtype).number(static_cast<uint8_t>(n.wants_grad));
      write_shape(out, model.whole_desc(id).shape);
      write_cuts(out, n.cuts);
    } else {
      write_attrs(out, n.attrs);
      write_list(out, n.in);
      write_list(out, n.weights);
      out.number(n.shard);
    }
  }
  write_list(out, model.outputs());
  for (const NodeId id : model.outputs()) write_cuts(out, model.node(id).cuts);
  return bytes;
}

Result<std::shared_ptr<Model>> decode_model(std::span<const std::byte> bytes,
                                            const OpFinder& find_user_op) {
  ByteReader in(bytes);
  auto model = std::make_shared<Model>();
  if (const uint32_t format = in.number<uint32_t>(); format != kFormat)
    return Status(Code::protocol,
                  cat("model of format ", format, ", this weft reads format ", kFormat));
  for (uint64_t i = 0, n = in.count(1); i < n && in.ok(); ++i) WEFT_TRY(read_axis(in, *model));
  for (uint64_t i = 0, n = in.count(1); i < n && in.ok(); ++i) WEFT_TRY(read_param(in, *model));
  for (uint64_t i = 0, n = in.count(1); i < n && in.ok(); ++i)
    WEFT_TRY(read_node(in, *model, find_user_op));
  const std::vector<int32_t> outputs = read_list(in);
  for (int32_t id : outputs) WEFT_TRY(model->add_output(id));
  for (int32_t id : outputs)
    WEFT_TRY(read_cuts(in, [&](const AxisCut& cut) { return model->cut_output(id, cut); }));
  if (!in.at_end())
    return Status(Code::protocol, in.ok() ? "bytes follow the model" : "the model is cut short");
  WEFT_TRY(model->finish());
  return model;
}

}  // namespace weft

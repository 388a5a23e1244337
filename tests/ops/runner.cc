#include "ops/runner.h"

#include <cstring>
#include <memory>

#include "base/text.h"
#include "kernels/bf16.h"
#include "kernels/fpenv.h"

namespace weft::test {

namespace {

constexpr size_t kGuard = 64;
constexpr std::byte kGuardByte{0xa5};

// Memory for one tensor, fenced on both sides.
class Buffer {
 public:
  Buffer(const Desc& desc, size_t shift, std::byte fill) : desc_(desc), bytes_(desc.bytes()) {
    if (desc.dtype == DType::f64) shift *= 2;
    store_.assign(bytes_ + shift + 2 * kGuard + 64, kGuardByte);
    auto base = reinterpret_cast<uintptr_t>(store_.data()) + kGuard;
    offset_ = kGuard + (64 - base % 64) % 64 + shift;
    std::memset(data(), static_cast<int>(fill), bytes_);
  }
  Buffer(const Desc& desc, size_t shift, const Bytes& content) : Buffer(desc, shift, std::byte{0}) {
    if (bytes_) std::memcpy(data(), content.data(), bytes_);
  }

  std::byte* data() { return store_.data() + offset_; }
  View view() { return {data(), desc_}; }
  Bytes content() { return Bytes(data(), data() + bytes_); }

  bool intact() const {
    for (size_t i = 0; i < store_.size(); ++i)
      if ((i < offset_ || i >= offset_ + bytes_) && store_[i] != kGuardByte) return false;
    return true;
  }

 private:
  Desc desc_;
  size_t bytes_, offset_ = 0;
  Bytes store_;
};

// The operands of one call in fresh memory, so that nothing survives from the call before but what
// is handed on.
class Frame {
 public:
  Frame(const Problem& problem, const Circumstances& how) : p_(problem), how_(how) {
    call.attrs = &p_.attrs;
    call.key = p_.key;
    call.training = p_.training;
    call.denominator = p_.denominator;
    call.tiles = how.tiles ? how.tiles : &serial_;
    const int64_t words = static_cast<int64_t>((p_.inferred.scratch + 3) / 4);
    call.scratch = make(Desc{DType::i32, {words}}, size_t{0}, how.before).data();
  }

  View fresh(const Desc& desc) { return make(desc, how_.shift, how_.before).view(); }
  View holding(const Desc& desc, const Bytes& content) {
    return make(desc, how_.shift, content).view();
  }
  // At the start of a run.
  View zeros(const Desc& desc) { return make(desc, size_t{0}, std::byte{0}).view(); }
  // In bf16, which must be exact.
  View halves(const Desc& desc, const Bytes& content) {
    if (desc.dtype != DType::f32) return holding(desc, content);
    const View out = make(Desc{DType::bf16, desc.shape}, size_t{0}, how_.before).view();
    kernels::to_bf16(reinterpret_cast<const float*>(content.data()), out.bf16(), desc.elements());
    return out;
  }
  // Of a tensor that the call may or may not read.
  View shown(bool named, const Desc& desc, const Bytes& content) {
    if (named || how_.unnamed == Unnamed::given) return holding(desc, content);
    if (how_.unnamed == Unnamed::missing) return {nullptr, desc};
    return make(desc, how_.shift, std::byte{0xff}).view();
  }

  template <typename F>
  void finish(const char* what, Results& results, const F& method) {
    call.in = in;
    call.weights = weights;
    call.stash = stash;
    call.din = din;
    call.state = state;
    Status status;
    {
      ComputeScope scope;
      status = method(call);
    }
    if (!status.ok()) fail(results, cat(what, ": ", status.text()));
    for (const auto& buffer : buffers_)
      if (!buffer->intact()) fail(results, cat(what, ": wrote outside a tensor"));
  }

  static Bytes content(const View& view) {
    const auto* data = static_cast<const std::byte*>(view.data);
    return Bytes(data, data + view.desc.bytes());
  }

  Call call;
  std::vector<View> in, weights, stash, din, state;

 private:
  template <typename... Args>
  Buffer& make(const Args&... args) {
    buffers_.push_back(std::make_unique<Buffer>(args...));
    return *buffers_.back();
  }
  static void fail(Results& results, std::string text) {
    if (results.error.empty()) results.error = std::move(text);
  }

  const Problem& p_;
  const Circumstances& how_;
  SerialTiles serial_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
};

// What I or W may read of forward's tensors.
void show(Frame& frame, const Problem& p, const Results& r, const Uses& uses) {
  for (size_t i = 0; i < p.in.size(); ++i)
    frame.in.push_back(frame.shown(uses.in >> i & 1, p.in[i].desc, p.in_data[i]));
  frame.call.out = frame.shown(uses.out, p.inferred.out, r.out);
  for (size_t i = 0; i < r.stash.size(); ++i)
    frame.stash.push_back(frame.shown(uses.stash, p.inferred.stash[i], r.stash[i]));
  frame.call.dout =
      p.dout.empty() ? View{nullptr, p.inferred.out} : frame.holding(p.inferred.out, p.dout);
}

void run_input_grad(const Problem& p, const Circumstances& how, Results& r) {
  Frame frame(p, how);
  show(frame, p, r, p.op->uses_input(p.attrs));
  for (size_t i = 0; i < p.weights.size(); ++i)
    frame.weights.push_back(frame.holding(p.weights[i], p.weight_data[i]));
  for (size_t i = 0; i < p.in.size(); ++i) {
    const bool wanted =
        has_gradient(p, i) && (how.only_din < 0 || how.only_din == static_cast<int>(i));
    frame.din.push_back(wanted ? frame.fresh(p.in[i].desc) : View{nullptr, p.in[i].desc});
  }
  frame.finish("I", r, [&](const Call& call) { return p.op->input_grad(call); });
  for (const View& din : frame.din) r.din.push_back(din ? Frame::content(din) : Bytes());
}

void run_weight_grad(const Problem& p, const Circumstances& how, Results& r) {
  for (size_t weight = 0; weight < p.weights.size(); ++weight) {
    Frame frame(p, how);
    const Uses uses = p.op->uses_weight(p.attrs);
    show(frame, p, r, uses);
    for (size_t i = 0; i < p.weights.size(); ++i)
      frame.weights.push_back(frame.shown(uses.weights, p.weights[i], p.weight_data[i]));
    frame.call.weight = static_cast<int>(weight);
    frame.call.begins_sum = how.begins_sum && p.op->writes_sum(frame.call.weight);
    frame.call.acc = frame.call.begins_sum ? frame.fresh(p.weights[weight])
                                           : frame.holding(p.weights[weight], p.acc[weight]);
    if (how.bf16 && !(weight == 0 && p.op->multiplies_weight())) {
      for (size_t i = 0; i < p.in.size(); ++i)
        frame.in[i] = frame.halves(p.in[i].desc, p.in_data[i]);
      frame.call.dout = frame.halves(p.inferred.out, p.dout);
    }
    frame.finish("W", r, [&](const Call& call) { return p.op->weight_grad(call); });
    r.acc.push_back(Frame::content(frame.call.acc));
  }
}

}  // namespace

bool has_gradient(const Problem& problem, size_t port) {
  return problem.in[port].desc.dtype == DType::f32 &&
         problem.op->differentiable(static_cast<int>(port));
}

Results run_forward(const Problem& p, const Circumstances& how) {
  Results r;
  Frame frame(p, how);
  for (size_t i = 0; i < p.in.size(); ++i)
    frame.in.push_back(how.bf16 && p.op->is_loss() ? frame.halves(p.in[i].desc, p.in_data[i])
                                                   : frame.holding(p.in[i].desc, p.in_data[i]));
  for (size_t i = 0; i < p.weights.size(); ++i)
    frame.weights.push_back(frame.holding(p.weights[i], p.weight_data[i]));
  frame.call.stored = p.stored;
  if (p.stored.data) frame.weights.front().data = nullptr;
  for (const Desc& desc : p.inferred.stash) frame.stash.push_back(frame.fresh(desc));
  for (const Desc& desc : p.inferred.state) frame.state.push_back(frame.zeros(desc));
  frame.call.out = frame.fresh(p.inferred.out);
  frame.finish("forward", r, [&](const Call& call) { return p.op->forward(call); });
  r.out = Frame::content(frame.call.out);
  for (const View& stash : frame.stash) r.stash.push_back(Frame::content(stash));
  return r;
}

Results run(const Problem& p, const Circumstances& how) {
  Results r = run_forward(p, how);
  if (!r.error.empty()) return r;
  run_input_grad(p, how, r);
  run_weight_grad(p, how, r);
  return r;
}

std::vector<double> numbers(const Bytes& bytes, DType dtype) {
  std::vector<double> out(bytes.size() / size_of(dtype));
  for (size_t i = 0; i < out.size(); ++i) {
    const std::byte* at = bytes.data() + i * size_of(dtype);
    const auto read = [&](auto value) {
      std::memcpy(&value, at, sizeof value);
      return static_cast<double>(value);
    };
    switch (dtype) {
      case DType::f32: out[i] = read(0.0f); break;
      case DType::i32: out[i] = read(int32_t{0}); break;
      case DType::f64: out[i] = read(0.0); break;
      case DType::bf16: {
        float value = 0;
        kernels::from_bf16(reinterpret_cast<const kernels::Bf16*>(at), &value, 1);
        out[i] = static_cast<double>(value);
        break;
      }
    }
  }
  return out;
}

}  // namespace weft::test

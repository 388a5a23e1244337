#include "graph/preset_llama.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "graph/preset_builder.h"
#include "graph/rotation.h"

namespace weft {

namespace {

// The defaults of a name are the sizes that Transformers assumes for this type of model.
struct Defaults {
  std::string_view name;
  double blocks, width, heads, key_heads, size, inner, context, vocabulary, epsilon, theta;
  double window;  // 0: none
  bool bias;      // of queries, keys and values
  bool norms;     // of each head of queries and keys
  bool fused;     // one weight of queries, keys and values, and one of gate and up
  int gemma;      // 0, or the version: see Gemma
};

// What Gemma has besides: embeddings times sqrt(width), norms of what attention and MLP add, norms
// with the scale 1 + weight, a GELU, windows in some blocks, and these settings. Version 2 has
// caps. Version 3 has a rotation of its own for blocks with a window.
struct Gemma {
  int64_t score_size;           // scores are divided by its root
  double score_cap, logit_cap;  // 0: none
};

// clang-format off
constexpr Defaults kDefaults[] = {
    // name     blocks width heads key_heads size inner context vocabulary epsilon theta window bias norms fused gemma
    {"llama",   32,    4096, 32,   32,       128, 11008, 2048,   32000,    1e-6,   1e4,  0,     false, false, false, false},
    {"mistral", 32,    4096, 32,   8,        128, 14336, 131072, 32000,    1e-6,   1e4,  4096,  false, false, false, false},
    {"phi3",    32,    3072, 32,   32,       96,  8192,  4096,   32064,    1e-5,   1e4,  0,     false, false, true,  false},
    {"qwen2",   32,    4096, 32,   32,       128, 22016, 32768,  151936,   1e-6,   1e4,  0,     true,  false, false, false},
    {"qwen3",   32,    4096, 32,   32,       128, 22016, 32768,  151936,   1e-6,   1e4,  0,     false, true,  false, false},
    {"gemma2",  26,    2304, 8,    4,        256, 9216,  8192,   256000,   1e-6,   1e4,  4096,  false, false, false, 2},
    {"gemma3",  26,    2304, 8,    4,        256, 9216,  131072, 262208,   1e-6,   1e6,  4096,  false, true,  false, 3},
};
// clang-format on

struct Sizes {
  int64_t blocks, width, heads, key_heads, size, inner, context, vocabulary, seq_len;
  double epsilon;
  bool bias, norms, fused, tied;
  std::optional<Gemma> gemma;
  Rotation rotation;
  Rotation local;               // of blocks with a window
  std::vector<double> windows;  // of the blocks in turn; 0: attention to all tokens
  CacheOptions cache;
  bool packed;
};

class Llama {
 public:
  explicit Llama(const Sizes& sizes) : s_(sizes) {}

  Result<std::shared_ptr<Model>> build() {
    const NodeId tokens = b_.tokens(s_.seq_len, s_.cache, s_.packed);
    const ParamId table = b_.matrix("model.embed_tokens", s_.vocabulary, s_.width);
    NodeId x = b_.node("model.embed_tokens", "embedding", {tokens}, {table});
    if (s_.gemma)
      x = b_.scale("model.embed_tokens.scale", x, std::sqrt(static_cast<double>(s_.width)));
    for (int64_t i = 0; i < s_.blocks; ++i) x = block(cat("model.layers.", i), x, window_of(i));
    x = norm("model.norm", x, s_.width);
    x = b_.projection("lm_head", x,
                      {s_.tied ? table : b_.matrix("lm_head", s_.vocabulary, s_.width)});
    if (s_.gemma) x = b_.softcap("lm_head.cap", x, s_.gemma->logit_cap);
    b_.loss(x);
    return b_.finish(x);
  }

 private:
  NodeId linear(const std::string& name, NodeId x, int64_t in, int64_t out, bool bias = false) {
    std::vector<ParamId> params{b_.matrix(name, out, in)};
    if (bias) params.push_back(b_.param(name + ".bias", {out}, {}));
    return b_.projection(name, x, std::move(params));
  }
  NodeId norm(const std::string& name, NodeId x, int64_t width) {
    Attrs attrs;
    attrs.factor = s_.epsilon;
    if (s_.gemma) attrs.flags = kUnitOffset;
    const Init init{InitKind::constant, s_.gemma ? 0. : 1.};
    return b_.node(name, "rms_norm", {x}, {b_.param(name + ".weight", {width}, init)}, attrs);
  }
  // Columns [begin, begin + count).
  NodeId columns(const std::string& name, NodeId x, int64_t begin, int64_t count) {
    Attrs attrs;
    attrs.axis = 2;
    attrs.begin = begin;
    attrs.end = begin + count;
    return b_.node(name, "slice", {x}, {}, attrs);
  }

  // The projections of x to so many columns, from one weight or from one each.
  std::vector<NodeId> project(const std::string& name, const char* fused, NodeId x, bool bias,
                              const std::vector<std::pair<const char*, int64_t>>& parts) {
    std::vector<NodeId> out;
    if (!s_.fused) {
      for (const auto& [part, count] : parts)
        out.push_back(linear(cat(name, ".", part), x, s_.width, count, bias));
      return out;
    }
    int64_t all = 0;
    for (const auto& [part, count] : parts) all += count;
    const NodeId y = linear(cat(name, ".", fused), x, s_.width, all, bias);
    int64_t begin = 0;
    for (const auto& [part, count] : parts) {
      out.push_back(columns(cat(name, ".", part), y, begin, count));
      begin += count;
    }
    return out;
  }

  // Queries or keys.
  NodeId rotated(const std::string& name, char which, NodeId x, int64_t count, int64_t window) {
    const std::string n = cat(name, ".", which);
    return b_.rope(n + "_rope", s_.norms ? norm(n + "_norm", x, s_.size) : x, count,
                   window > 0 ? s_.local : s_.rotation);
  }

  int64_t window_of(int64_t block) const {
    if (s_.windows.empty()) return 0;
    return static_cast<int64_t>(s_.windows[static_cast<size_t>(block) % s_.windows.size()]);
  }

  // The op divides scores by the root of the size of a head.
  double query_factor() const {
    return std::sqrt(static_cast<double>(s_.size) / static_cast<double>(s_.gemma->score_size));
  }

  NodeId attention(const std::string& name, NodeId x, int64_t window) {
    const int64_t keys = s_.key_heads * s_.size;
    const std::vector<NodeId> y =
        project(name, "qkv_proj", x, s_.bias,
                {{"q_proj", s_.heads * s_.size}, {"k_proj", keys}, {"v_proj", keys}});
    NodeId q = rotated(name, 'q', y[0], s_.heads, window);
    const NodeId k = rotated(name, 'k', y[1], s_.key_heads, window);
    if (s_.gemma) q = b_.scale(name + ".q_scale", q, query_factor());
    x = b_.attention(name, {q, k, y[2]}, s_.heads, 0, window, s_.gemma ? s_.gemma->score_cap : 0);
    return linear(name + ".o_proj", x, s_.heads * s_.size, s_.width);
  }

  // (silu(gate) * up), then down. Gemma has a GELU.
  NodeId mlp(const std::string& name, NodeId x) {
    const std::vector<NodeId> y =
        project(name, "gate_up_proj", x, false, {{"gate_proj", s_.inner}, {"up_proj", s_.inner}});
    Attrs attrs;
    if (s_.gemma) attrs.flags = kTanh;
    const NodeId gate = b_.node(name + ".act_fn", s_.gemma ? "gelu" : "silu", {y[0]}, {}, attrs);
    return linear(name + ".down_proj", b_.node(name + ".mul", "mul", {gate, y[1]}), s_.inner,
                  s_.width);
  }

  NodeId block(const std::string& n, NodeId x, int64_t window) {
    NodeId y = attention(n + ".self_attn", norm(n + ".input_layernorm", x, s_.width), window);
    if (s_.gemma) y = norm(n + ".post_attention_layernorm", y, s_.width);
    x = b_.node(n + ".self_attn.add", "add", {x, y});
    const char* before = s_.gemma ? ".pre_feedforward_layernorm" : ".post_attention_layernorm";
    y = mlp(n + ".mlp", norm(n + before, x, s_.width));
    if (s_.gemma) y = norm(n + ".post_feedforward_layernorm", y, s_.width);
    return b_.node(n + ".mlp.add", "add", {x, y});
  }

  const Sizes& s_;
  Builder b_;
};

const Defaults* find_defaults(std::string_view name) {
  const auto* const at =
      std::find_if(std::begin(kDefaults), std::end(kDefaults),
                   [name](const Defaults& defaults) { return defaults.name == name; });
  return at == std::end(kDefaults) ? nullptr : at;
}

// Of the blocks in turn: Gemma 2 has a window in every other one, Gemma 3 in five of six.
std::vector<double> windows_of(const Defaults& d) {
  if (d.window == 0) return {};
  std::vector<double> out(d.gemma == 3 ? 5 : 1, d.window);
  if (d.gemma > 0) out.push_back(0);
  return out;
}

std::vector<Key> keys_of(const Defaults& d) {
  constexpr double kMostRows = 1 << 24;
  std::vector<Key> keys = {
      {"blocks", d.blocks, 1, 1000},
      {"width", d.width, 1, 1 << 16},
      {"heads", d.heads, 1, 1024},
      {"key_heads", d.key_heads, 1, 1024},
      {"head_size", d.size, 2, 1 << 16},
      {"inner", d.inner, 1, 1 << 20},
      {"context", d.context, 1, kMostRows},
      {"window", 0, 0, kMostRows, true, true, windows_of(d)},
      {"vocabulary", d.vocabulary, 2, kMostRows},
      {"epsilon", d.epsilon, 1e-30, 1, false},
      {"bias", d.bias ? 1. : 0., 0, 1},
      {"norms", d.norms ? 1. : 0., 0, 1},
      {"fused", d.fused ? 1. : 0., 0, 1},
      {"tied", d.gemma > 0 ? 1. : 0., 0, 1},
  };
  if (d.gemma > 0)
    keys.insert(keys.end(), {{"score_size", d.size, 1, 1 << 16},
                             {"score_cap", d.gemma == 2 ? 50. : 0., 0, 1e30, false},
                             {"logit_cap", d.gemma == 2 ? 30. : 0., 0, 1e30, false}});
  if (d.gemma == 3) keys.push_back({"local_theta", 1e4, 1, 1e12, false});
  for (const Key& key : rotation_keys(d.theta, 1)) keys.push_back(key);
  return keys;
}

// A model without windows has one text, and so one form in config.json.
void clear_if_no_windows(std::vector<Key>& keys) {
  const auto window =
      std::find_if(keys.begin(), keys.end(), [](const Key& key) { return key.name == "window"; });
  const auto is_none = [](double each) { return each == 0; };
  if (std::all_of(window->list.begin(), window->list.end(), is_none)) window->list.clear();
}

}  // namespace

bool is_llama(std::string_view name) { return find_defaults(name) != nullptr; }

std::string llama_names() {
  std::string out;
  for (const Defaults& d : kDefaults) out += cat(out.empty() ? "" : ", ", d.name);
  return out;
}

Result<Preset> make_llama(std::string_view name, std::string_view keys_text,
                          const PresetOptions& options) {
  const Defaults& d = *find_defaults(name);
  std::vector<Key> keys = keys_of(d);
  WEFT_TRY(read_keys(name, keys_text, keys));
  clear_if_no_windows(keys);
  const auto value = [&keys](std::string_view key) { return value_of(keys, key); };
  const auto whole = [&keys](std::string_view key) { return whole_of(keys, key); };
  Preset out = token_preset(name, keys);
  WEFT_TRY_ASSIGN(const CacheOptions cache, choose_length(name, options, out));
  if (whole("heads") % whole("key_heads"))
    return Status(Code::invalid, cat("model '", name, "': heads is ", whole("heads"),
                                     ", expected a multiple of key_heads ", whole("key_heads")));
  WEFT_TRY_ASSIGN(Rotation rotation, rotation_of(name, keys, whole("head_size"), out.seq_len));
  Rotation local = rotation;
  if (d.gemma == 3) {
    const std::vector<Key> unscaled = rotation_keys(value("local_theta"), value("rotary"));
    WEFT_TRY_ASSIGN(local, rotation_of(name, unscaled, whole("head_size"), out.seq_len));
  }
  std::optional<Gemma> gemma;
  if (d.gemma > 0) gemma = {whole("score_size"), value("score_cap"), value("logit_cap")};
  const Sizes sizes{.blocks = whole("blocks"),
                    .width = out.width,
                    .heads = whole("heads"),
                    .key_heads = whole("key_heads"),
                    .size = whole("head_size"),
                    .inner = whole("inner"),
                    .context = out.context,
                    .vocabulary = out.vocabulary,
                    .seq_len = out.seq_len,
                    .epsilon = value("epsilon"),
                    .bias = value("bias") != 0,
                    .norms = value("norms") != 0,
                    .fused = value("fused") != 0,
                    .tied = value("tied") != 0,
                    .gemma = gemma,
                    .rotation = std::move(rotation),
                    .local = std::move(local),
                    .windows = list_of(keys, "window"),
                    .cache = cache,
                    .packed = options.packed};
  WEFT_TRY_ASSIGN(out.model, Llama(sizes).build());
  return out;
}

}  // namespace weft

#include "graph/preset_neox.h"

#include "base/text.h"
#include "graph/preset_builder.h"
#include "graph/rotation.h"

namespace weft {

namespace {

struct Sizes {
  int64_t blocks, width, heads, inner, context, vocabulary, seq_len;
  double epsilon;
  bool parallel, tied;
  Rotation rotation;
  CacheOptions cache;
  bool packed;

  int64_t size() const { return width / heads; }
};

class Neox {
 public:
  explicit Neox(const Sizes& sizes) : s_(sizes) {}

  Result<std::shared_ptr<Model>> build() {
    const NodeId tokens = b_.tokens(s_.seq_len, s_.cache, s_.packed);
    const ParamId table = b_.matrix("gpt_neox.embed_in", s_.vocabulary, s_.width);
    NodeId x = b_.node("gpt_neox.embed_in", "embedding", {tokens}, {table});
    for (int64_t i = 0; i < s_.blocks; ++i) x = block(cat("gpt_neox.layers.", i), x);
    x = norm("gpt_neox.final_layer_norm", x);
    x = b_.projection("embed_out", x,
                      {s_.tied ? table : b_.matrix("embed_out", s_.vocabulary, s_.width)});
    b_.loss(x);
    return b_.finish(x);
  }

 private:
  NodeId linear(const std::string& name, NodeId x, int64_t in, int64_t out) {
    return b_.projection(name, x, {b_.matrix(name, out, in), b_.param(name + ".bias", {out}, {})});
  }
  NodeId norm(const std::string& name, NodeId x) {
    return b_.layer_norm(name, x, s_.width, s_.epsilon);
  }

  NodeId reshape(const std::string& name, NodeId x, Shape dims) {
    Attrs attrs;
    attrs.dims = dims;
    return b_.node(name, "reshape", {x}, {}, attrs);
  }

  // One of the three parts of [.., heads, 3 size], for all heads.
  NodeId part(const std::string& name, NodeId x, int64_t number) {
    Attrs attrs;
    attrs.axis = 3;
    attrs.begin = number * s_.size();
    attrs.end = attrs.begin + s_.size();
    return reshape(name, b_.node(name + ".part", "slice", {x}, {}, attrs),
                   {-1, b_.decodes() ? 1 : s_.seq_len, s_.width});
  }

  NodeId attention(const std::string& name, NodeId x) {
    // Queries, keys and values of a head lie side by side.
    x = reshape(name + ".heads", linear(name + ".query_key_value", x, s_.width, 3 * s_.width),
                {-1, b_.decodes() ? 1 : s_.seq_len, s_.heads, 3 * s_.size()});
    const NodeId q = b_.rope(name + ".q_rope", part(name + ".q", x, 0), s_.heads, s_.rotation),
                 k = b_.rope(name + ".k_rope", part(name + ".k", x, 1), s_.heads, s_.rotation);
    x = b_.attention(name, {q, k, part(name + ".v", x, 2)}, s_.heads);
    return linear(name + ".dense", x, s_.width, s_.width);
  }

  NodeId mlp(const std::string& name, NodeId x) {
    x = linear(name + ".dense_h_to_4h", x, s_.width, s_.inner);
    return linear(name + ".dense_4h_to_h", b_.node(name + ".act", "gelu", {x}), s_.inner, s_.width);
  }

  // Parallel: attention and MLP read the same x.
  NodeId block(const std::string& n, NodeId x) {
    const NodeId y = attention(n + ".attention", norm(n + ".input_layernorm", x));
    if (s_.parallel)
      return b_.node(n + ".add", "add",
                     {x, y, mlp(n + ".mlp", norm(n + ".post_attention_layernorm", x))});
    x = b_.node(n + ".attention.add", "add", {x, y});
    return b_.node(n + ".mlp.add", "add",
                   {x, mlp(n + ".mlp", norm(n + ".post_attention_layernorm", x))});
  }

  const Sizes& s_;
  Builder b_;
};

}  // namespace

Result<Preset> make_neox(std::string_view name, std::string_view keys_text,
                         const PresetOptions& options) {
  constexpr double kMostRows = 1 << 24;
  std::vector<Key> keys = {
      {"blocks", 44, 1, 1000},
      {"width", 6144, 1, 1 << 16},
      {"heads", 64, 1, 1024},
      {"inner", 24576, 1, 1 << 20},
      {"context", 2048, 1, kMostRows},
      {"vocabulary", 50432, 2, kMostRows},
      {"epsilon", 1e-5, 1e-30, 1, false},
      {"parallel", 1, 0, 1},
      {"tied", 0, 0, 1},
  };
  for (const Key& key : rotation_keys(1e4, 0.25)) keys.push_back(key);
  WEFT_TRY(read_keys(name, keys_text, keys));
  const auto whole = [&keys](std::string_view key) { return whole_of(keys, key); };
  Preset out = token_preset(name, keys);
  WEFT_TRY_ASSIGN(const CacheOptions cache, choose_length(name, options, out));
  WEFT_TRY(check_heads(name, out.width, whole("heads")));
  WEFT_TRY_ASSIGN(Rotation rotation,
                  rotation_of(name, keys, out.width / whole("heads"), out.seq_len));
  const Sizes sizes{.blocks = whole("blocks"),
                    .width = out.width,
                    .heads = whole("heads"),
                    .inner = whole("inner"),
                    .context = out.context,
                    .vocabulary = out.vocabulary,
                    .seq_len = out.seq_len,
                    .epsilon = value_of(keys, "epsilon"),
                    .parallel = whole("parallel") != 0,
                    .tied = whole("tied") != 0,
                    .rotation = std::move(rotation),
                    .cache = cache,
                    .packed = options.packed};
  WEFT_TRY_ASSIGN(out.model, Neox(sizes).build());
  return out;
}

}  // namespace weft

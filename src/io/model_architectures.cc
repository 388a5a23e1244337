#include "io/model_architectures.h"

#include "io/model_config.h"

namespace weft {

namespace {

constexpr std::string_view kGpt2Presets[] = {"gpt2", "gpt-nano"};
constexpr Number kGpt2Numbers[] = {{"n_layer", "blocks", 12},
                                   {"n_embd", "width", 768},
                                   {"n_head", "heads", 12},
                                   {"n_positions", "context", 1024},
                                   {"vocab_size", "vocabulary", 50257}};
constexpr const char* kGpt2Dropouts[] = {"attn_pdrop", "embd_pdrop", "resid_pdrop"};
constexpr Fixed kGpt2Fixed[] = {{"activation_function", R"("gelu_new" or "gelu_pytorch_tanh")"},
                                {"layer_norm_epsilon", "1e-05"},
                                {"scale_attn_by_inverse_layer_idx", "false"},
                                {"scale_attn_weights", "true"}};
constexpr const char* kGpt2Ignored[] = {"n_ctx",
                                        "reorder_and_upcast_attn",
                                        "summary_activation",
                                        "summary_first_dropout",
                                        "summary_proj_to_labels",
                                        "summary_type",
                                        "summary_use_proj"};

constexpr std::string_view kLlamaPresets[] = {"llama"}, kMistralPresets[] = {"mistral"},
                           kQwen2Presets[] = {"qwen2"}, kQwen3Presets[] = {"qwen3"};
constexpr Number kEpsilon = {
    .field = "rms_norm_eps", .key = "epsilon", .value = 1e-6, .whole = false};
constexpr Number kTheta = {.field = "rope_theta", .key = "theta", .value = 1e4, .whole = false};
constexpr Number kHeadSize = {
    .field = "head_dim", .key = "head_size", .like = "hidden_size", .over = "num_attention_heads"};
constexpr Number kLlamaNumbers[] = {
    {"num_hidden_layers", "blocks", 32},
    {"hidden_size", "width", 4096},
    {"num_attention_heads", "heads", 32},
    {.field = "num_key_value_heads", .key = "key_heads", .like = "num_attention_heads"},
    kHeadSize,
    {"intermediate_size", "inner", 11008},
    {"max_position_embeddings", "context", 2048},
    {"vocab_size", "vocabulary", 32000},
    kEpsilon,
    kTheta};
constexpr Number kMistralNumbers[] = {{"num_hidden_layers", "blocks", 32},
                                      {"hidden_size", "width", 4096},
                                      {"num_attention_heads", "heads", 32},
                                      {"num_key_value_heads", "key_heads", 8},
                                      kHeadSize,
                                      {"intermediate_size", "inner", 14336},
                                      {"max_position_embeddings", "context", 131072},
                                      {"vocab_size", "vocabulary", 32000},
                                      kEpsilon,
                                      kTheta};
constexpr Number kQwen2Numbers[] = {{"num_hidden_layers", "blocks", 32},
                                    {"hidden_size", "width", 4096},
                                    {"num_attention_heads", "heads", 32},
                                    {"num_key_value_heads", "key_heads", 32},
                                    kHeadSize,
                                    {"intermediate_size", "inner", 22016},
                                    {"max_position_embeddings", "context", 32768},
                                    {"vocab_size", "vocabulary", 151936},
                                    kEpsilon,
                                    kTheta};
constexpr Number kQwen3Numbers[] = {{"num_hidden_layers", "blocks", 32},
                                    {"hidden_size", "width", 4096},
                                    {"num_attention_heads", "heads", 32},
                                    {"num_key_value_heads", "key_heads", 32},
                                    {"head_dim", "head_size", 128},
                                    {"intermediate_size", "inner", 22016},
                                    {"max_position_embeddings", "context", 32768},
                                    {"vocab_size", "vocabulary", 151936},
                                    kEpsilon,
                                    kTheta};
constexpr Number kRotary = {
    .field = "partial_rotary_factor", .key = "rotary", .value = 1, .whole = false};
constexpr Number kPhi3Numbers[] = {
    {"num_hidden_layers", "blocks", 32},
    {"hidden_size", "width", 3072},
    {"num_attention_heads", "heads", 32},
    {.field = "num_key_value_heads", .key = "key_heads", .like = "num_attention_heads"},
    kHeadSize,
    {"intermediate_size", "inner", 8192},
    {"max_position_embeddings", "context", 4096},
    {"vocab_size", "vocabulary", 32064},
    {.field = "rms_norm_eps", .key = "epsilon", .value = 1e-5, .whole = false},
    kTheta,
    kRotary};
// Newer versions have other names for two of the fields.
constexpr Number kNeoxNumbers[] = {
    {"num_hidden_layers", "blocks", 44},
    {"hidden_size", "width", 6144},
    {"num_attention_heads", "heads", 64},
    {"intermediate_size", "inner", 24576},
    {"max_position_embeddings", "context", 2048},
    {"vocab_size", "vocabulary", 50432},
    {.field = "layer_norm_eps", .key = "epsilon", .value = 1e-5, .whole = false},
    {.field = "rotary_emb_base", .key = "theta", .value = 1e4, .whole = false},
    {.field = "rope_theta", .key = "theta", .like = "rotary_emb_base", .whole = false},
    {.field = "rotary_pct", .key = "rotary", .value = 0.25, .whole = false},
    {.field = "partial_rotary_factor", .key = "rotary", .like = "rotary_pct", .whole = false}};
constexpr Number kGemma2Numbers[] = {{"num_hidden_layers", "blocks", 26},
                                     {"hidden_size", "width", 2304},
                                     {"num_attention_heads", "heads", 8},
                                     {"num_key_value_heads", "key_heads", 4},
                                     {"head_dim", "head_size", 256},
                                     {"intermediate_size", "inner", 9216},
                                     {"max_position_embeddings", "context", 8192},
                                     {"vocab_size", "vocabulary", 256000},
                                     kEpsilon,
                                     kTheta,
                                     {"query_pre_attn_scalar", "score_size", 256},
                                     {.field = "attn_logit_softcapping",
                                      .key = "score_cap",
                                      .value = 50,
                                      .whole = false,
                                      .nullable = true},
                                     {.field = "final_logit_softcapping",
                                      .key = "logit_cap",
                                      .value = 30,
                                      .whole = false,
                                      .nullable = true}};
constexpr Fixed kLlamaFixed[] = {{"attention_bias", "false"},
                                 {"attention_dropout", "0.0 or 0"},
                                 {"hidden_act", R"("silu")"},
                                 {"mlp_bias", "false"},
                                 {"pretraining_tp", "1"}};
constexpr Fixed kMistralFixed[] = {{"attention_dropout", "0.0 or 0"}, {"hidden_act", R"("silu")"}};
constexpr Fixed kQwenFixed[] = {
    {"attention_bias", "false"}, {"attention_dropout", "0.0 or 0"}, {"hidden_act", R"("silu")"}};
constexpr Fixed kPhi3Fixed[] = {{"attention_dropout", "0.0 or 0"},
                                {"embd_pdrop", "0.0 or 0"},
                                {"hidden_act", R"("silu")"},
                                {"resid_pdrop", "0.0 or 0"}};
constexpr Fixed kGemma2Fixed[] = {{"attention_bias", "false"},
                                  {"attention_dropout", "0.0 or 0"},
                                  {"hidden_activation", R"("gelu_pytorch_tanh")"}};
constexpr Fixed kNeoxFixed[] = {{"attention_bias", "true"},
                                {"attention_dropout", "0.0 or 0"},
                                {"hidden_act", R"("gelu")"},
                                {"hidden_dropout", "0.0 or 0"}};
constexpr const char *kPhi3Ignored[] = {"original_max_position_embeddings"},  // of scaled positions
    *kNeoxIgnored[] = {"classifier_dropout"},
                     *kGemma2Ignored[] = {"cache_implementation", "hidden_act",
                                          "sliding_window_size"};
constexpr FlagField kNeoxFlags[] = {{"use_parallel_residual", "parallel", true}};
constexpr FixedKey
    kPlainKeys[] = {{"bias", "0"}, {"norms", "0"}, {"fused", "0"}, {"window", ""}, {"rotary", "1"}},
    kMistralKeys[] = {{"bias", "0"}, {"norms", "0"}, {"fused", "0"}, {"rotary", "1"}},
    kPhi3Keys[] = {{"bias", "0"}, {"norms", "0"}, {"fused", "1"}},
    kQwen2Keys[] = {{"bias", "1"}, {"norms", "0"}, {"fused", "0"}, {"rotary", "1"}},
    kQwen3Keys[] = {{"bias", "0"}, {"norms", "1"}, {"fused", "0"}, {"rotary", "1"}};
constexpr std::string_view kPhi3Presets[] = {"phi3"}, kNeoxPresets[] = {"gpt_neox"},
                           kGemma2Presets[] = {"gemma2"};

constexpr Architecture kArchitectures[] = {{.type = "gpt2",
                                            .presets = kGpt2Presets,
                                            .loader = "GPT2LMHeadModel",
                                            .prefix = kGpt2Prefix,
                                            .numbers = kGpt2Numbers,
                                            .dropouts = kGpt2Dropouts,
                                            .dropout = 0.1,
                                            .fixed = kGpt2Fixed,
                                            .fixed_keys = {},
                                            .inner = "n_inner",
                                            .width = "n_embd",
                                            .tied = true,
                                            .ignored = kGpt2Ignored},
                                           {.type = "llama",
                                            .presets = kLlamaPresets,
                                            .loader = "LlamaForCausalLM",
                                            .prefix = "",
                                            .numbers = kLlamaNumbers,
                                            .dropouts = {},
                                            .fixed = kLlamaFixed,
                                            .fixed_keys = kPlainKeys,
                                            .rotary = true,
                                            .ignored = {}},
                                           {.type = "mistral",
                                            .presets = kMistralPresets,
                                            .loader = "MistralForCausalLM",
                                            .prefix = "",
                                            .numbers = kMistralNumbers,
                                            .dropouts = {},
                                            .fixed = kMistralFixed,
                                            .fixed_keys = kMistralKeys,
                                            .rotary = true,
                                            .windows = Windows::all_layers,
                                            .window = 4096,
                                            .ignored = {}},
                                           {.type = "qwen2",
                                            .presets = kQwen2Presets,
                                            .loader = "Qwen2ForCausalLM",
                                            .prefix = "",
                                            .numbers = kQwen2Numbers,
                                            .dropouts = {},
                                            .fixed = kQwenFixed,
                                            .fixed_keys = kQwen2Keys,
                                            .rotary = true,
                                            .windows = Windows::some_layers,
                                            .window = 4096,
                                            .ignored = {}},
                                           {.type = "qwen3",
                                            .presets = kQwen3Presets,
                                            .loader = "Qwen3ForCausalLM",
                                            .prefix = "",
                                            .numbers = kQwen3Numbers,
                                            .dropouts = {},
                                            .fixed = kQwenFixed,
                                            .fixed_keys = kQwen3Keys,
                                            .rotary = true,
                                            .windows = Windows::some_layers,
                                            .window = 4096,
                                            .ignored = {}},
                                           {.type = "phi3",
                                            .presets = kPhi3Presets,
                                            .loader = "Phi3ForCausalLM",
                                            .prefix = "",
                                            .numbers = kPhi3Numbers,
                                            .dropouts = {},
                                            .fixed = kPhi3Fixed,
                                            .fixed_keys = kPhi3Keys,
                                            .rotary = true,
                                            .windows = Windows::all_layers,
                                            .ignored = kPhi3Ignored},
                                           {.type = "gemma2",
                                            .presets = kGemma2Presets,
                                            .loader = "Gemma2ForCausalLM",
                                            .prefix = "",
                                            .numbers = kGemma2Numbers,
                                            .dropouts = {},
                                            .fixed = kGemma2Fixed,
                                            .fixed_keys = kMistralKeys,
                                            .tied = true,
                                            .rotary = true,
                                            .windows = Windows::every_other_layer,
                                            .window = 4096,
                                            .ignored = kGemma2Ignored},
                                           {.type = "gpt_neox",
                                            .presets = kNeoxPresets,
                                            .loader = "GPTNeoXForCausalLM",
                                            .prefix = "",
                                            .numbers = kNeoxNumbers,
                                            .flags = kNeoxFlags,
                                            .dropouts = {},
                                            .fixed = kNeoxFixed,
                                            .fixed_keys = {},
                                            .rotary = true,
                                            .ignored = kNeoxIgnored}};

constexpr Fixed kFixed[] = {
    {"add_cross_attention", "false"}, {"is_encoder_decoder", "false"}, {"pruned_heads", "{}"}};
constexpr const char* kIgnored[] = {"_attn_implementation_autoset",
                                    "_name_or_path",
                                    "_num_labels",
                                    "architectures",
                                    "bos_token_id",
                                    "do_sample",
                                    "dtype",
                                    "eos_token_id",
                                    "finetuning_task",
                                    "gradient_checkpointing",
                                    "id2label",
                                    "initializer_range",
                                    "is_decoder",
                                    "label2id",
                                    "max_length",
                                    "min_length",
                                    "model_type",
                                    "no_repeat_ngram_size",
                                    "num_beams",
                                    "num_labels",
                                    "output_attentions",
                                    "output_hidden_states",
                                    "output_past",
                                    "pad_token_id",
                                    "prefix",
                                    "problem_type",
                                    "repetition_penalty",
                                    "return_dict",
                                    "sep_token_id",
                                    "task_specific_params",
                                    "temperature",
                                    "tokenizer_class",
                                    "top_k",
                                    "top_p",
                                    "torch_dtype",
                                    "torchscript",
                                    "transformers_version",
                                    "use_cache"};

}  // namespace

std::span<const Architecture> architectures() { return kArchitectures; }
std::span<const Fixed> common_fixed() { return kFixed; }
std::span<const char* const> common_ignored() { return kIgnored; }

}  // namespace weft

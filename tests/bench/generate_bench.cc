// Continues texts of random tokens with a GPT-2 of random weights, and prints the seconds of the
// first token and of each later one as one JSON object, for tools/bench. With several texts, the
// seconds are those of a token of every text. Other texts of the same length get a token before
// that, because the first step also packs weights; they are others because the run keeps the keys
// and values of a text that has ended for the next one that begins like it. All ranks are in this
// process.
//
//   build/tests/bench/bench_generate BLOCKS WIDTH HEADS VOCABULARY LENGTH TEXTS TOKENS [OPTION...]
//
// LENGTH: tokens at the start of a text. Options: data=N, stage=N, tensor=N, threads=N, bf16, and
// same: all texts begin with the same tokens.
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "weft.h"

namespace {

weft_error err = {};

void require(weft_status status) {
  if (status >= 0) return;
  std::fprintf(stderr, "bench_generate: %s\n", err.text);
  std::exit(1);
}

[[noreturn]] void refuse(const char* what) {
  std::fprintf(stderr,
               "bench_generate: '%s', expected seven numbers, then data=N, stage=N, tensor=N, "
               "threads=N, bf16 or same\n",
               what);
  std::exit(2);
}

uint32_t number(std::string_view text) {
  uint32_t out = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), out);
  if (end.ec != std::errc() || end.ptr != text.data() + text.size() || out == 0)
    refuse(text.data());
  return out;
}

struct Options {
  uint32_t data = 1, stage = 1, tensor = 1, threads = 1;
  bool bf16 = false, same = false;
};

Options options_of(int argc, char** argv) {
  Options out;
  for (int i = 8; i < argc; ++i) {
    const std::string_view text = argv[i];
    const size_t equals = text.find('=');
    const std::string_view key = text.substr(0, equals);
    if (text == "bf16")
      out.bf16 = true;
    else if (text == "same")
      out.same = true;
    else if (key == "data")
      out.data = number(text.substr(equals + 1));
    else if (key == "stage")
      out.stage = number(text.substr(equals + 1));
    else if (key == "tensor")
      out.tensor = number(text.substr(equals + 1));
    else if (key == "threads")
      out.threads = number(text.substr(equals + 1));
    else
      refuse(argv[i]);
  }
  return out;
}

weft_run* start(const std::string& preset, uint32_t texts, const Options& options) {
  weft_decoder_config decoder;
  weft_decoder_config_init(&decoder, sizeof decoder);
  decoder.sequences = (texts + options.data - 1) / options.data;
  if (options.bf16) decoder.flags = WEFT_NODE_BF16_CACHE;
  weft_model* model = nullptr;
  require(weft_model_decoder(preset.c_str(), &decoder, &model, nullptr, &err));
  weft_plan_config config;
  weft_plan_config_init(&config, sizeof config);
  const weft_axis axes[] = {
      {"data", options.data, 0}, {"stage", options.stage, 0}, {"tensor", options.tensor, 0}};
  config.axes = axes;
  config.n_axes = 3;
  config.tensor = options.tensor;
  config.micro_batches = options.data * (options.stage > 1 ? 4 * options.stage : 1);
  config.micro_batch_size = 64;
  const uint32_t groups = options.data * options.stage;
  config.short_size = (texts + groups - 1) / groups;
  config.precision = options.bf16 ? "bf16" : "f32";
  weft_plan* plan = nullptr;
  require(weft_plan_new(model, &config, &plan, &err));
  weft_run_config running;
  weft_run_config_init(&running, sizeof running);
  running.threads = options.threads;
  weft_run* run = nullptr;
  require(weft_run_start(plan, nullptr, &running, &run, &err));
  weft_plan_free(plan);
  weft_model_free(model);
  return run;
}

void add_texts(weft_generator* generator, uint32_t texts, uint32_t length, uint32_t vocabulary,
               uint32_t tokens, bool same, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> text(length);
  for (uint32_t i = 0; i < texts; ++i) {
    if (i == 0 || !same)
      for (int32_t& token : text) token = static_cast<int32_t>(random() % vocabulary);
    weft_sequence_config config;
    weft_sequence_config_init(&config, sizeof config);
    config.temperature = 0;
    config.limit = tokens;
    uint64_t id = 0;
    require(weft_generator_add(generator, text.data(), text.size(), &config, &id, &err));
  }
}

void take_tokens(weft_generator* generator, uint32_t texts) {
  for (uint32_t i = 0; i < texts; ++i) {
    weft_token token = {};
    token.size = sizeof token;
    require(weft_generator_poll(generator, &token, -1, &err));
  }
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 8) refuse(argc > 1 ? argv[argc - 1] : "");
  err.size = sizeof err;
  const Options options = options_of(argc, argv);
  const uint32_t vocabulary = number(argv[4]), length = number(argv[5]), texts = number(argv[6]),
                 tokens = number(argv[7]);
  const std::string preset = std::string("gpt2:blocks=") + argv[1] + ",width=" + argv[2] +
                             ",heads=" + argv[3] + ",vocabulary=" + argv[4] +
                             ",context=" + std::to_string(length + tokens + 1);
  weft_run* run = start(preset, texts, options);
  weft_generator* generator = nullptr;
  require(weft_generator_new(run, &generator, &err));
  add_texts(generator, texts, length, vocabulary, 1, options.same, 1);
  take_tokens(generator, texts);
  add_texts(generator, texts, length, vocabulary, tokens + 1, options.same, 2);
  double before = now();
  for (uint32_t i = 0; i <= tokens; ++i) {
    take_tokens(generator, texts);
    const double after = now();
    std::printf(i == 0   ? "{\"first\": %.6f, \"tokens\": ["
                : i == 1 ? "%.6f"
                         : ", %.6f",
                after - before);
    before = after;
  }
  std::printf("]}\n");
  weft_generator_free(generator);
  weft_run_free(run);
}

// weft inspect
#include "cli/build.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/file_digest.h"
#include "cli/json.h"

namespace weft::cli {

namespace {

struct Options {
  std::string path;
  bool json = false, digests = false;
};

std::string shape_text(const weft_desc& desc) {
  std::string out = "[";
  for (uint32_t i = 0; i < desc.n_dims; ++i) out += (i ? "," : "") + std::to_string(desc.dims[i]);
  return out + "]";
}

// Adds `n` tensors, starting at `first`, to the JSON objects, or prints them as lines.
Outcome list_tensors(weft_checkpoint* checkpoint, uint32_t first, uint32_t n, const Options& o,
                     std::vector<JsonObject>& objects) {
  weft_error err = sized<weft_error>();
  for (uint32_t i = first; i < first + n; ++i) {
    weft_desc desc;
    const char* dtype = nullptr;
    const char* name = weft_checkpoint_tensor(checkpoint, i, &desc, &dtype);
    char digest[33] = {};
    if (o.digests) CLI_CALL(weft_checkpoint_digest(checkpoint, i, digest, &err));
    if (!o.json) {
      print_line("  " + std::string(name) + "  " + dtype + shape_text(desc) +
                 (o.digests ? std::string("  ") + digest : ""));
      continue;
    }
    JsonObject object;
    object.add("name", name)
        .add("dtype", dtype)
        .add("shape", std::vector<int64_t>(desc.dims, desc.dims + desc.n_dims));
    if (o.digests) object.add("digest", digest);
    objects.push_back(object);
  }
  return {};
}

Outcome inspect(const Options& o) {
  weft_error err = sized<weft_error>();
  CheckpointPtr checkpoint;
  weft_checkpoint_info info = sized<weft_checkpoint_info>();
  CLI_TRY(open_checkpoint("inspect", o.path, checkpoint, info));
  char digest[33] = {};
  CLI_CALL(weft_checkpoint_digest(checkpoint.get(), -1, digest, &err));
  std::vector<JsonObject> params, states;
  const std::vector<int32_t> ends(info.ends, info.ends + info.n_ends);
  const bool has_source = info.source && std::string_view(info.source) != info.path;
  if (!o.json) {
    print_line(info.path);
    const std::string model = info.model ? "model " + std::string(info.model) : "";
    if (info.weights_only && info.model) print_line(model);
    if (!info.weights_only) {
      print_line(model + (info.model ? ", " : "") + "step " + std::to_string(info.step) +
                 ", seed " + std::to_string(info.seed));
      for (uint32_t i = 0; i < info.n_options; ++i)
        if (std::string_view(info.options[i].key) != kDataDigest)
          print_line("  --" + std::string(info.options[i].key) + " " + info.options[i].value);
    }
    if (has_source) print_line("tokenizer and configuration in " + std::string(info.source));
    if (!ends.empty()) {
      std::string text = "texts end at";
      for (const int32_t token : ends) text += " " + std::to_string(token);
      print_line(text);
    }
    print_line("digest " + std::string(digest));
    print_line(std::to_string(info.n_params) + " parameters");
  }
  CLI_TRY(list_tensors(checkpoint.get(), 0, info.n_params, o, params));
  if (!o.json && info.n_states)
    print_line(std::to_string(info.n_states) + " tensors of optimizer state");
  CLI_TRY(list_tensors(checkpoint.get(), info.n_params, info.n_states, o, states));
  if (!o.json) return {};
  JsonObject object;
  object.add("path", info.path);
  if (info.weights_only) {
    if (info.model) object.add("model", info.model);
  } else {
    JsonObject options;
    for (uint32_t i = 0; i < info.n_options; ++i)
      options.add(info.options[i].key, info.options[i].value);
    if (info.model) object.add("model", info.model);
    object.add("step", info.step).add("seed", info.seed).add("options", options);
  }
  if (has_source) object.add("source", info.source);
  if (!ends.empty()) object.add("ends", ends);
  print_line(
      object.add("digest", digest).add("parameters", params).add("optimizer", states).text());
  return {};
}

}  // namespace

Action add_inspect(Parser& parser) {
  auto o = std::make_shared<Options>();
  parser
      .add(
          "PATH", o->path,
          "A checkpoint, a directory of checkpoints (the latest is used), a safetensors file, or a "
          "directory of Transformers")
      .required()
      .type("");
  parser.add("--digests", o->digests, "Also show the digest of each tensor");
  parser.add("--json", o->json, "Print one JSON object");
  return [o] { return inspect(*o); };
}

}  // namespace weft::cli

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

struct Tensor {
  std::string name, dtype;
  weft_desc desc;
  std::string digest;  // if wanted
};

// What both formats show.
struct Facts {
  weft_checkpoint_info info = sized<weft_checkpoint_info>();
  std::string digest;
  std::vector<Tensor> params, states;

  bool has_source() const { return info.source && std::string_view(info.source) != info.path; }
  std::vector<int32_t> ends() const { return {info.ends, info.ends + info.n_ends}; }
};

Outcome read_tensor(weft_checkpoint* checkpoint, uint32_t index, bool digests, Tensor& out) {
  weft_error err = sized<weft_error>();
  const char* dtype = nullptr;
  out.name = weft_checkpoint_tensor(checkpoint, index, &out.desc, &dtype);
  out.dtype = dtype;
  if (!digests) return {};
  char digest[33] = {};
  CLI_CALL(weft_checkpoint_digest(checkpoint, index, digest, &err));
  out.digest = digest;
  return {};
}

Outcome read_facts(weft_checkpoint* checkpoint, bool digests, Facts& out) {
  weft_error err = sized<weft_error>();
  char digest[33] = {};
  CLI_CALL(weft_checkpoint_digest(checkpoint, -1, digest, &err));
  out.digest = digest;
  out.params.resize(out.info.n_params);
  out.states.resize(out.info.n_states);
  uint32_t index = 0;
  for (auto* tensors : {&out.params, &out.states})
    for (Tensor& tensor : *tensors) CLI_TRY(read_tensor(checkpoint, index++, digests, tensor));
  return {};
}

void print_tensors(const std::vector<Tensor>& tensors) {
  for (const Tensor& t : tensors)
    print_line("  " + t.name + "  " + t.dtype + shape_text(t.desc) +
               (t.digest.empty() ? "" : "  " + t.digest));
}

void print_text(const Facts& facts) {
  const weft_checkpoint_info& info = facts.info;
  print_line(info.path);
  const std::string model = info.model ? "model " + std::string(info.model) : "";
  if (info.weights_only && info.model) print_line(model);
  if (!info.weights_only) {
    print_line(model + (info.model ? ", " : "") + "step " + std::to_string(info.step) + ", seed " +
               std::to_string(info.seed));
    for (uint32_t i = 0; i < info.n_options; ++i)
      if (std::string_view(info.options[i].key) != kDataDigest)
        print_line("  --" + std::string(info.options[i].key) + " " + info.options[i].value);
  }
  if (facts.has_source()) print_line("tokenizer and configuration in " + std::string(info.source));
  if (info.n_ends > 0) {
    std::string text = "texts end at";
    for (const int32_t token : facts.ends()) text += " " + std::to_string(token);
    print_line(text);
  }
  print_line("digest " + facts.digest);
  print_line(std::to_string(facts.params.size()) + " parameters");
  print_tensors(facts.params);
  if (!facts.states.empty())
    print_line(std::to_string(facts.states.size()) + " tensors of optimizer state");
  print_tensors(facts.states);
}

std::vector<JsonObject> tensors_json(const std::vector<Tensor>& tensors) {
  std::vector<JsonObject> out;
  for (const Tensor& t : tensors) {
    JsonObject object;
    object.add("name", t.name)
        .add("dtype", t.dtype)
        .add("shape", std::vector<int64_t>(t.desc.dims, t.desc.dims + t.desc.n_dims));
    if (!t.digest.empty()) object.add("digest", t.digest);
    out.push_back(object);
  }
  return out;
}

void print_json(const Facts& facts) {
  const weft_checkpoint_info& info = facts.info;
  JsonObject object;
  object.add("path", info.path);
  if (info.model) object.add("model", info.model);
  if (!info.weights_only) {
    JsonObject options;
    for (uint32_t i = 0; i < info.n_options; ++i)
      options.add(info.options[i].key, info.options[i].value);
    object.add("step", info.step).add("seed", info.seed).add("options", options);
  }
  if (facts.has_source()) object.add("source", info.source);
  if (info.n_ends > 0) object.add("ends", facts.ends());
  object.add("digest", facts.digest)
      .add("parameters", tensors_json(facts.params))
      .add("optimizer", tensors_json(facts.states));
  print_line(object.text());
}

Outcome inspect(const Options& o) {
  CheckpointPtr checkpoint;
  Facts facts;
  CLI_TRY(open_checkpoint("inspect", o.path, checkpoint, facts.info));
  CLI_TRY(read_facts(checkpoint.get(), o.digests, facts));
  if (o.json)
    print_json(facts);
  else
    print_text(facts);
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

// weft export
#include "cli/build.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/files.h"
#include "cli/joined_checkpoint.h"
#include "cli/signals.h"

namespace weft::cli {

namespace {

// Of the files that are written: all, all except adapters, or only adapters.
uint32_t count_tensors(const weft_checkpoint* checkpoint, uint32_t all, bool merge,
                       bool directory) {
  uint32_t adapters = 0;
  for (uint32_t i = 0; i < all; ++i) {
    const std::string_view name = weft_checkpoint_tensor(checkpoint, i, nullptr, nullptr);
    adapters += name.ends_with(".lora_A.weight") || name.ends_with(".lora_B.weight");
  }
  if (merge) return all - adapters;
  return directory && adapters ? adapters : all;
}

}  // namespace

Action add_export(Parser& parser) {
  struct Options {
    std::string checkpoint, file, adapter, dtype = "f32";
    bool merge = false;
    weft_export_config config = defaults(weft_export_config_init);
  };
  auto o = std::make_shared<Options>();
  parser
      .add("CHECKPOINT", o->checkpoint,
           "A checkpoint, or a directory of checkpoints (the latest is used); with --adapter, also "
           "a directory of Transformers")
      .required()
      .type("");
  parser
      .add("FILE", o->file,
           "The safetensors file to write; with '/' at its end, a directory for Transformers")
      .required()
      .type("");
  parser.add("--dtype", o->dtype, "Type of the weights in the files: f32, or bf16 (rounded)")
      .type("TYPE")
      .one_of({"f32", "bf16"});
  const Option shards = parser
                            .add("--shard-size", o->config.shard_bytes,
                                 "Bytes of weights in each file of a directory, for example 2G")
                            .type("BYTES")
                            .bytes();
  parser
      .add("--adapter", o->adapter,
           "Add the adapters in this directory of PEFT to the model of CHECKPOINT")
      .type("DIR");
  parser.add(
      "--merge", o->merge,
      "Add the adapters of the model to the weights that they adapt. Without it, a directory "
      "has only the adapters, as with PEFT");
  return [o, shards]() -> Outcome {
    const bool directory = o->file.ends_with('/');
    if (shards.given() && !directory)
      return {kUsage, "--shard-size requires a directory, FILE with '/' at its end", ""};
    if (shards.given() && o->config.shard_bytes == 0)
      return {kUsage, "--shard-size: '0', expected a number of bytes above 0", ""};
    CLI_TRY(directory ? check_writable(o->file) : check_place(o->file));
    weft_error err = sized<weft_error>();
    CheckpointPtr checkpoint;
    weft_checkpoint_info info = sized<weft_checkpoint_info>();
    JoinedCheckpoint joined;
    if (!o->adapter.empty()) CLI_TRY(joined.make(o->checkpoint, o->adapter, o->file));
    const std::string& path = o->adapter.empty() ? o->checkpoint : joined.path();
    CLI_TRY(open_checkpoint("export", path, checkpoint, info));
    if (info.adapters) return only_adapters(o->checkpoint);
    o->config.dtype = o->dtype.c_str();
    o->config.merge = o->merge;
    CLI_CALL(weft_checkpoint_export_as(checkpoint.get(), o->file.c_str(), &o->config, &err));
    if (const int signal = stop_signal())
      return {128 + signal, "stopped; " + o->file + " is complete", ""};
    const uint32_t tensors = count_tensors(checkpoint.get(), info.n_params, o->merge, directory);
    const std::string step = o->adapter.empty() ? " of step " + std::to_string(info.step) : "";
    print_line(o->file + ": " + std::to_string(tensors) + " tensors" + step);
    return {};
  };
}

}  // namespace weft::cli

// weft export
#include <filesystem>

#include "cli/build.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/files.h"

namespace weft::cli {

namespace {

// Of a directory with adapters, which may also have the description of their model, the file.
Outcome count_tensors(const std::string& exported, uint32_t& out) {
  std::error_code ignored;
  const std::string adapters = exported + "adapter_model.safetensors";
  const bool has_adapters = exported.ends_with('/') && std::filesystem::exists(adapters, ignored);
  CheckpointPtr checkpoint;
  weft_checkpoint_info info = sized<weft_checkpoint_info>();
  CLI_TRY(open_checkpoint("export", has_adapters ? adapters : exported, checkpoint, info));
  out = info.n_params;
  return {};
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
           "A checkpoint, a directory of checkpoints (the latest is used), or a directory of "
           "Transformers")
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
    CLI_TRY(open_checkpoint("export", o->checkpoint, checkpoint, info));
    if (info.adapters) return only_adapters(o->checkpoint);
    o->config.dtype = o->dtype.c_str();
    if (!o->adapter.empty()) o->config.adapters = o->adapter.c_str();
    o->config.merge = o->merge;
    CLI_CALL(weft_checkpoint_export_as(checkpoint.get(), o->file.c_str(), &o->config, &err));
    uint32_t tensors = 0;
    CLI_TRY(count_tensors(o->file, tensors));
    const bool trained = o->adapter.empty() && !info.weights_only;
    const std::string step = trained ? " of step " + std::to_string(info.step) : "";
    print_line(o->file + ": " + std::to_string(tensors) + " tensors" + step);
    return {};
  };
}

}  // namespace weft::cli

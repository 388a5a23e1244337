// weft export
#include "cli/build.h"
#include "cli/command.h"
#include "cli/console.h"

namespace weft::cli {

Action add_export(Parser& parser) {
  struct Options {
    std::string checkpoint, file, dtype = "f32";
    weft_export_config config = defaults(weft_export_config_init);
  };
  auto o = std::make_shared<Options>();
  parser
      .add("CHECKPOINT", o->checkpoint,
           "A checkpoint, or a directory of checkpoints (the latest is used)")
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
  return [o, shards]() -> Outcome {
    if (shards.given() && !o->file.ends_with('/'))
      return {kUsage, "--shard-size requires a directory, FILE with '/' at its end", ""};
    weft_error err = sized<weft_error>();
    CheckpointPtr checkpoint;
    weft_checkpoint_info info = sized<weft_checkpoint_info>();
    CLI_TRY(open_checkpoint("export", o->checkpoint, checkpoint, info));
    o->config.dtype = o->dtype.c_str();
    CLI_CALL(weft_checkpoint_export_as(checkpoint.get(), o->file.c_str(), &o->config, &err));
    print_line(o->file + ": " + std::to_string(info.n_params) + " tensors of step " +
               std::to_string(info.step));
    return {};
  };
}

}  // namespace weft::cli

// weft export
#include "cli/build.h"
#include "cli/command.h"
#include "cli/console.h"

namespace weft::cli {

Action add_export(Parser& parser) {
  struct Options {
    std::string checkpoint, file;
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
  return [o]() -> Outcome {
    weft_error err = sized<weft_error>();
    CheckpointPtr checkpoint;
    weft_checkpoint_info info = sized<weft_checkpoint_info>();
    CLI_TRY(open_checkpoint("export", o->checkpoint, checkpoint, info));
    CLI_CALL(weft_checkpoint_export(checkpoint.get(), o->file.c_str(), &err));
    print_line(o->file + ": " + std::to_string(info.n_params) + " tensors of step " +
               std::to_string(info.step));
    return {};
  };
}

}  // namespace weft::cli

#include "cli/start_weights.h"

namespace weft::cli {

Outcome StartWeights::open(const std::string& init, const Built& built, weft_checkpoint* resumed) {
  from = resumed ? resumed : built.checkpoint.get();
  if (!resumed && !init.empty()) {
    CLI_TRY(open_checkpoint("train", init, init_, info));
    from = init_.get();
  }
  if (!from) return {};
  weft_error err = sized<weft_error>();
  CLI_CALL(weft_checkpoint_describe(from, &info));
  if (init_ && info.model) return check_same_weights(built.info.text, init, info.model);
  return {};
}

}  // namespace weft::cli

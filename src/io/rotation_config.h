// How config.json describes rotary position embeddings: "rope_scaling", or "rope_parameters" of
// newer versions of Transformers.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "io/config_fields.h"

namespace weft {

// Sets the keys of rotations (graph/rotation.h) except theta and the part of a head, whose fields
// belong to the architecture unless they are in the object. The key "context" must be set.
Status read_rotation(ConfigFields& config, const Architecture& architecture, PresetKeys& keys);

// The object of a model; empty if its rotations are not scaled. `source`: the config.json from
// which the model came, which may have a scaling outside of the context.
Result<std::string> print_rotation(std::string_view keys, const Architecture& architecture,
                                   const Json& source);
// "original_max_position_embeddings" beside the object, which longrope needs; else empty.
Result<std::string> print_original_context(std::string_view keys);

}  // namespace weft

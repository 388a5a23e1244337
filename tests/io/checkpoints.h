// A small checkpoint whose every value is a function of its step, written and checked by several
// tests.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "files.h"
#include "io/checkpoint.h"

namespace weft::test {

constexpr uint64_t kSmallShard = 64;  // bytes: two or three tensors

inline std::vector<TensorSpec> model_tensors() {
  return {{"embed", {DType::f32, {4, 4}}},
          {"0.weight", {DType::f32, {2, 3}}},
          {"0.bias", {DType::f32, {3}}},
          {"head", {DType::f32, {5}}},
          {"scale", {DType::f32, {}}}};
}

inline std::vector<TensorSpec> optimizer_tensors() {
  std::vector<TensorSpec> out;
  for (const TensorSpec& tensor : model_tensors())
    for (const char* slot : {"exp_avg", "exp_avg_sq"})
      out.push_back({optimizer_tensor_name(tensor.name, slot), tensor.desc});
  return out;
}

inline std::vector<float> values_of(const TensorSpec& tensor, uint64_t step) {
  std::vector<float> out(static_cast<size_t>(tensor.desc.elements()));
  const uint64_t seed = hash64(tensor.name.data(), tensor.name.size(), step) % 1000;
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<float>(seed) + static_cast<float>(i) / 16;
  return out;
}

inline Manifest manifest_of(uint64_t step) {
  Manifest out;
  out.weft = "0.1.0";
  out.model = "gpt-tiny \xC3\xA9";
  out.seed = ~uint64_t{0};
  out.step = step;
  out.optimizer = {{"rule", "adamw"}, {"rate", "0.001"}};
  out.options = {{"data", "a \"quoted\" path"}, {"sequence", "64"}};
  return out;
}

inline Result<std::string> write_checkpoint(const std::string& directory, uint64_t step) {
  WEFT_TRY_ASSIGN(CheckpointWriter writer,
                  CheckpointWriter::begin(directory, manifest_of(step), model_tensors(),
                                          optimizer_tensors(), kSmallShard));
  // Both lists in turn, and of each tensor the second half first, as it may come from other ranks.
  const auto write = [&](ShardPart part, const TensorSpec& tensor) -> Status {
    const std::vector<float> values = values_of(tensor, step);
    const auto bytes = std::as_bytes(std::span(values));
    const size_t half = bytes.size() / 2;
    WEFT_TRY(writer.write(part, tensor.name, half, bytes.subspan(half)));
    return half > 0 ? writer.write(part, tensor.name, 0, bytes.first(half)) : Status();
  };
  const auto slots = optimizer_tensors();
  size_t slot = 0;
  for (const TensorSpec& tensor : model_tensors()) {
    WEFT_TRY(write(ShardPart::model, tensor));
    for (int k = 0; k < 2; ++k) WEFT_TRY(write(ShardPart::optimizer, slots[slot++]));
  }
  return writer.commit();
}

// Reads all of it; says what is wrong.
inline Status check_checkpoint(Checkpoint& checkpoint) {
  const uint64_t step = checkpoint.manifest().step;
  WEFT_TRY(compare_tensors("model", model_tensors(), checkpoint.model()));
  WEFT_TRY(compare_tensors("optimizer", optimizer_tensors(), checkpoint.optimizer()));
  for (const ShardPart part : kParts) {
    for (const TensorSpec& tensor :
         part == ShardPart::model ? model_tensors() : optimizer_tensors()) {
      const std::vector<float> expected = values_of(tensor, step);
      std::vector<float> found(expected.size());
      const auto out = std::as_writable_bytes(std::span(found));
      WEFT_TRY(part == ShardPart::model ? checkpoint.read_model(tensor.name, out)
                                        : checkpoint.read_optimizer(tensor.name, out));
      if (found != expected)
        return Status(Code::data, "tensor " + tensor.name + " has other values");
    }
  }
  return {};
}

}  // namespace weft::test

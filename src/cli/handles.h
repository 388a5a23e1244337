// Owning pointers to the objects of the library.
#pragma once

#include <memory>

#include "weft.h"

namespace weft::cli {

template <auto Free>
struct Freer {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};

using MeshPtr = std::unique_ptr<weft_mesh, Freer<weft_mesh_free>>;
using ModelPtr = std::unique_ptr<weft_model, Freer<weft_model_free>>;
using PlanPtr = std::unique_ptr<weft_plan, Freer<weft_plan_free>>;
using ProfilePtr = std::unique_ptr<weft_profile, Freer<weft_profile_free>>;
using ClusterPtr = std::unique_ptr<weft_cluster, Freer<weft_cluster_free>>;
using PredictionPtr = std::unique_ptr<weft_prediction, Freer<weft_prediction_free>>;
using ComparisonPtr = std::unique_ptr<weft_comparison, Freer<weft_comparison_free>>;
using RunPtr = std::unique_ptr<weft_run, Freer<weft_run_free>>;
using DataPtr = std::unique_ptr<weft_data, Freer<weft_data_free>>;
using GeneratorPtr = std::unique_ptr<weft_generator, Freer<weft_generator_free>>;
using CheckpointPtr = std::unique_ptr<weft_checkpoint, Freer<weft_checkpoint_free>>;
using TokenizerPtr = std::unique_ptr<weft_tokenizer, Freer<weft_tokenizer_free>>;
using TextStreamPtr = std::unique_ptr<weft_text_stream, Freer<weft_text_stream_free>>;
using TensorPtr = std::unique_ptr<weft_tensor, Freer<weft_tensor_unref>>;

// A configuration with its defaults: defaults(weft_run_config_init).
template <typename T>
T defaults(void (*init)(T*, size_t)) {
  T out;
  init(&out, sizeof out);
  return out;
}

// A struct that the library fills.
template <typename T>
T sized() {
  T out = {};
  out.size = sizeof out;
  return out;
}

constexpr int64_t kSecond = 1000000000;  // in nanoseconds
inline double seconds_of(int64_t ns) { return static_cast<double>(ns) / 1e9; }

// The address for a function that makes an object: make(..., Out(ptr), &err).
template <typename Ptr>
class Out {
 public:
  explicit Out(Ptr& to) : to_(to) {}
  ~Out() {
    if (made_) to_.reset(made_);
  }
  Out(const Out&) = delete;
  Out& operator=(const Out&) = delete;
  operator typename Ptr::pointer *() { return &made_; }

 private:
  Ptr& to_;
  typename Ptr::pointer made_ = nullptr;
};

}  // namespace weft::cli

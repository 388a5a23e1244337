#include <algorithm>
#include <new>

#include "api/handles.h"

using namespace weft;
using namespace weft::api;

weft_status weft_tensor_wrap(const weft_desc* desc, void* data, weft_release_cb release,
                             void* payload, weft_tensor** out, weft_error* err) {
  return guard(err, [&]() -> Status {
    WEFT_TRY(require(out, "out"));
    WEFT_TRY_ASSIGN(const Desc inner, to_desc(desc));
    WEFT_TRY(require(data, "data"));
    if (reinterpret_cast<uintptr_t>(data) % size_of(inner.dtype) != 0)
      return Status(Code::invalid,
                    cat("data is not aligned to its ", size_of(inner.dtype), "-byte elements"));
    auto tensor = std::make_unique<weft_tensor>();
    tensor->desc = inner;
    tensor->data = data;
    tensor->release = release;
    tensor->payload = payload;
    *out = tensor.release();
    return {};
  });
}

Result<std::unique_ptr<weft_tensor>> weft::api::new_tensor(const Desc& desc) {
  auto tensor = std::make_unique<weft_tensor>();
  tensor->desc = desc;
  tensor->own.reset(new (std::nothrow) std::byte[std::max<size_t>(desc.bytes(), 1)]());
  if (!tensor->own)
    return Status(Code::no_memory,
                  cat("no memory for a tensor of ", desc.bytes(), " bytes, ", desc.text()));
  tensor->data = tensor->own.get();
  return tensor;
}

weft_status weft_tensor_new(const weft_desc* desc, weft_tensor** out, weft_error* err) {
  return guard(err, [&]() -> Status {
    WEFT_TRY(require(out, "out"));
    WEFT_TRY_ASSIGN(const Desc inner, to_desc(desc));
    WEFT_TRY_ASSIGN(auto tensor, new_tensor(inner));
    *out = tensor.release();
    return {};
  });
}

weft_tensor* weft_tensor_ref(weft_tensor* tensor) {
  if (tensor) tensor->owners.fetch_add(1, std::memory_order_relaxed);
  return tensor;
}

void weft_tensor_unref(weft_tensor* tensor) {
  if (!tensor || tensor->owners.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  if (tensor->release) tensor->release(tensor->data, tensor->payload);
  delete tensor;
}

void* weft_tensor_data(const weft_tensor* tensor) { return tensor ? tensor->data : nullptr; }
weft_desc weft_tensor_desc(const weft_tensor* tensor) {
  return tensor ? from_desc(tensor->desc) : weft_desc{};
}

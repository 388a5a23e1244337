#include <algorithm>

#include "api/handles.h"
#include "kernels/bf16_product.h"
#include "kernels/gemm.h"

namespace weft::api {

static_assert(sizeof(weft_error) == 512);
#define WEFT_SAME_VALUE_(inner, outer) \
  static_assert(static_cast<int32_t>(Code::inner) == WEFT_##outer)
WEFT_SAME_VALUE_(ok, OK);
WEFT_SAME_VALUE_(invalid, EINVAL);
WEFT_SAME_VALUE_(no_memory, ENOMEM);
WEFT_SAME_VALUE_(state, ESTATE);
WEFT_SAME_VALUE_(again, EAGAIN);
WEFT_SAME_VALUE_(canceled, ECANCELED);
WEFT_SAME_VALUE_(timed_out, ETIMEDOUT);
WEFT_SAME_VALUE_(peer, EPEER);
WEFT_SAME_VALUE_(protocol, EPROTO);
WEFT_SAME_VALUE_(unsupported, ENOTSUP);
WEFT_SAME_VALUE_(not_found, ENOENT);
WEFT_SAME_VALUE_(user, EUSER);
WEFT_SAME_VALUE_(internal, EINTERNAL);
WEFT_SAME_VALUE_(io, EIO);
WEFT_SAME_VALUE_(data, EDATA);

weft_status report(const Status& status, weft_error* err) {
  if (status.ok()) return WEFT_OK;
  const weft_status code = static_cast<weft_status>(status.code());
  if (err && err->size >= offsetof(weft_error, text) + 2) {
    err->status = code;
    const size_t room = std::min<size_t>(err->size, sizeof *err) - offsetof(weft_error, text);
    const std::string_view text = status.text();
    constexpr std::string_view kMore = "...";
    const bool cut = text.size() >= room && room > kMore.size();
    const std::string_view head = head_of(text, room - 1 - (cut ? kMore.size() : 0));
    print_to(head, err->text, room);
    if (cut) print_to(kMore, err->text + head.size(), room - head.size());
  }
  return code;
}

Status check_reserved(const char* name, const char* field, uint32_t value) {
  return value ? Status(Code::invalid, cat(name, ".", field, " is ", value, ", expected 0; call ",
                                           name, "_init first"))
               : Status();
}

Status check_size(uint32_t size, size_t first, const char* name) {
  if (size >= first) return {};
  return Status(Code::invalid, cat(name, ".size is ", size, ", expected ", first,
                                   " or more; set it to sizeof(", name, ")"));
}

Status require(const void* pointer, const char* name) {
  return pointer ? Status() : Status(Code::invalid, cat(name, " is NULL"));
}

std::string kernels_text() { return cat(gemm_info().text(), "; bf16: ", kernels::bf16_info()); }

size_t print_to(std::string_view text, char* buffer, size_t size) {
  if (buffer && size > 0) {
    const size_t n = std::min(size - 1, text.size());
    std::memcpy(buffer, text.data(), n);
    buffer[n] = 0;
  }
  return text.size() + 1;
}

Result<Desc> to_desc(const weft_desc* desc) {
  WEFT_TRY(require(desc, "desc"));
  if (desc->dtype < WEFT_F32 || desc->dtype > WEFT_F64)
    return Status(Code::invalid, cat("dtype is ", uint32_t{desc->dtype},
                                     ", expected WEFT_F32, WEFT_I32 or WEFT_F64"));
  if (desc->n_dims > WEFT_MAX_DIMS)
    return Status(Code::invalid,
                  cat("n_dims is ", desc->n_dims, ", expected at most ", WEFT_MAX_DIMS));
  const std::span<const int64_t> dims(desc->dims, desc->n_dims);
  const DType dtype = static_cast<DType>(desc->dtype);
  WEFT_TRY(check_shape(dims, dtype));
  return Desc{dtype, Shape(dims)};
}

weft_desc from_desc(const Desc& desc) {
  weft_desc out = {};
  out.dtype = static_cast<weft_dtype>(desc.dtype);
  out.n_dims = static_cast<uint32_t>(desc.shape.rank);
  for (int i = 0; i < desc.shape.rank; ++i) out.dims[i] = desc.shape[i];
  return out;
}

}  // namespace weft::api

const char* weft_status_text(weft_status status) {
  switch (status) {
    case WEFT_OK: return "ok";
    case WEFT_EINVAL: return "invalid argument";
    case WEFT_ENOMEM: return "out of memory";
    case WEFT_ESTATE: return "wrong state";
    case WEFT_EAGAIN: return "try again";
    case WEFT_ECANCELED: return "canceled";
    case WEFT_ETIMEDOUT: return "timed out";
    case WEFT_EPEER: return "peer lost";
    case WEFT_EPROTO: return "protocol violated";
    case WEFT_ENOTSUP: return "not supported";
    case WEFT_ENOENT: return "not found";
    case WEFT_EUSER: return "callback failed";
    case WEFT_EINTERNAL: return "internal error";
    case WEFT_EIO: return "input or output failed";
    case WEFT_EDATA: return "bad data";
    default: return "unknown status";
  }
}

#define WEFT_TEXT_(x) #x
#define WEFT_VERSION_TEXT_(major, minor, patch) \
  WEFT_TEXT_(major) "." WEFT_TEXT_(minor) "." WEFT_TEXT_(patch)
const char* weft_version(void) {
  return WEFT_VERSION_TEXT_(WEFT_VERSION_MAJOR, WEFT_VERSION_MINOR, WEFT_VERSION_PATCH);
}

size_t weft_kernels(char* buffer, size_t size, uint32_t* slow) {
  size_t needed = 0;
  weft::api::guard(nullptr, [&] {
    if (slow) *slow = weft::gemm_info().slow;
    needed = weft::api::print_to(weft::api::kernels_text(), buffer, size);
  });
  return needed;
}

// What a step of a tokenizer makes of a text, and what all of them search in it. Steps that make
// several characters of one multiply, so that a small file and a short text could fill the memory.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/text.h"
#include "text/regex.h"

namespace weft {

class Growth {
 public:
  // `step` and `searches` are borrowed.
  Growth(std::string_view step, size_t text_bytes, SearchBudget& searches)
      : step_(step), text_bytes_(text_bytes), searches_(searches) {}

  // Counts bytes that the step has made of a part of the text.
  Status add(size_t bytes) {
    constexpr size_t kPerByte = 64, kMore = 4096;
    made_ += bytes;
    if (made_ <= kPerByte * text_bytes_ + kMore) return {};
    return Status(Code::data,
                  cat(step_, ": makes at least ", made_, " bytes of a text of ", text_bytes_,
                      ", expected at most ", kPerByte, " bytes of each byte and ", kMore, " more"));
  }

  // Of all steps.
  SearchBudget& searches() { return searches_; }

 private:
  std::string_view step_;
  size_t text_bytes_, made_ = 0;
  SearchBudget& searches_;
};

// Of each step, for one text.
template <typename Step>
std::vector<Growth> growth_of(const std::vector<Step>& steps, size_t text_bytes,
                              SearchBudget& searches) {
  std::vector<Growth> out;
  for (const Step& step : steps) out.emplace_back(step.where, text_bytes, searches);
  return out;
}

}  // namespace weft

#include "cli/train_what.h"

#include <algorithm>
#include <cmath>

#include "cli/json.h"
#include "cli/lists.h"
#include "cli/parser.h"

namespace weft::cli {

namespace {

constexpr const char *kLora = "lora",
                     *kForm = "expected lora:rank=R,alpha=A,dropout=P,targets=NAME,...";

// The value of a key among those of MODEL; null if there is none.
const std::string* find_key(const std::vector<std::string>& items, const std::string& item) {
  const std::string key = item.substr(0, item.find('=') + 1);
  const auto at = std::find_if(items.begin(), items.end(),
                               [&key](const std::string& each) { return each.starts_with(key); });
  return at == items.end() ? nullptr : &*at;
}

std::vector<std::string> keys_of(const std::string& model) {
  const size_t colon = model.find(':');
  return colon == model.npos ? std::vector<std::string>() : split(model.substr(colon + 1));
}

// A name without '=' is one more target.
std::string read_keys(const std::string& text, std::vector<std::string>& out) {
  bool in_targets = false;
  for (const std::string& item : split(text)) {
    const size_t equals = item.find('=');
    const std::string key = item.substr(0, equals);
    if (equals == item.npos && in_targets && !item.empty()) {
      out.back() += "/" + item;
      continue;
    }
    in_targets = key == "targets";
    double number = 0;
    const bool good =
        equals != item.npos && equals + 1 < item.size() &&
        (in_targets || ((key == "rank" || key == "alpha" || key == "dropout") &&
                        read_value(item.substr(equals + 1), &number) && std::isfinite(number)));
    if (!good) return "'" + item + "', " + kForm;
    const std::string made = "lora_" + (in_targets ? item : key + "=" + number_text(number));
    if (find_key(out, made)) return "'" + item + "', a second " + key;
    out.push_back(made);
  }
  return out.empty() ? std::string("'lora:', ") + kForm : "";
}

}  // namespace

std::string read_train_what(const std::string& text, TrainWhat& out) {
  if (text == "all") return "";
  const size_t colon = std::min(text.find(':'), text.size());
  out.adapters = text.substr(0, colon) == kLora;
  if (!out.adapters) {
    out.patterns = split(text);
    const bool good = !out.patterns.empty() &&
                      std::find(out.patterns.begin(), out.patterns.end(), "") == out.patterns.end();
    return good ? "" : "'" + text + "', expected all, lora, or patterns of names";
  }
  out.patterns = {"*.lora_A.weight", "*.lora_B.weight"};
  return colon == text.size() ? "" : read_keys(text.substr(colon + 1), out.keys);
}

std::string check_train_what(const std::string& text) {
  TrainWhat what;
  return read_train_what(text, what);
}

bool adds_adapters(const std::string& text) {
  TrainWhat what;
  return read_train_what(text, what).empty() && what.adapters;
}

bool has_adapters(const std::string& model) {
  const std::vector<std::string> keys = keys_of(model);
  return std::any_of(keys.begin(), keys.end(),
                     [](const std::string& key) { return key.starts_with("lora_"); });
}

Outcome add_adapters(const TrainWhat& what, std::string& model) {
  if (!what.adapters) return {};
  const std::vector<std::string> has = keys_of(model);
  if (!has_adapters(model)) {
    const std::vector<std::string> defaults = {"lora_rank=8"};
    bool first = has.empty();
    for (const std::string& key : what.keys.empty() ? defaults : what.keys) {
      model += (first ? ":" : ",") + key;
      first = false;
    }
    return {};
  }
  for (const std::string& key : what.keys)
    if (const std::string* const own = find_key(has, key); !own || *own != key)
      return {kBadInput, "--train: " + key + ", and MODEL has " + (own ? *own : "another default"),
              "'--train lora' trains the adapters of MODEL"};
  return {};
}

}  // namespace weft::cli

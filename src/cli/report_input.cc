#include "cli/report_input.h"

#include <map>
#include <sstream>

#include "cli/files.h"
#include "cli/read_json.h"

namespace weft::cli {

namespace {

using Json = nlohmann::json;

constexpr const char* kExpected =
    "expected a log of 'weft train --log', a plan of 'weft plan --save' or --json, or a trace of "
    "--trace";

bool has(const Json& object, const char* key) { return object.is_object() && object.contains(key); }

// The text of a file, or of a peer, need not be UTF-8.
std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void add(const std::string& path, const char* kind, Json data, std::vector<std::string>& out) {
  out.push_back(text_of({{"name", path}, {"kind", kind}, {"data", std::move(data)}}));
}

// A run that was killed may leave an incomplete last line.
Outcome read_log(const std::string& path, const std::string& text, std::vector<std::string>& out) {
  Json lines = Json::array();
  std::istringstream stream(text);
  size_t number = 0;
  for (std::string line; std::getline(stream, line);) {
    ++number;
    Json object = read_json(line);
    if (has(object, "event"))
      lines.push_back(std::move(object));
    else if (!stream.eof())
      return {kBadInput,
              path + ": line " + std::to_string(number) +
                  " is not an object with the key 'event', as 'weft train --log' writes",
              ""};
  }
  add(path, "log", std::move(lines), out);
  return {};
}

bool is_slice(const Json& event) {
  return has(event, "ph") && event["ph"] == "X" && has(event, "args") &&
         has(event["args"], "mode") && event["args"]["mode"] == "train" &&
         has(event["args"], "step") && event["args"]["step"].is_number_unsigned() &&
         has(event, "ts") && event["ts"].is_number() && has(event, "dur") &&
         event["dur"].is_number() && has(event, "tid") && event["tid"].is_number_unsigned() &&
         has(event, "name") && event["name"].is_string() && has(event, "cat") &&
         event["cat"].is_string();
}

bool is_predicted(const Json& trace) {
  for (const Json& event : trace["traceEvents"])
    if (has(event, "name") && event["name"] == "process_name" && has(event, "args") &&
        has(event["args"], "name"))
      return event["args"]["name"] == "weft, predicted";
  return false;
}

// The last training step with the most slices: the last step of a trace may be incomplete.
Outcome read_trace(const std::string& path, const Json& trace, std::vector<std::string>& out) {
  std::map<uint64_t, size_t> counts;
  if (trace["traceEvents"].is_array())
    for (const Json& event : trace["traceEvents"])
      if (is_slice(event)) ++counts[event["args"]["step"].get<uint64_t>()];
  if (counts.empty())
    return {kBadInput, path + ": the trace contains no action of a training step", ""};
  uint64_t step = 0;
  size_t most = 0;
  for (const auto& [number, count] : counts) {
    if (count < most) continue;
    most = count;
    step = number;
  }
  Json slices = Json::array();
  for (const Json& event : trace["traceEvents"])
    if (is_slice(event) && event["args"]["step"] == step)
      slices.push_back({event["tid"], event["ts"], event["dur"], event["cat"], event["name"]});
  add(path, "trace",
      {{"step", step}, {"predicted", is_predicted(trace)}, {"slices", std::move(slices)}}, out);
  return {};
}

}  // namespace

Outcome read_report_input(const std::string& path, std::vector<std::string>& out) {
  std::string text;
  CLI_TRY(read_text(path, kMostText, text));
  Json whole = read_json(text);
  if (has(whole, "traceEvents")) return read_trace(path, whole, out);
  if (has(whole, "rows") && has(whole, "model_hash")) {
    add(path, "plan", std::move(whole), out);
    return {};
  }
  if (has(whole, "links") && has(whole, "micro_batches") && !has(whole, "event")) {
    add(path, "prediction", std::move(whole), out);
    return {};
  }
  const std::string first = text.substr(0, text.find('\n'));
  if (has(read_json(first), "event")) return read_log(path, text, out);
  return {kBadInput, path + ": " + kExpected, ""};
}

}  // namespace weft::cli

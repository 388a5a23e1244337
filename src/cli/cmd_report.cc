// weft report
#include "cli/command.h"
#include "cli/console.h"
#include "cli/files.h"
#include "cli/report_input.h"

namespace weft::cli {

namespace {

constexpr const char* kStyle =
#include "cli/report_page.css"
    ;
constexpr const char* kCharts =
#include "cli/report_charts.js"
    ;
constexpr const char* kScript =
#include "cli/report_page.js"
    ;

struct Options {
  std::vector<std::string> files;
  std::string out = "report.html";
};

// No text of a file can end the element that contains it.
std::string inside_script(const std::string& json) {
  std::string out;
  for (const char c : json) {
    if (c == '<')
      out += "\\u003c";
    else
      out += c;
  }
  return out;
}

std::string page(const std::vector<std::string>& inputs) {
  std::string data;
  for (const std::string& input : inputs) {
    data += data.empty() ? "[\n" : ",\n";
    data += inside_script(input);
  }
  return std::string("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n") +
         "<meta name=\"viewport\" content=\"width=device-width\">\n<title>weft report</title>\n" +
         "<style>" + kStyle + "</style>\n</head>\n<body>\n" +
         "<noscript>This page draws its charts with a script that it contains.</noscript>\n" +
         "<main id=\"page\"></main>\n<script type=\"application/json\" id=\"data\">" + data +
         "\n]</script>\n<script>" + kCharts + kScript + "</script>\n</body>\n</html>\n";
}

Outcome report(const Options& o) {
  std::vector<std::string> inputs;
  for (const std::string& file : o.files) {
    CLI_TRY(check_outputs({{"--out", o.out}}, {{"FILE", file}}));
    CLI_TRY(read_report_input(file, inputs));
  }
  CLI_TRY(write_file(o.out, page(inputs)));
  print_line(o.out);
  return {};
}

}  // namespace

Action add_report(Parser& parser) {
  auto o = std::make_shared<Options>();
  parser
      .add("FILE", o->files,
           "Logs of 'weft train --log', plans of 'weft plan --save' or --json, and traces of "
           "--trace; in any order")
      .required()
      .type("");
  parser.add("-o,--out", o->out, "The HTML page to write").type("FILE");
  return [o] { return report(*o); };
}

}  // namespace weft::cli

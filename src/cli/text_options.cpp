#include "cli/text_options.h"

namespace tessera::cli {

std::vector<Option> text_options() {
  return {{.name = "format",
           .value = "FORMAT",
           .help = "What the files are; auto goes by their names.",
           .choices = {"auto", "text", "jsonl", "tsv", "csv"}},
          {.name = "text-field",
           .value = "NAME",
           .help = "Field of JSON lines that holds the text [text]."},
          {.name = "text-column",
           .value = "NAME",
           .help = "Column of TSV and CSV, by its name or its number from 0."}};
}

void apply_text_options(const Arguments& arguments, DataConfig& data) {
  if (const auto field = arguments.maybe("text-field")) data.text_field = *field;
  if (const auto column = arguments.maybe("text-column")) data.text_column = *column;
  if (const auto format = arguments.maybe("format")) {
    data.format = *format == "text"    ? DataFormat::kText
                  : *format == "jsonl" ? DataFormat::kJsonl
                  : *format == "tsv"   ? DataFormat::kTsv
                  : *format == "csv"   ? DataFormat::kCsv
                                       : DataFormat::kAuto;
  }
}

}  // namespace tessera::cli

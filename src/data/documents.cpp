#include "data/documents.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "data/byte_reader.h"
#include "data/utf8_check.h"

namespace tessera {
namespace {

using Json = nlohmann::json;
using Progress = std::function<void(std::uint64_t)>;

std::string at_line(const Path& path, std::uint64_t line) {
  return path.string() + ":" + std::to_string(line);
}

// Blocks of a file, checked, with progress.
class Blocks {
 public:
  Blocks(const Path& path, Utf8Check check, const Progress& progress)
      : reader_(open_text_bytes(path)), check_(std::move(check)), progress_(progress) {}
  Blocks(const Path& path, const Progress& progress)
      : Blocks(path, Utf8Check(path.string()), progress) {}

  bool next(std::string_view& block) {
    if (!reader_->next(block)) {
      check_.finish();
      return false;
    }
    check_.add(block);
    if (progress_) progress_(reader_->file_bytes_read());
    return true;
  }

 private:
  std::unique_ptr<ByteReader> reader_;
  Utf8Check check_;
  const Progress& progress_;
};

// The start of the last character, where the text may be cut.
std::size_t last_character(std::string_view text) {
  for (std::size_t back = 1; back <= std::min<std::size_t>(4, text.size()); ++back) {
    const std::size_t at = text.size() - back;
    if ((static_cast<unsigned char>(text[at]) & 0xC0) != 0x80) return at;
  }
  return text.size();  // no UTF-8: anywhere will do
}

// Sends each part one block late, so that the last one is known to be it.
void read_text(const SourceFile& file, const DocumentOptions& options, DocumentSink& sink,
               const Progress& progress) {
  Blocks blocks(
      file.path,
      Utf8Check(file.path.string(), options.any_bytes, std::string(options.names.byte_tokenizer)),
      progress);
  std::string_view block;
  std::string waiting;
  while (blocks.next(block)) {
    if (!waiting.empty()) {
      const std::size_t cut = last_character(waiting);
      sink.text(std::string_view(waiting).substr(0, cut), false);
      waiting.erase(0, cut);
    }
    waiting += block;
  }
  if (!waiting.empty()) sink.text(waiting, true);
}

// Lines without their ends ("\n" or "\r\n"); a byte order mark at the start is skipped.
class Lines {
 public:
  explicit Lines(Blocks blocks) : blocks_(std::move(blocks)) {}

  bool next(std::string_view& line) {
    carry_.clear();
    for (;;) {
      const std::size_t end = rest_.find('\n');
      if (end != std::string_view::npos) {
        line = take(rest_.substr(0, end));
        rest_.remove_prefix(end + 1);
        ++number_;
        return true;
      }
      carry_ += rest_;
      if (!blocks_.next(rest_)) break;
    }
    rest_ = {};
    if (carry_.empty()) return false;
    line = take({});
    ++number_;
    return true;
  }
  std::uint64_t number() const { return number_; }  // of the line that next() gave, from 1

 private:
  std::string_view take(std::string_view end) {
    std::string_view line = end;
    if (!carry_.empty()) {
      carry_ += end;
      line = carry_;
    }
    if (number_ == 0 && line.starts_with("\xEF\xBB\xBF")) line.remove_prefix(3);
    if (line.ends_with('\r')) line.remove_suffix(1);
    return line;
  }

  Blocks blocks_;
  std::string_view rest_;
  std::string carry_;
  std::uint64_t number_ = 0;
};

// ---- JSON lines

std::string field_names(const Json& object) {
  std::string names;
  int shown = 0;
  for (const auto& [key, value] : object.items()) {
    if (++shown > 8) return names + ", …";
    names += (names.empty() ? "" : ", ") + key;
  }
  return names.empty() ? "none" : names;
}

std::vector<std::uint32_t> masked_ids(const Json& object, const std::string& where) {
  const Json& ids = object["input_ids"];
  const auto mask = object.find("attention_mask");
  const auto fail = [&](const std::string& why, const std::string& what_to_do) {
    throw Error(ErrorKind::kData, "cannot use the token ids: " + why, where, what_to_do);
  };
  if (!ids.is_array()) fail("input_ids is not a list", "Give one list of ids a line.");
  const bool masked = mask != object.end() && !mask->is_null();
  if (masked && (!mask->is_array() || mask->size() != ids.size())) {
    fail("attention_mask has not the length of input_ids", "Give one 0 or 1 for each id.");
  }
  std::vector<std::uint32_t> result;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (masked) {
      const Json& keep = (*mask)[i];
      if (keep != 0 && keep != 1)
        fail("attention_mask holds something else than 0 and 1",
             "0 leaves a token out, 1 keeps it.");
      if (keep == 0) continue;
    }
    if (!ids[i].is_number_unsigned() || ids[i].get<std::uint64_t>() > 0x7FFFFFFF) {
      fail("input_ids holds " + ids[i].dump(-1, ' ', false, Json::error_handler_t::replace) +
               ", which is no token id",
           "Ids are whole numbers from 0.");
    }
    result.push_back(ids[i].get<std::uint32_t>());
  }
  return result;
}

void send_json_line(std::string_view line, const std::string& where, const DocumentOptions& options,
                    DocumentSink& sink) {
  Json object;
  try {
    object = Json::parse(line);
  } catch (const Json::exception& error) {
    // "[json.exception.parse_error.101] parse error at line 1, column 9: syntax error …"
    std::string why = error.what();
    why = why.substr(why.find("] ") == std::string::npos ? 0 : why.find("] ") + 2);
    throw Error(ErrorKind::kData, "not a line of JSON: " + why, where,
                "Repair or remove the line.");
  }
  if (!object.is_object()) {
    throw Error(ErrorKind::kData, "the line is not a JSON object", where,
                "Write lines such as {\"text\": \"…\"}.");
  }
  const auto text = object.find(options.text_field);
  if (text != object.end() && text->is_string()) {
    const auto& value = text->get_ref<const std::string&>();
    if (!value.empty()) sink.text(value, true);
  } else if (text != object.end() && options.text_field != "input_ids") {
    throw Error(
        ErrorKind::kData, "the field '" + options.text_field + "' is not a text", where,
        "Name the field that holds the text in " + std::string(options.names.text_field) + ".");
  } else if (object.contains("input_ids")) {
    const std::vector<std::uint32_t> ids = masked_ids(object, where);
    if (!ids.empty()) sink.ids(ids, where);
  } else {
    throw Error(
        ErrorKind::kData,
        "there is no field '" + options.text_field + "' (there are: " + field_names(object) + ")",
        where,
        "Name the field that holds the text in " + std::string(options.names.text_field) + ".");
  }
}

void read_json_lines(const SourceFile& file, const DocumentOptions& options, DocumentSink& sink,
                     const Progress& progress) {
  Lines lines(Blocks(file.path, progress));
  std::string_view line;
  while (lines.next(line)) {
    if (line.find_first_not_of(" \t") == std::string_view::npos) continue;
    send_json_line(line, at_line(file.path, lines.number()), options, sink);
  }
}

// ---- Tables

std::size_t find_column(const std::vector<std::string>& header, const std::string& wanted,
                        const std::string& where, const SettingNames& names) {
  const auto named = [&](std::string_view name) -> std::optional<std::size_t> {
    const auto it = std::find(header.begin(), header.end(), name);
    if (it == header.end()) return std::nullopt;
    return static_cast<std::size_t>(it - header.begin());
  };
  if (wanted.empty()) {
    for (const std::string_view usual : {"text", "sentence"}) {
      if (const auto column = named(usual)) return *column;
    }
    return 0;
  }
  if (const auto column = named(wanted)) return *column;
  std::size_t number = 0;
  const char* end = wanted.data() + wanted.size();
  const auto [stop, code] = std::from_chars(wanted.data(), end, number);
  if (code == std::errc{} && stop == end && number < header.size()) return number;
  std::string columns;
  for (const std::string& name : header) columns += (columns.empty() ? "" : ", ") + name;
  throw Error(
      ErrorKind::kData, "the table has no column '" + wanted + "' (it has: " + columns + ")", where,
      "Name one of them in " + std::string(names.text_column) + ", or give its number from 0.");
}

// The cell of one row of a table, by the header that came first.
class Table {
 public:
  Table(const SourceFile& file, const DocumentOptions& options, DocumentSink& sink)
      : file_(file), options_(options), sink_(sink) {}

  void row(const std::vector<std::string>& cells, std::uint64_t line) {
    if (!column_) {
      column_ = find_column(cells, options_.text_column, at_line(file_.path, line), options_.names);
      return;
    }
    if (*column_ >= cells.size()) {
      throw Error(ErrorKind::kData,
                  "the row has " + std::to_string(cells.size()) +
                      " columns, the text is in column " + std::to_string(*column_) + " (from 0)",
                  at_line(file_.path, line),
                  "Repair the row, or set " + std::string(options_.names.text_column) + ".");
    }
    if (!cells[*column_].empty()) sink_.text(cells[*column_], true);
  }

 private:
  const SourceFile& file_;
  const DocumentOptions& options_;
  DocumentSink& sink_;
  std::optional<std::size_t> column_;
};

void read_tsv(const SourceFile& file, const DocumentOptions& options, DocumentSink& sink,
              const Progress& progress) {
  Lines lines(Blocks(file.path, progress));
  Table table(file, options, sink);
  std::string_view line;
  std::vector<std::string> cells;
  while (lines.next(line)) {
    if (line.empty()) continue;
    cells.clear();
    for (;;) {
      const std::size_t tab = line.find('\t');
      cells.emplace_back(line.substr(0, tab));
      if (tab == std::string_view::npos) break;
      line.remove_prefix(tab + 1);
    }
    table.row(cells, lines.number());
  }
}

// Records as RFC 4180 has them; a quoted cell may hold line ends. Lines may end in "\n" alone.
class CsvParser {
 public:
  CsvParser(const SourceFile& file, const SettingNames& names, Table& table)
      : file_(file), names_(names), table_(table) {}

  void add(std::string_view block) {
    for (const char c : block) {
      if (c == '\n') ++line_;
      take(c);
    }
  }

  void finish() {
    if (state_ == State::kQuoted) fail("a quote is never closed", quote_line_);
    if (!cells_.empty() || !cell_.empty() || state_ != State::kStart) end_row(line_);
  }

 private:
  enum class State { kStart, kPlain, kQuoted, kQuoteInQuoted };

  void take(char c) {
    if (state_ == State::kQuoted) {
      if (c == '"') {
        state_ = State::kQuoteInQuoted;
      } else {
        cell_ += c;
      }
      return;
    }
    if (c == ',') {
      end_cell();
    } else if (c == '\n') {
      if (state_ == State::kPlain && cell_.ends_with('\r')) cell_.pop_back();
      const bool blank = cells_.empty() && cell_.empty() && state_ != State::kQuoteInQuoted;
      if (blank) {
        state_ = State::kStart;
        row_line_ = line_;
      } else {
        end_row(line_);
      }
    } else if (c == '"' && state_ != State::kPlain) {
      if (state_ == State::kStart) quote_line_ = line_;
      if (state_ == State::kQuoteInQuoted) cell_ += '"';
      state_ = State::kQuoted;
    } else if (state_ == State::kQuoteInQuoted) {
      if (c != '\r') fail("text follows a closing quote", line_);
    } else if (c == '"') {
      fail("a quote stands inside a cell that does not begin with one", line_);
    } else {
      cell_ += c;
      state_ = State::kPlain;
    }
  }

  void end_cell() {
    cells_.push_back(std::move(cell_));
    cell_.clear();
    state_ = State::kStart;
  }

  void end_row(std::uint64_t next_line) {
    end_cell();
    table_.row(cells_, row_line_);
    cells_.clear();
    row_line_ = next_line;
  }

  [[noreturn]] void fail(const std::string& why, std::uint64_t line) const {
    throw Error(ErrorKind::kData, "not a row of CSV: " + why, at_line(file_.path, line),
                "Quote cells as RFC 4180 has it, or set " + std::string(names_.format) +
                    "=tsv for text without quotes.");
  }

  const SourceFile& file_;
  const SettingNames& names_;
  Table& table_;
  State state_ = State::kStart;
  std::string cell_;
  std::vector<std::string> cells_;
  std::uint64_t line_ = 1, row_line_ = 1, quote_line_ = 1;
};

void read_csv(const SourceFile& file, const DocumentOptions& options, DocumentSink& sink,
              const Progress& progress) {
  Blocks blocks(file.path, progress);
  Table table(file, options, sink);
  CsvParser parser(file, options.names, table);
  std::string_view block;
  for (bool first = true; blocks.next(block); first = false) {
    if (first && block.starts_with("\xEF\xBB\xBF")) block.remove_prefix(3);
    parser.add(block);
  }
  parser.finish();
}

}  // namespace

void read_documents(const SourceFile& file, const DocumentOptions& options, DocumentSink& sink,
                    const Progress& read) {
  switch (file.format) {
    case DataFormat::kAuto:
    case DataFormat::kText: read_text(file, options, sink, read); break;
    case DataFormat::kJsonl: read_json_lines(file, options, sink, read); break;
    case DataFormat::kTsv: read_tsv(file, options, sink, read); break;
    case DataFormat::kCsv: read_csv(file, options, sink, read); break;
  }
}

}  // namespace tessera

#include "data/documents.h"

#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include <filesystem>

#include "base/error.h"
#include "base/temporary_directory.h"
#include "data/byte_reader.h"
#include "data/utf8_check.h"

namespace tessera {
namespace {

std::string gzip(std::string_view text) {
  std::string out(compressBound(text.size()) + 64, '\0');
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string zstd(std::string_view text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

// Text that does not compress to nothing and has characters of every length.
std::string long_text(std::size_t bytes) {
  std::string text;
  std::uint32_t state = 1;
  static constexpr const char* kPieces[] = {"a", "é", "€", "🙂", " ", "\n", "x", "word "};
  while (text.size() < bytes) {
    state = state * 1664525 + 1013904223;
    text += kPieces[state >> 29];
  }
  return text;
}

class Collect final : public DocumentSink {
 public:
  void text(std::string_view part, bool last) override {
    Utf8Check whole("part", false);
    if (check_parts) {
      whole.add(part);
      whole.finish();
    }
    open_ += part;
    ++parts;
    if (!last) return;
    documents.push_back(std::move(open_));
    open_.clear();
  }
  void ids(std::span<const std::uint32_t> ids, std::string_view where) override {
    documents.push_back("ids@" + std::string(where.substr(where.rfind('/') + 1)));
    for (const std::uint32_t id : ids) documents.back() += " " + std::to_string(id);
  }
  std::vector<std::string> documents;
  bool check_parts = true;
  int parts = 0;

 private:
  std::string open_;
};

class DocumentsTest : public ::testing::Test {
 protected:
  Path store(const std::string& name, std::string_view bytes) {
    auto file = files_->create(folder_.path() / name);
    file->write(bytes);
    file->close();
    return folder_.path() / name;
  }
  std::vector<std::string> read(const std::string& name, std::string_view bytes, DataFormat format,
                                const DocumentOptions& options = {}) {
    Collect sink;
    sink.check_parts = !options.any_bytes;
    read_documents({store(name, bytes), format, false}, options, sink);
    return sink.documents;
  }
  // The message, after a check that it is a data error which names `place`.
  std::string error(const std::string& name, std::string_view bytes, DataFormat format,
                    const std::string& place, const DocumentOptions& options = {}) {
    try {
      read(name, bytes, format, options);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kData) << error.what();
      EXPECT_EQ(error.where(), (folder_.path() / name).string() + place);
      EXPECT_FALSE(error.remedy().empty());
      return error.what();
    }
    ADD_FAILURE() << "no error for " << name;
    return {};
  }
  using Texts = std::vector<std::string>;
  TemporaryDirectory folder_;
  std::unique_ptr<FileSystem> files_ = make_posix_file_system();
};

TEST_F(DocumentsTest, PlainTextIsOneDocumentByteForByte) {
  EXPECT_EQ(read("a.txt", "\xEF\xBB\xBFone\r\ntwo\n", DataFormat::kText),
            Texts{"\xEF\xBB\xBFone\r\ntwo\n"});
  EXPECT_EQ(read("empty.txt", "", DataFormat::kText), Texts{});
}

TEST_F(DocumentsTest, CompressedTextIsTheSameAndComesInParts) {
  const std::string text = long_text(2'500'000);
  for (const auto& [name, bytes] :
       {std::pair{std::string("a.gz"), gzip(text)}, std::pair{std::string("b.zst"), zstd(text)},
        std::pair{std::string("without_name"), gzip(text)}}) {
    Collect sink;
    std::uint64_t read = 0;
    const Path path = store(name, bytes);
    read_documents({path, DataFormat::kText, false}, {}, sink,
                   [&](std::uint64_t at) { read = at; });
    ASSERT_EQ(sink.documents.size(), 1u);
    EXPECT_TRUE(sink.documents[0] == text) << name;
    EXPECT_GE(sink.parts, 2);
    EXPECT_EQ(read, bytes.size());
  }
}

TEST_F(DocumentsTest, SeveralArchivesInARowAreOneText) {
  EXPECT_EQ(read("a.gz", gzip("one ") + gzip("") + gzip("two"), DataFormat::kText),
            Texts{"one two"});
  EXPECT_EQ(read("a.zst", zstd("one ") + zstd("") + zstd("two"), DataFormat::kText),
            Texts{"one two"});
}

TEST_F(DocumentsTest, BrokenArchivesNameFileAndOffset) {
  const std::string text = long_text(300'000);
  for (const bool is_gzip : {true, false}) {
    const std::string good = is_gzip ? gzip(text) : zstd(text);
    const std::string name = is_gzip ? "a.gz" : "a.zst";
    for (const std::size_t size : {std::size_t{5}, good.size() / 2, good.size() - 1}) {
      try {
        read(name, std::string_view(good).substr(0, size), DataFormat::kText);
        ADD_FAILURE() << name << " " << size;
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::kData);
        EXPECT_NE(error.where().find(name + ", offset "), std::string::npos) << error.what();
        EXPECT_NE(error.reason().find("cut off"), std::string::npos) << error.what();
      }
    }
    if (is_gzip) {  // its checksum stands at the end; zstd's is an option of the writer
      std::string changed = good;
      changed[changed.size() - 6] ^= 1;
      EXPECT_THROW(read(name, changed, DataFormat::kText), Error);
    }
    EXPECT_THROW(read(name, good + "rubbish", DataFormat::kText), Error);
    error(name, "plain text", DataFormat::kText, ", offset 0");
  }
}

TEST_F(DocumentsTest, InvalidUtf8IsNamedByItsByte) {
  const struct {
    const char* bytes;
    std::uint64_t offset;
  } cases[] = {{"ab\xFF", 2},           {"abcdefghij\x80", 10}, {"\xC0\x80", 0},
               {"\xE0\x9F\xBF", 0},     {"\xED\xA0\x80", 0},    {"\xF0\x8F\xBF\xBF", 0},
               {"\xF4\x90\x80\x80", 0}, {"a\xE2\x82", 1},       {"a\xC3", 1},
               {"\xF5\x80\x80\x80", 0}, {"caf\xE9 au lait", 3}, {"ab\xE2\x82z", 2}};
  for (const auto& [bytes, offset] : cases) {
    error("a.txt", bytes, DataFormat::kText, ", byte offset " + std::to_string(offset));
    EXPECT_EQ(read("a.txt", bytes, DataFormat::kText, {.any_bytes = true}), Texts{bytes});
  }
  EXPECT_EQ(read("a.txt", "\xF4\x8F\xBF\xBF\xED\x9F\xBF\xEE\x80\x80", DataFormat::kText).size(),
            1u);
}

TEST_F(DocumentsTest, BinaryDataIsRefusedAlsoForBytes) {
  const std::string_view bytes("text and 12\0 more", 17);
  for (const bool any_bytes : {false, true}) {
    const std::string text =
        error("a.txt", bytes, DataFormat::kText, ", byte offset 11", {.any_bytes = any_bytes});
    EXPECT_NE(text.find("binary"), std::string::npos);
  }
}

TEST_F(DocumentsTest, JsonLinesGiveTextOrIds) {
  EXPECT_EQ(read("a.jsonl",
                 "{\"text\": \"one\\n\\u00e9\"}\r\n\n  \n{\"id\": 3, \"text\": \"two\"}\n"
                 "{\"text\": \"\"}\n{\"input_ids\": [5, 6]}\n"
                 "{\"input_ids\": [1, 2, 3, 0, 0], \"attention_mask\": [1, 1, 1, 0, 0]}\n"
                 "{\"input_ids\": [0, 7], \"attention_mask\": [0, 1]}\n"
                 "{\"input_ids\": [0], \"attention_mask\": [0]}\n{\"text\": \"last\"}",
                 DataFormat::kJsonl),
            (Texts{"one\né", "two", "ids@a.jsonl:6 5 6", "ids@a.jsonl:7 1 2 3", "ids@a.jsonl:8 7",
                   "last"}));
  EXPECT_EQ(read("b.jsonl", "{\"body\": \"x\", \"text\": 3}\n", DataFormat::kJsonl,
                 {.text_field = "body"}),
            Texts{"x"});
}

TEST_F(DocumentsTest, BrokenJsonLinesNameFileAndLine) {
  const auto message = [&](const std::string& line, const DocumentOptions& options = {}) {
    return error("a.jsonl", "{\"text\": \"good\"}\n\n" + line + "\n", DataFormat::kJsonl, ":3",
                 options);
  };
  EXPECT_NE(message("{\"text\": \"bro").find("JSON"), std::string::npos);
  EXPECT_NE(message("[1]").find("object"), std::string::npos);
  EXPECT_NE(message("{\"txt\": \"a\", \"id\": 1}").find("(there are: id, txt)"), std::string::npos);
  EXPECT_NE(message("{\"text\": 5}").find("not a text"), std::string::npos);
  EXPECT_NE(message("{\"input_ids\": [1, -2]}").find("-2"), std::string::npos);
  EXPECT_NE(message("{\"input_ids\": [1, 2.5]}").find("2.5"), std::string::npos);
  EXPECT_NE(message("{\"input_ids\": 5}").find("not a list"), std::string::npos);
  EXPECT_NE(message("{\"input_ids\": [1, 2], \"attention_mask\": [1]}").find("length"),
            std::string::npos);
  EXPECT_NE(message("{\"input_ids\": [1, 2], \"attention_mask\": [1, 7]}").find("0 and 1"),
            std::string::npos);
  EXPECT_NE(message("{\"input_ids\": [99999999999]}").find("99999999999"), std::string::npos);
}

TEST_F(DocumentsTest, LongLinesCrossBlocksOfAnArchive) {
  std::string lines;
  Texts expected;
  for (int i = 0; i < 7; ++i) {
    expected.push_back(
        std::string(700'000 + static_cast<std::size_t>(i), static_cast<char>('a' + i)));
    lines += "{\"text\": \"" + expected.back() + "\"}\n";
  }
  EXPECT_EQ(read("a.jsonl.gz", gzip(lines), DataFormat::kJsonl), expected);
}

TEST_F(DocumentsTest, TsvTakesAColumnAndKnowsNoQuotes) {
  const std::string table = "\xEF\xBB\xBFsentence\tlabel\n\"half a quote\t1\nplain \t0\r\n\n\t1\n";
  EXPECT_EQ(read("a.tsv", table, DataFormat::kTsv), (Texts{"\"half a quote", "plain "}));
  EXPECT_EQ(read("a.tsv", table, DataFormat::kTsv, {.text_column = "label"}),
            (Texts{"1", "0", "1"}));
  EXPECT_EQ(read("a.tsv", table, DataFormat::kTsv, {.text_column = "1"}), (Texts{"1", "0", "1"}));
  EXPECT_EQ(read("a.tsv", "a\ttext\n1\tx\n", DataFormat::kTsv), Texts{"x"});
  EXPECT_EQ(read("a.tsv", "a\tb\n1\tx\n", DataFormat::kTsv), Texts{"1"});
  const std::string unknown =
      error("a.tsv", table, DataFormat::kTsv, ":1", {.text_column = "body"});
  EXPECT_NE(unknown.find("(it has: sentence, label)"), std::string::npos) << unknown;
  error("a.tsv", table, DataFormat::kTsv, ":1", {.text_column = "2"});
  error("a.tsv", "a\tb\n1\tx\n\nalone\n", DataFormat::kTsv, ":4", {.text_column = "b"});
}

TEST_F(DocumentsTest, CsvFollowsRfc4180) {
  EXPECT_EQ(read("a.csv",
                 "\xEF\xBB\xBF\"id\",text\r\n1,plain\r\n2,\"a, "
                 "\"\"quoted\"\"\r\ncell\"\r\n\r\n3,\n4,\"\"\n"
                 "5,last",
                 DataFormat::kCsv),
            (Texts{"plain", "a, \"quoted\"\r\ncell", "last"}));
  EXPECT_EQ(read("a.csv", "a,b\n1,\"x\"\n", DataFormat::kCsv, {.text_column = "b"}), Texts{"x"});
  EXPECT_EQ(read("a.csv", "a,b\n1,\"x\"", DataFormat::kCsv, {.text_column = "1"}), Texts{"x"});
  error("a.csv", "text\nok\n\"never\nclosed\n", DataFormat::kCsv, ":3");
  error("a.csv", "text\n\"two\nlines\"\n\"a\"b\n", DataFormat::kCsv, ":4");
  error("a.csv", "text\nab\"c\n", DataFormat::kCsv, ":2");
  error("a.csv", "a,text\n1,\"x\ny\"\n2\n", DataFormat::kCsv, ":4");
}

TEST_F(DocumentsTest, MissingFileIsADataError) {
  try {
    open_text_bytes(folder_.path() / "none.txt");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kData);
  }
}

TEST(Utf8Check, FindsTheSameInAnyBlocks) {
  const std::string text = long_text(4000);
  for (std::size_t size = 1; size < 12; ++size) {
    Utf8Check check("file", false);
    for (std::size_t at = 0; at < text.size(); at += size) {
      check.add(std::string_view(text).substr(at, size));
    }
    check.finish();
    std::uint64_t count = 1000;
    std::size_t at = 0;
    while (true) {
      const std::string_view block = std::string_view(text).substr(at, size);
      const std::size_t here = skip_characters(block, count);
      at += here;
      if (here < block.size()) break;
    }
    EXPECT_EQ(count_characters(std::string_view(text).substr(0, at)), 1000u);
    EXPECT_NE(static_cast<unsigned char>(text[at]) & 0xC0, 0x80);
  }
}

}  // namespace
}  // namespace tessera

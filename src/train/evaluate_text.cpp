#include "train/evaluate_text.h"

#include <span>
#include <utility>

#include "base/error.h"
#include "base/machine.h"
#include "data/dataset.h"
#include "data/documents.h"
#include "data/source_files.h"

namespace tessera {

namespace {

bool is_space(char c) {
  return c == ' ' || c == '\n' || c == '\t' || c == '\r' || c == '\v' || c == '\f';
}

// Joins the parts of a document before it is used: only a whole text is encoded as a whole.
class WholeDocuments : public DocumentSink {
 public:
  void text(std::string_view part, bool last) final {
    open_ += part;
    if (!last) return;
    whole(open_);
    open_.clear();
  }

 protected:
  virtual void whole(const std::string& text) = 0;

 private:
  std::string open_;
};

class Encoder final : public WholeDocuments {
 public:
  Encoder(const Tokenizer& tokenizer, EvaluationText& result)
      : tokenizer_(tokenizer), threads_(machine_facts().usable_processors()), result_(result) {}

  void ids(std::span<const std::uint32_t> ids, std::string_view where) override {
    for (const std::uint32_t id : ids) {
      if (id >= static_cast<std::uint64_t>(tokenizer_.vocab_size())) {
        throw Error(ErrorKind::kData,
                    "id " + std::to_string(id) + " is outside the vocabulary of " +
                        std::to_string(tokenizer_.vocab_size()),
                    std::string(where));
      }
    }
    result_.documents.emplace_back(ids.begin(), ids.end());
    result_.counts_known = false;
  }

 private:
  void whole(const std::string& text) override {
    result_.bytes += text.size();
    result_.words += count_words(text);
    result_.documents.push_back(tokenizer_.encode(text, SpecialTokens::kAsText, threads_));
  }

  const Tokenizer& tokenizer_;
  int threads_;
  EvaluationText& result_;
};

class Collector final : public WholeDocuments {
 public:
  explicit Collector(std::vector<std::string>& documents) : documents_(documents) {}

  void ids(std::span<const std::uint32_t>, std::string_view where) override {
    throw Error(ErrorKind::kData, "this task needs text, not token ids", std::string(where));
  }

 private:
  void whole(const std::string& text) override { documents_.push_back(text); }

  std::vector<std::string>& documents_;
};

// The tokenizer is the model's, so that there is no other one to offer for text of any bytes.
SettingNames setting_names() {
  SettingNames names = kOptionNames;
  names.byte_tokenizer = {};
  return names;
}

std::vector<SourceFile> source_files(const EvaluationSource& source, Log& log) {
  std::vector<std::string> entries;
  for (const Path& path : source.paths) entries.push_back(path.string());
  return find_source_files(entries, source.format, log, setting_names());
}

DocumentOptions document_options(const EvaluationSource& source, bool any_bytes) {
  return {.text_field = source.text_field,
          .text_column = source.text_column,
          .any_bytes = any_bytes,
          .names = setting_names()};
}

// A token file is one document: where its documents begin is not in it. Its text is not either, so
// that words are not known.
void add_token_file(const Path& path, const Tokenizer& tokenizer, EvaluationText& result) {
  const TokenDataset dataset(path);
  if (dataset.tokenizer_hash() != tokenizer.hash()) {
    throw Error(ErrorKind::kData, "the tokens were made by another tokenizer than the model's",
                path.string(), "Evaluate on the text itself.");
  }
  std::vector<std::int64_t> ids(static_cast<std::size_t>(dataset.size()));
  dataset.read(0, dataset.size(), ids.data());
  result.documents.emplace_back(ids.begin(), ids.end());
  result.counts_known = false;
}

}  // namespace

std::int64_t EvaluationText::tokens() const {
  std::int64_t count = 0;
  for (const auto& document : documents) count += static_cast<std::int64_t>(document.size());
  return count;
}

std::uint64_t count_words(std::string_view text) {
  std::uint64_t count = 0;
  bool in_word = false;
  for (const char c : text) {
    if (c == '\n') ++count;
    if (!is_space(c) && !in_word) ++count;
    in_word = !is_space(c);
  }
  return count + (!text.empty() && text.back() != '\n' ? 1 : 0);
}

EvaluationText read_evaluation_text(const EvaluationSource& source, const Tokenizer& tokenizer,
                                    Log& log) {
  EvaluationText result;
  Encoder encoder(tokenizer, result);
  for (const SourceFile& file : source_files(source, log)) {
    if (file.tokens) {
      add_token_file(file.path, tokenizer, result);
      continue;
    }
    read_documents(file, document_options(source, tokenizer.kind() == "byte"), encoder);
  }
  bool any_target = false;
  for (const auto& document : result.documents) any_target = any_target || document.size() > 1;
  if (!any_target) {
    throw Error(ErrorKind::kData, "there is nothing to predict: no text has two tokens",
                source.paths.empty() ? std::string() : source.paths.front().string(),
                "Give more text.");
  }
  return result;
}

std::vector<std::string> read_plain_documents(const EvaluationSource& source, Log& log) {
  std::vector<std::string> documents;
  Collector collector(documents);
  for (const SourceFile& file : source_files(source, log)) {
    if (file.tokens) collector.ids({}, file.path.string());
    read_documents(file, document_options(source, false), collector);
  }
  return documents;
}

}  // namespace tessera

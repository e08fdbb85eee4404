// For tests: the small byte model of tests/reference/tiny_lm.py as a Hugging Face folder, and what
// transformers says of it.
#pragma once

#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/temporary_directory.h"
#include "tokenizer/byte_tokenizer.h"

namespace tessera {

inline Path reference_folder() { return Path(TESSERA_SOURCE_DIR) / "tests" / "reference"; }

inline nlohmann::json read_tiny_lm() {
  std::ifstream file(reference_folder() / "tiny_lm.json");
  return nlohmann::json::parse(file);
}

class TinyLmFolder {
 public:
  TinyLmFolder() {
    std::filesystem::copy_file(reference_folder() / "tiny_lm.safetensors",
                               path() / "model.safetensors");
    write("config.json", expected["config"].dump());
    make_byte_tokenizer(EndOfText::kAdded)->save(*files, path());
  }

  const Path& path() const { return folder_.path(); }
  Path write(const std::string& name, const std::string& text) const {
    const auto file = files->create(path() / name);
    file->write(std::string_view(text));
    file->close();
    return path() / name;
  }
  void remove(const std::string& name) const { std::filesystem::remove_all(path() / name); }

  std::unique_ptr<FileSystem> files = make_posix_file_system();
  nlohmann::json expected = read_tiny_lm();

 private:
  TemporaryDirectory folder_;
};

}  // namespace tessera

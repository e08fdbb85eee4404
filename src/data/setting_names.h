// How the caller's settings are spelled, so that an error tells a person what to change where they
// are: the keys of a config, or a command's options. Owns: both spellings.
#pragma once

#include <string_view>

namespace tessera {

// As a config has them. NAME=VALUE is right for keys and for options.
struct SettingNames {
  std::string_view train = "data.train", validation = "data.validation";
  std::string_view train_fraction = "data.train_fraction", truncate = "data.truncate";
  std::string_view format = "data.format";
  std::string_view text_field = "data.text_field", text_column = "data.text_column";
  std::string_view tokenizer = "data.tokenizer";
  std::string_view byte_tokenizer = "data.tokenizer=byte";  // takes any bytes; empty: no choice
  // What to do about tokens where text belongs.
  std::string_view instead_of_tokens = "Name it alone in data.train or data.validation.";
};

// As commands have them.
inline constexpr SettingNames kOptionNames{
    .train = "the text",
    .validation = "--validation",
    .train_fraction = "--train-fraction",
    .truncate = "--truncate",
    .format = "--format",
    .text_field = "--text-field",
    .text_column = "--text-column",
    .tokenizer = "--tokenizer",
    .byte_tokenizer = "--tokenizer=byte",
    .instead_of_tokens = "Give the text that it was made of."};

}  // namespace tessera

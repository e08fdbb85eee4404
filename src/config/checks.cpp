#include "config/checks.h"

#include <algorithm>
#include <charconv>
#include <vector>

#include "base/registry.h"
#include "config/config.h"

namespace tessera {
namespace {

long whole_number(std::string_view text) {
  long value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? value : -1;
}

std::string did_you_mean(std::string_view text, const std::vector<std::string_view>& candidates) {
  const std::string_view guess = nearest(text, candidates);
  return guess.empty() ? "" : "; did you mean '" + std::string(guess) + "'?";
}

}  // namespace

std::string check_device(std::string_view text) {
  if (text == "auto" || text == "cpu" || text == "cuda") return {};
  if (text.starts_with("cuda:") && whole_number(text.substr(5)) >= 0) return {};
  return "must be auto, cpu, cuda or cuda:N, not '" + std::string(text) + "'";
}

long bpe_vocabulary(std::string_view text) {
  return text.starts_with("bpe:") ? std::max(0L, whole_number(text.substr(4))) : 0;
}

std::string check_tokenizer(std::string_view text) {
  if (text.empty()) return "must be byte, char, a folder, hub:REPO or bpe:N";
  if (text == "hub:") return "names no repository; write hub:OWNER/NAME";
  if (!text.starts_with("bpe:")) return {};
  if (bpe_vocabulary(text) >= 257 && bpe_vocabulary(text) <= 1000000) return {};
  return "must be bpe:N with N from 257 (256 bytes and end-of-text) to 1000000, not '" +
         std::string(text) + "'";
}

std::string check_run_name(std::string_view text) {
  if (text == "." || text == "..") return "must be a name, not '" + std::string(text) + "'";
  if (text.find('/') != text.npos) {
    return "must be one name without '/'; run.dir says where the run lives";
  }
  const auto is_control = [](unsigned char c) { return c < 0x20 || c == 0x7f; };
  if (std::ranges::any_of(text, is_control))
    return "must not have line ends or other control characters";
  return text.size() > 200 ? "must be at most 200 bytes long" : "";
}

std::string check_number_format(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c |= 0x20;  // lower case, of letters
  for (const std::string_view name : {"fp8", "f8", "float8", "e4m3", "e5m2", "mxfp8", "nvfp8"}) {
    if (!lower.starts_with(name)) continue;
    return "'" + std::string(text) +
           "' cannot be used: 8-bit formats need a scaling recipe for each tensor (amax history, "
           "delayed or block scales) and matrix products that take the scales, and libtorch's C++ "
           "interface offers neither; use bf16";
  }
  return {};
}

std::string check_preset(std::string_view text) {
  if (text.empty() || find_model_preset(text) != nullptr) return {};
  std::string names;
  std::vector<std::string_view> candidates;
  for (const ModelPreset& preset : model_presets()) {
    names += (names.empty() ? "" : ", ") + std::string(preset.name);
    candidates.push_back(preset.name);
  }
  return "unknown preset '" + std::string(text) + "' (known: " + names + ")" +
         did_you_mean(text, candidates);
}

bool is_corpus_name(std::string_view text) { return text == "builtin"; }

bool is_hub_name(std::string_view text) { return text.starts_with("hub:"); }

bool is_tokenizer_name(std::string_view text) {
  return text == "byte" || text == "char" || is_hub_name(text) || text.starts_with("bpe:");
}

}  // namespace tessera

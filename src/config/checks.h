// Rules for texts that are more than a choice. Owns: devices, tokenizers, names, formats. Each
// returns why the text does not fit, without a final stop, or an empty text.
#pragma once

#include <string>
#include <string_view>

namespace tessera {

std::string check_device(std::string_view text);     // auto | cpu | cuda | cuda:N
std::string check_tokenizer(std::string_view text);  // byte | char | folder | hub:REPO | bpe:N
std::string check_run_name(std::string_view text);   // one name of a folder
// Refuses 8-bit formats with what they lack; says nothing about other texts.
std::string check_number_format(std::string_view text);
std::string check_preset(std::string_view text);  // empty or a name of model_presets()

// N of `bpe:N`; 0 where text is not of that form or N is no number.
long bpe_vocabulary(std::string_view text);

// Values of path fields that name no file.
bool is_corpus_name(std::string_view text);     // builtin
bool is_tokenizer_name(std::string_view text);  // byte, char, hub:…, bpe:…
bool is_hub_name(std::string_view text);        // hub:…

}  // namespace tessera

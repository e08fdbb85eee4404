// Which files a data setting means. Owns: files, folders, globs, lists; formats by name. Not:
// reading them (documents.h).
#pragma once

#include <string>
#include <vector>

#include "base/file_system.h"
#include "base/log.h"
#include "config/config.h"
#include "data/setting_names.h"

namespace tessera {

struct SourceFile {
  Path path;
  DataFormat format = DataFormat::kText;  // never kAuto
  bool tokens = false;                    // a token file (.tok): ready as it is
};

// The files of `entries` in their order; a folder stands for the files in it and below it, a glob
// for what it matches, both sorted by path and without hidden ones. With kAuto, files of a folder
// whose names tell no format are left out (the log says so), a file named itself is an error.
// Error{kData} for an entry that matches nothing, Error{kConfig} for a format that nothing tells
// and for a prepared folder, which holds no text.
std::vector<SourceFile> find_source_files(const std::vector<std::string>& entries,
                                          DataFormat format, Log& log,
                                          const SettingNames& names = {});

}  // namespace tessera

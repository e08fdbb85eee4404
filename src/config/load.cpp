#include "config/load.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "base/error.h"
#include "config/assemble.h"
#include "config/complete.h"
#include "config/convert.h"
#include "config/mistakes.h"
#include "config/utf8.h"
#include "config/yaml_tree.h"

namespace tessera {
namespace {

constexpr std::size_t kLargestFile = 1 << 20;
constexpr std::size_t kMostFiles = 64;

struct Layer {
  YamlNode root;
  Path folder;
};

std::optional<std::string> read_config_file(const Path& path, const Place& named_at,
                                            Mistakes& mistakes) {
  const auto fail = [&](const std::string& why) {
    mistakes.add(named_at, "", why);
    return std::nullopt;
  };
  const auto close = [](std::FILE* file) { std::fclose(file); };
  errno = 0;
  const std::unique_ptr<std::FILE, decltype(close)> file(std::fopen(path.c_str(), "rb"), close);
  if (file == nullptr) {
    return fail("cannot read '" + path.string() + "': " + std::strerror(errno));
  }
  std::string text(kLargestFile + 1, '\0');
  errno = 0;
  text.resize(std::fread(text.data(), 1, text.size(), file.get()));
  if (std::ferror(file.get()) != 0) {
    return fail("cannot read '" + path.string() + "': " + std::strerror(errno));
  }
  if (text.size() > kLargestFile) {
    return fail("'" + path.string() + "' is larger than 1 MiB; this is no config file");
  }
  return text;
}

// Reads a file after the files that it names under `defaults:`.
class FileLoader {
 public:
  FileLoader(const ConfigSource& source, Mistakes& mistakes)
      : source_(source), mistakes_(mistakes) {}

  // `named_at` is where the file is asked for. Layers are appended in order of precedence.
  void load(const Path& path, const Place& named_at) {
    std::error_code error;
    const Path canonical = std::filesystem::weakly_canonical(path, error);
    if (std::find(stack_.begin(), stack_.end(), canonical) != stack_.end()) {
      mistakes_.add(named_at, "defaults", "'" + path.string() + "' is based on itself",
                    "Remove one of the references.");
      return;
    }
    if (++files_ > kMostFiles) {
      mistakes_.add(named_at, "defaults", "more than 64 base files");
      return;
    }
    std::optional<YamlNode> root = read(path, named_at);
    if (!root) return;
    stack_.push_back(canonical);
    if (const YamlNode* bases = root->find("defaults"); bases != nullptr) {
      load_bases(*bases, path.parent_path());
    }
    stack_.pop_back();
    layers_.push_back({std::move(*root), path.parent_path()});
  }

  // A file that holds one group.
  void load_group(std::string_view group, const Path& path, const Place& named_at) {
    if (++files_ > kMostFiles) return;
    std::optional<YamlNode> root = read(path, named_at);
    if (!root) return;
    if (root->find(group) != nullptr && root->entries.size() == 1) {
      layers_.push_back({std::move(*root), path.parent_path()});
      return;
    }
    YamlNode wrapped;
    wrapped.kind = YamlNode::Kind::kMapping;
    wrapped.place = root->place;
    wrapped.entries.push_back({std::string(group), root->place, std::move(*root)});
    layers_.push_back({std::move(wrapped), path.parent_path()});
  }

  // Where names are looked up, from a file in `folder`.
  std::vector<Path> search_folders(const Path& folder) const {
    std::vector<Path> folders;
    if (source_.config_dir) folders.push_back(*source_.config_dir);
    folders.push_back(folder.empty() ? Path(".") : folder);
    folders.push_back(source_.shipped_dir);
    return folders;
  }

  const std::vector<Layer>& layers() const { return layers_; }

 private:
  std::optional<YamlNode> read(const Path& path, const Place& named_at) {
    const std::optional<std::string> text = read_config_file(path, named_at, mistakes_);
    if (!text) return std::nullopt;
    std::optional<YamlNode> root = parse_yaml(*text, path.string(), mistakes_);
    if (root && root->is_null()) root->kind = YamlNode::Kind::kMapping;
    if (root && root->kind != YamlNode::Kind::kMapping) {
      mistakes_.add(root->place, "", "a config is a mapping of groups, such as 'model:'",
                    "`tessera config cat quickstart` shows one.");
      return std::nullopt;
    }
    return root;
  }

  void load_bases(const YamlNode& bases, const Path& folder) {
    if (bases.is_null()) return;
    if (bases.kind == YamlNode::Kind::kSequence) {
      for (const YamlNode& item : bases.items) load_base(item, folder);
    } else {
      load_base(bases, folder);
    }
  }

  // `base.yaml`, `quickstart`, or `model: gpt2-xl` for a group.
  void load_base(const YamlNode& item, const Path& folder) {
    const bool group = item.kind == YamlNode::Kind::kMapping && item.entries.size() == 1;
    const YamlNode& name = group ? item.entries.front().value : item;
    const std::string group_name = group ? item.entries.front().key : "";
    if (name.kind != YamlNode::Kind::kScalar || name.is_null() || name.text.empty()) {
      mistakes_.add(item.place, "defaults", "must be a list of files",
                    "Write '- base.yaml', or '- model: gpt2-xl' for a group.");
      return;
    }
    if (group && !is_group(group_name)) {
      mistakes_.add(item.place, "defaults", "there is no group '" + group_name + "'");
      return;
    }
    const std::optional<ExpandedText> text = expand_environment(name, "defaults", mistakes_);
    if (!text) return;
    try {
      const Path path = locate(group ? group_name + "/" + text->text : text->text, folder);
      if (group) {
        load_group(group_name, path, name.place);
      } else {
        load(path, name.place);
      }
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kConfig) throw;
      mistakes_.add(name.place, "defaults", error.reason(), error.remedy());
    }
  }

  // Unlike a name on the command line, one in a file is never relative to the working folder.
  Path locate(const std::string& name, const Path& folder) const {
    const bool is_path = name.starts_with("./") || name.starts_with("../") ||
                         name.starts_with("~") || Path(name).is_absolute();
    if (is_path) return find_config(absolute_path(name, folder).string(), {});
    for (const Path& candidate : search_folders(folder)) {
      std::error_code error;
      for (const std::string& file : {name, name + ".yaml"}) {
        const Path path = candidate / file;
        if (!candidate.empty() && std::filesystem::exists(path, error) &&
            !std::filesystem::is_directory(path, error)) {
          return path.lexically_normal();
        }
      }
    }
    return find_config("./" + name, search_folders(folder));  // throws, with the nearest name
  }

  const ConfigSource& source_;
  Mistakes& mistakes_;
  std::vector<Layer> layers_;
  std::vector<Path> stack_;
  std::size_t files_ = 0;
};

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

// One `a.b=c`, split.
struct Override {
  std::string_view key, value;
  Place place;  // "override 'a.b=c'"
  bool reset = false;
  bool is_group_file() const {
    return !reset && key.find('.') == key.npos && !value.starts_with('{');
  }
};

std::optional<Override> split_override(const std::string& text, Mistakes& mistakes) {
  Override result;
  std::string shown = text.substr(0, 80);
  result.place.file = "override '" + shown + "'";
  if (!is_utf8(text)) {
    mistakes.add({"an override", 0, 0}, "", "is not UTF-8 text");
    return std::nullopt;
  }
  if (text.starts_with("~")) {
    result.reset = true;
    result.key = trimmed(std::string_view(text).substr(1));
    // Hydra also writes `~key=value`.
    result.key = trimmed(result.key.substr(0, result.key.find('=')));
    return result;
  }
  const std::size_t equals = text.find('=');
  if (text.starts_with("+")) {
    const std::string bare = text.substr(
        text.find_first_not_of('+') == text.npos ? text.size() : text.find_first_not_of('+'));
    mistakes.add(result.place, "", "there are no free keys to add",
                 "Every key exists with a default: write '" + bare + "' without '+'.");
    return std::nullopt;
  }
  if (equals == text.npos || equals == 0) {
    mistakes.add(result.place, "", "is not of the form key=value",
                 "Write for example optim.lr=3e-4; options begin with '--'.");
    return std::nullopt;
  }
  result.key = trimmed(std::string_view(text).substr(0, equals));
  result.value = trimmed(std::string_view(text).substr(equals + 1));
  return result;
}

// The value: lists, mappings and quoted texts as YAML writes them, everything else as it is.
std::optional<YamlNode> override_value(const Override& item, Mistakes& mistakes) {
  if (!item.value.empty() && std::string_view("[{'\"").find(item.value[0]) != item.value.npos) {
    return parse_yaml(item.value, item.place.file, mistakes, true);
  }
  YamlNode node;
  node.text = std::string(item.value);
  node.quoted = item.value.empty();
  node.place = item.place;
  return node;
}

void apply_override(const Override& item, Assembler& assembler, Mistakes& mistakes) {
  if (item.reset) return assembler.reset(item.key, item.place);
  const std::optional<YamlNode> value = override_value(item, mistakes);
  if (!value) return;
  if (item.key.find('.') == item.key.npos && is_group(item.key)) {
    assembler.apply_group(item.key, *value, Path());
  } else {
    assembler.apply_key(item.key, item.place, *value, Path());
  }
}

// `model=gpt2-xl`: the file model/gpt2-xl.yaml, or a path.
void load_group_file(const Override& item, const Path& config_folder, FileLoader& files,
                     Mistakes& mistakes) {
  const std::string value(item.value);
  try {
    const bool is_path = value.find('/') != value.npos || value.ends_with(".yaml");
    const std::string name = is_path ? absolute_path(value, Path()).string()
                                     : "./" + std::string(item.key) + "/" + value;
    std::vector<Path> folders = files.search_folders(config_folder);
    for (const Path& folder : folders) {
      const Path path = folder / std::string(item.key) / (value + ".yaml");
      std::error_code error;
      if (is_path || folder.empty() || !std::filesystem::is_regular_file(path, error)) continue;
      return files.load_group(item.key, path.lexically_normal(), item.place);
    }
    files.load_group(item.key, find_config(name, folders), item.place);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kConfig) throw;
    mistakes.add(item.place, item.key, error.reason(), error.remedy());
  }
}

}  // namespace

ResolvedConfig load_config(const ConfigSource& source) {
  std::error_code unknown;
  if (source.config_dir && !std::filesystem::is_directory(*source.config_dir, unknown)) {
    throw Error(ErrorKind::kUsage, "--config-dir is not a folder", source.config_dir->string());
  }
  Mistakes mistakes;
  FileLoader files(source, mistakes);
  std::vector<Path> folders;
  if (source.config_dir) folders.push_back(*source.config_dir);
  folders.push_back(source.shipped_dir);
  const Path path = find_config(source.config, folders);
  files.load(path, {path.string(), 0, 0});

  std::vector<Override> overrides;
  for (const std::string& text : source.overrides) {
    if (auto item = split_override(text, mistakes)) overrides.push_back(*item);
  }
  for (const Override& item : overrides) {
    if (item.is_group_file() && is_group(item.key)) {
      load_group_file(item, path.parent_path(), files, mistakes);
    }
  }
  Assembler assembler(mistakes);
  for (const Layer& layer : files.layers()) assembler.apply_file(layer.root, layer.folder);
  assembler.start_layer();
  for (const Override& item : overrides) {
    if (!(item.is_group_file() && is_group(item.key))) apply_override(item, assembler, mistakes);
  }
  ResolvedConfig resolved = assembler.result();
  complete(resolved, path.stem().string());
  // Contradictions between values of which some could not be read would mislead.
  if (mistakes.empty()) check(resolved, mistakes);
  mistakes.throw_if_any();
  return resolved;
}

Config config_from_yaml(std::string_view text, const std::string& file) {
  Mistakes mistakes;
  Assembler assembler(mistakes);
  std::optional<YamlNode> root = parse_yaml(text, file, mistakes);
  if (root && root->kind == YamlNode::Kind::kMapping) {
    assembler.apply_file(*root, Path());
  } else if (root) {
    mistakes.add(root->place, "", "a config is a mapping of groups");
  }
  ResolvedConfig resolved = assembler.result();
  complete(resolved, Path(file).stem().string());
  if (mistakes.empty()) check(resolved, mistakes);
  mistakes.throw_if_any();
  return resolved.config;
}

}  // namespace tessera

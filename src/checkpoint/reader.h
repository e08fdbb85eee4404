// Reads a checkpoint written at any world size. Owns: verification and assembling tensors from
// slices that lie in one or several files. Not: finding checkpoints (catalog.h), what the state
// means.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_system.h"
#include "formats/safetensors.h"

namespace tessera {

enum class Verify {
  kFull,       // every byte against its checksum; reads all files once
  kStructure,  // manifest, sizes and headers only
};

// Open checkpoints stay readable when retention removes their folder: all files are mapped. Safe to
// share between threads; move-only.
class CheckpointReader {
 public:
  // Error{kIo} where a file is missing or unreadable, Error{kCorrupt} that names file and place
  // where its content is not what was written, or where the format is newer than this program.
  explicit CheckpointReader(const Path& folder, Verify verify = Verify::kFull);
  ~CheckpointReader();
  CheckpointReader(CheckpointReader&&) noexcept;
  CheckpointReader& operator=(CheckpointReader&&) noexcept;

  const Path& path() const;
  std::int64_t step() const;
  int world_size() const;  // of the run that wrote it
  std::string_view state_json() const;
  std::string_view config_yaml() const;
  std::string_view info_json() const;

  std::vector<std::string> files()
      const;  // names of all files but slice files and the manifest, sorted
  bool has_file(std::string_view name) const;
  std::string_view file(std::string_view name) const;  // content; Error{kIo} when absent

  // Whole tensors, whatever files their slices lie in.
  std::vector<TensorSpec> tensors() const;  // sorted by name
  // Those that lie in files of this stem: "model" in model.safetensors and in
  // model-00001-of-00004.safetensors.
  std::vector<TensorSpec> tensors(std::string_view stem) const;
  const TensorSpec* find(std::string_view name) const;  // null: not here

  // Copies elements [begin, end) of the tensor, counted row-major, to `out`, whose size must be
  // exactly theirs. Error{kCorrupt} when the checkpoint has no such tensor, Error{kInternal} on a
  // wrong range or size.
  void read_range(std::string_view name, std::int64_t begin, std::int64_t end,
                  std::span<std::byte> out) const;
  void read(std::string_view name, std::span<std::byte> out) const;  // the whole tensor

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera

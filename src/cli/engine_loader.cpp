#include "cli/engine_loader.h"

#include <dlfcn.h>
#include <stdlib.h>

#include "base/error.h"
#include "cli/program.h"

namespace tessera::cli {
namespace {
constexpr const char* kLibrary = "libtessera_engine.so";
constexpr const char* kHint = "`tessera doctor` shows what is missing.";
}  // namespace

std::vector<Path> engine_candidates() {
  const Path folder = program_path().parent_path();
  return {folder / kLibrary, (folder / "../lib" / kLibrary).lexically_normal()};
}

// OpenMP's threads spin for a millisecond when they wait. Where anything else runs on the cores,
// each barrier then costs a scheduler's turn (measured: ten times slower). A few microseconds of
// spinning lose nothing on an idle machine.
void limit_spinning() {
  if (std::getenv("OMP_WAIT_POLICY") == nullptr)
    ::setenv("GOMP_SPINCOUNT", "5000", /*overwrite=*/0);
}

const EngineApi& load_engine() {
  limit_spinning();  // before the library is loaded: it reads the variable once
  std::error_code error;
  std::string looked;
  for (const Path& path : engine_candidates()) {
    looked += (looked.empty() ? "" : ", ") + path.string();
    if (!std::filesystem::exists(path, error)) continue;
    // Never closed: the engine's threads and static objects live to the end of the process.
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      const char* reason = dlerror();
      throw Error(ErrorKind::kInternal,
                  std::string("the engine cannot be loaded: ") +
                      (reason == nullptr ? "unknown reason" : reason),
                  path.string(), kHint);
    }
    void* symbol = dlsym(library, "tessera_engine");
    if (symbol == nullptr) {
      throw Error(ErrorKind::kInternal,
                  "the engine has no entry 'tessera_engine': it is damaged or of another version",
                  path.string(), kHint);
    }
    const EngineApi* api = reinterpret_cast<const EngineApi* (*)()>(symbol)();
    if (api == nullptr) {
      throw Error(ErrorKind::kInternal, "the engine did not start", path.string(), kHint);
    }
    return *api;
  }
  throw Error(ErrorKind::kInternal, "the engine is not there: looked for " + looked, {},
              std::string("Build it with `make build`. ") + kHint);
}

}  // namespace tessera::cli

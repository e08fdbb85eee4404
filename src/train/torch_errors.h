// Torch's exceptions as tessera::Error.
#pragma once

namespace tessera {

// Call in a catch block: rethrows the exception that is being handled, translated if it is torch's
// or the standard library's. Out of memory becomes kResource.
[[noreturn]] void rethrow_translated();

// Runs `work`, which may throw anything, so that only tessera::Error comes out.
template <class Work>
auto translate_errors(Work&& work) {
  try {
    return work();
  } catch (...) {
    rethrow_translated();
  }
}

}  // namespace tessera

#include "train/torch_errors.h"

#include <c10/util/Exception.h>

#include <new>
#include <string>

#include "base/error.h"

namespace tessera {
namespace {

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

void rethrow_translated() {
  try {
    throw;
  } catch (const Error&) {
    throw;
  } catch (const c10::OutOfMemoryError& error) {
    throw Error(ErrorKind::kResource,
                "out of memory: " + first_line(error.what_without_backtrace()));
  } catch (const c10::Error& error) {
    const std::string text = first_line(error.what_without_backtrace());
    const bool memory = text.find("allocate memory") != std::string::npos;
    throw Error(memory ? ErrorKind::kResource : ErrorKind::kInternal,
                memory ? "out of memory: " + text : "torch refused an operation: " + text);
  } catch (const std::bad_alloc&) {
    throw Error(ErrorKind::kResource, "out of memory: the system has no more for this process");
  } catch (const std::exception& error) {
    throw Error(ErrorKind::kInternal, std::string("unexpected: ") + error.what());
  }
}

}  // namespace tessera

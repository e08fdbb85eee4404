#include "cli/model_options.h"

#include "base/error.h"
#include "config/checks.h"

namespace tessera::cli {

OptionGroup device_options() {
  return {"Device",
          {{.name = "device",
            .value = "DEVICE",
            .help = "auto, cpu, cuda or cuda:N.",
            .preset = "auto"},
           {.name = "precision",
            .value = "FORMAT",
            .help = "Number format of compute.",
            .preset = "auto",
            .choices = {"auto", "f32", "bf16", "f16"}}}};
}

OptionGroup result_options() {
  OptionGroup group = logging_options();
  group.options.insert(group.options.begin(),
                       Option{.name = "json", .help = "The result as JSON on stdout."});
  return group;
}

std::string device_option(const Arguments& arguments) {
  const std::string device = arguments.text("device");
  const std::string reason = check_device(device);
  if (!reason.empty()) throw Error(ErrorKind::kUsage, "--device " + reason);
  return device;
}

}  // namespace tessera::cli

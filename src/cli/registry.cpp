#include "cli/registry.h"

namespace tessera::cli {

const Command& train_command();
const Command& launch_command();
const Command& evaluate_command();
const Command& generate_command();
const Command& plan_command();
const Command& config_command();
const Command& doctor_command();
const Command& prepare_command();
const Command& tokenizer_command();
const Command& completion_command();

namespace {
constexpr CommandFunction kCommands[] = {
    train_command,  launch_command, evaluate_command, generate_command,  plan_command,
    config_command, doctor_command, prepare_command,  tokenizer_command, completion_command,
};
}  // namespace

std::span<const CommandFunction> commands() { return kCommands; }

}  // namespace tessera::cli

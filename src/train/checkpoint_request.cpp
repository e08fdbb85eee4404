#include "train/checkpoint_request.h"

#include <unistd.h>

#include <array>
#include <chrono>
#include <numeric>
#include <utility>

#include "base/host_name.h"
#include "model/pretrained.h"
#include "train/model_state.h"

namespace tessera {
namespace {

std::string now_in_utc() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

}  // namespace

CheckpointRequest make_checkpoint_request(Session& session) {
  CheckpointRequest request;
  request.step = session.state.step;
  CheckpointSlices slices = checkpoint_slices(session.executor->units(), *session.optimizer);
  request.groups = std::move(slices.groups);
  request.copies = std::move(slices.copies);
  request.region_order.resize(session.executor->units().size());
  std::iota(request.region_order.begin(), request.region_order.end(), 0);  // as ClipAndStep goes
  request.state_json = to_json(session.state);
  request.config_yaml = session.plan.request.config_yaml;
  request.files.push_back(
      {"config.json",
       hugging_face_config(session.plan.shape, session.plan.end_of_text.value_or(-1))});
  for (TokenizerFile& file : session.plan.data.tokenizer->files()) {
    request.files.push_back({"tokenizer/" + file.name, std::move(file.content)});
  }
  request.info = {{"saved_at", now_in_utc()},
                  {"host", host_name()},
                  {"tessera", TESSERA_VERSION},
                  {"torch", session.state.layout.torch}};
  return request;
}

}  // namespace tessera

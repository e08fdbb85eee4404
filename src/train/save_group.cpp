#include "train/save_group.h"

#include <string>

namespace tessera {
namespace {

class RankSaveGroup final : public SaveGroup {
 public:
  RankSaveGroup(RankWatch& watch, int rank, int writers)
      : watch_(watch), rank_(rank), writers_(writers) {}

  int rank() const override { return rank_; }
  int writers() const override { return writers_; }
  void tell(std::string_view key, std::string_view text) override {
    watch_.tell(name_of(key), text);
  }
  std::string hear(std::string_view key) override { return watch_.hear(name_of(key)); }
  // What the store keeps of it is the key.
  void forget(std::string_view key) override { watch_.tell(name_of(key), ""); }

 private:
  static std::string name_of(std::string_view key) { return "save/" + std::string(key); }

  RankWatch& watch_;
  const int rank_, writers_;
};

}  // namespace

std::unique_ptr<SaveGroup> make_save_group(RankWatch& watch, int rank, int writers) {
  return std::make_unique<RankSaveGroup>(watch, rank, writers);
}

}  // namespace tessera

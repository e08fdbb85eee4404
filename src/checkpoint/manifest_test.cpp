#include "checkpoint/manifest.h"

#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "checkpoint/sealed_text.h"
#include "checkpoint/slice_file.h"

namespace tessera {
namespace {

const Path kPath = "dir/manifest.json";

Manifest example() {
  Manifest manifest;
  manifest.step = 40;
  manifest.world_size = 2;
  FileEntry model{"model.safetensors", FileClass::kSlices, 36, "aa", 8, {}};
  model.slices.push_back({"w", Dtype::kF32, {2, 3}, 1, 6, 8, "bb"});
  model.slices.push_back({"\"é\"", Dtype::kBF16, {4}, 0, 4, 28, "cc"});
  manifest.files = {{"info.json", FileClass::kSealed, 0, {}, 0, {}},
                    model,
                    {"tokenizer/vocab.json", FileClass::kPlain, 7, "dd", 0, {}}};
  return manifest;
}

std::string refusal(const std::string& text) {
  try {
    parse_manifest(text, kPath);
    return "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kCorrupt);
    EXPECT_EQ(error.where(), kPath.string());
    return error.reason();
  }
}

TEST(ManifestTest, RoundTrip) {
  const std::string text = manifest_text(example());
  const Manifest parsed = parse_manifest(text, kPath);
  EXPECT_EQ(parsed.step, 40);
  EXPECT_EQ(parsed.world_size, 2);
  ASSERT_EQ(parsed.files.size(), 3u);
  EXPECT_EQ(parsed.files[0].file_class, FileClass::kSealed);
  ASSERT_EQ(parsed.files[1].slices.size(), 2u);
  EXPECT_EQ(parsed.files[1].slices[1].name, "\"é\"");
  EXPECT_FALSE(parsed.files[1].slices[0].whole());
  EXPECT_TRUE(parsed.files[1].slices[1].whole());
  EXPECT_EQ(parsed.files[2].checksum, "dd");
  EXPECT_EQ(manifest_text(parsed), text);
}

TEST(ManifestTest, EveryFlippedBitBreaksTheSeal) {
  const std::string text = manifest_text(example());
  for (std::size_t bit = 0; bit < text.size() * 8; ++bit) {
    std::string flipped = text;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    ASSERT_NE(refusal(flipped).find("checksum differs"), std::string::npos) << bit;
  }
  for (std::size_t length = 0; length < text.size(); ++length)
    ASSERT_NE(refusal(text.substr(0, length)), "accepted");
}

// With a right seal, as another program might write it.
TEST(ManifestTest, WhatContradictsItselfIsRefused) {
  const auto broken = [](auto change) {
    Manifest manifest = example();
    change(manifest, manifest.files[1]);
    return refusal(manifest_text(manifest));
  };
  using M = Manifest;
  using F = FileEntry;
  EXPECT_EQ(broken([](M&, F&) {}), "accepted");
  EXPECT_NE(broken([](M&, F& f) { f.size = 40; }).find("do not cover"), std::string::npos);
  EXPECT_NE(broken([](M&, F& f) { f.size = 30; }).find("out of place"), std::string::npos);
  EXPECT_NE(broken([](M&, F& f) { f.size = 4; }).find("larger than the file"), std::string::npos);
  EXPECT_NE(broken([](M&, F& f) { f.slices[1].offset = 27; }).find("out of place"),
            std::string::npos);
  EXPECT_NE(broken([](M&, F& f) { f.slices[0].end = 7; }).find("range"), std::string::npos);
  EXPECT_NE(broken([](M&, F& f) { f.slices[0].begin = -1; }).find("natural"), std::string::npos);
  EXPECT_NE(broken([](M&, F& f) { f.slices[0].shape = {-1}; }).find("range"), std::string::npos);
  EXPECT_NE(broken([](M&, F& f) {
              f.slices[0].shape = {1L << 40, 1L << 40};
            }).find("range"),
            std::string::npos);
  EXPECT_NE(broken([](M&, F& f) { f.name = "../x"; }).find("not allowed"), std::string::npos);
  EXPECT_NE(broken([](M& m, F&) { m.world_size = 0; }).find("world size"), std::string::npos);
  for (const char* json :
       {"{}", "{\"format\": 1}", "{\"format\": \"other\"}",
        "{\"format\": \"tessera-checkpoint\", \"version\": 1, \"step\": 1, \"world_size\": 1}",
        "{\"format\": \"tessera-checkpoint\", \"version\": 1, \"step\": 1.5}"}) {
    EXPECT_NE(refusal(seal_json(std::string_view(json) == "{}" ? "{\"a\": 1}" : json)), "accepted")
        << json;
  }
  const std::string newer =
      refusal(seal_json("{\"format\": \"tessera-checkpoint\", \"version\": 2}"));
  EXPECT_NE(newer.find("version 2, this program reads up to 1"), std::string::npos);
}

TEST(ManifestTest, FileNamesStayInsideTheCheckpoint) {
  for (const char* name : {"a", "a/b.json", "a..b", "model.rank0"})
    EXPECT_TRUE(is_safe_file_name(name)) << name;
  for (const char* name : {"", "/a", "a/", "a//b", "..", "../a", "a/../b", ".a", "a/.b", "a\\b"}) {
    EXPECT_FALSE(is_safe_file_name(name)) << name;
  }
}

TEST(SliceFileTest, LiesByRegionAndCoversItsFileWhateverTheDtypes) {
  std::mt19937 random(2);
  const std::vector<std::byte> memory(1000);
  const Dtype dtypes[] = {Dtype::kF64, Dtype::kF32, Dtype::kBF16, Dtype::kU8};
  for (int round = 0; round < 200; ++round) {
    SliceGroup group{"model", {}};
    for (int i = 0; i < 8; ++i) {
      const std::int64_t count = random() % 4;  // also tensors without elements
      group.slices.push_back({"t" + std::to_string(i),
                              dtypes[random() % 4],
                              {count},
                              0,
                              count,
                              memory.data(),
                              static_cast<int>(random() % 3)});
    }
    const SliceFilePlan plan = plan_slice_file(group, {{2, 0}, {1, 1}, {0, 2}});
    Manifest manifest;
    manifest.files = {plan.entry};
    ASSERT_NO_THROW(parse_manifest(manifest_text(manifest), kPath));  // the cover is checked there
    for (std::size_t i = 1; i < plan.slices.size(); ++i) {
      const Slice &before = plan.slices[i - 1], &slice = plan.slices[i];
      const bool same_width = dtype_bytes(before.dtype) == dtype_bytes(slice.dtype);
      ASSERT_TRUE(!same_width || before.region >= slice.region);
    }
  }
}

}  // namespace
}  // namespace tessera

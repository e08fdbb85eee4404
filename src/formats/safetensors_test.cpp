#include "formats/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "base/error.h"
#include "base/temporary_directory.h"

namespace tessera {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

template <class T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

std::string container(std::string_view json, std::string_view data = {}) {
  const std::uint64_t length = json.size();
  std::string file(sizeof length, '\0');
  std::memcpy(file.data(), &length, sizeof length);
  return file.append(json).append(data);
}

// Written by Python's safetensors 0.8.0:
//   save({"a.bias": arange(3, float32), "b": array([[1, -2]], int64), 'c "q" é': array([True,
//   False, True]),
//         "empty": zeros((0, 4), float16), "s": array(2.5, float64), "h": array([1.5], float16)},
//        metadata={"format": "pt"})
std::string python_file() {
  const std::string json =
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"I64","shape":[1,2],"data_offsets":[0,16]},)"
      R"("s":{"dtype":"F64","shape":[],"data_offsets":[16,24]},"a.bias":{"dtype":"F32","shape":[3],)"
      R"("data_offsets":[24,36]},"empty":{"dtype":"F16","shape":[0,4],"data_offsets":[36,36]},)"
      R"("h":{"dtype":"F16","shape":[1],"data_offsets":[36,38]},"c \"q\" é":{"dtype":"BOOL","shape":[3],)"
      R"("data_offsets":[38,41]}} )";
  static constexpr char kData[] =
      "\x01\0\0\0\0\0\0\0\xfe\xff\xff\xff\xff\xff\xff\xff\0\0\0\0\0\0\x04@\0\0\0\0\0\0\x80?\0\0\0@"
      "\0>\x01\0\x01";
  return container(json, std::string_view(kData, sizeof kData - 1));
}

const std::vector<std::int64_t> kB = {1, -2};
const std::vector<double> kS = {2.5};
const std::vector<float> kBias = {0, 1, 2};
const std::vector<std::uint16_t> kH = {0x3e00};
const std::vector<std::uint8_t> kC = {1, 0, 1};

// The same tensors, in another order of dtypes than the file's.
std::vector<TensorData> python_tensors() {
  return {
      {{"a.bias", Dtype::kF32, {3}}, bytes_of(kBias)},  {{"b", Dtype::kI64, {1, 2}}, bytes_of(kB)},
      {{"c \"q\" é", Dtype::kBool, {3}}, bytes_of(kC)}, {{"empty", Dtype::kF16, {0, 4}}, {}},
      {{"s", Dtype::kF64, {}}, bytes_of(kS)},           {{"h", Dtype::kF16, {1}}, bytes_of(kH)}};
}

TEST(SafetensorsTest, ReadsWhatPythonWrote) {
  const TemporaryDirectory folder;
  const auto files = make_posix_file_system();
  write_file_atomically(*files, folder.path() / "p.safetensors", python_file());
  const SafetensorsFile file(folder.path() / "p.safetensors");
  EXPECT_EQ(file.metadata(), (SafetensorsMetadata{{"format", "pt"}}));
  ASSERT_EQ(file.tensors().size(), 6u);
  for (const TensorData& tensor : python_tensors()) {
    const TensorInfo* found = file.find(tensor.spec.name);
    ASSERT_NE(found, nullptr) << tensor.spec.name;
    EXPECT_EQ(found->dtype, tensor.spec.dtype);
    EXPECT_EQ(found->shape, tensor.spec.shape);
    const auto bytes = file.bytes(*found);
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), tensor.bytes.begin(), tensor.bytes.end()))
        << tensor.spec.name;
  }
  EXPECT_EQ(file.find("absent"), nullptr);
}

TEST(SafetensorsTest, WritesTheBytesThatPythonWrites) {
  const TemporaryDirectory folder;
  const auto files = make_posix_file_system();
  write_safetensors(*files, folder.path() / "p.safetensors", python_tensors());
  EXPECT_EQ(files->read(folder.path() / "p.safetensors"), python_file());
  EXPECT_EQ(files->list(folder.path()), std::vector<std::string>{"p.safetensors"});
}

TEST(SafetensorsTest, LayoutKeepsTheOrderAndAlignsWiderDtypesFirst) {
  const std::vector<TensorSpec> specs = {{"z", Dtype::kU8, {3}},
                                         {"y", Dtype::kF32, {1}},
                                         {"x", Dtype::kF32, {2}},
                                         {"w", Dtype::kF64, {1}}};
  const SafetensorsLayout layout = plan_safetensors(specs);
  const std::uint64_t start = layout.header.size();
  EXPECT_EQ(start % 8, 0u);
  EXPECT_EQ(layout.offsets, (std::vector<std::uint64_t>{start + 20, start + 8, start + 12, start}));
  EXPECT_EQ(layout.file_size, start + 23);
}

TEST(SafetensorsTest, RefusesNamesTwiceWhenWriting) {
  const std::vector<TensorSpec> twice = {{"a", Dtype::kF32, {1}}, {"a", Dtype::kF32, {1}}};
  EXPECT_THROW(plan_safetensors(twice), Error);
  const std::vector<TensorSpec> invalid = {{"\xff", Dtype::kF32, {1}}};
  EXPECT_THROW(plan_safetensors(invalid), Error);
  const std::vector<TensorSpec> huge = {
      {"a", Dtype::kF32, {std::int64_t{1} << 40, std::int64_t{1} << 40}}};
  EXPECT_THROW(plan_safetensors(huge), Error);
}

struct Malformed {
  const char* what;  // part of the message
  std::string file;
};

TEST(SafetensorsTest, NamesWhatIsWrongInAMalformedFile) {
  const auto tensor = [](const std::string& fields, const std::string& data = "12345678") {
    return container("{\"a\":{" + fields + "}}", data);
  };
  const std::string wide = R"("dtype":"F32","shape":[2],"data_offsets":[0,8])";
  ASSERT_EQ(parse_safetensors_header(bytes_of(tensor(wide)), "f").tensors.size(), 1u);
  const Malformed cases[] = {
      {"too few", "abc"},
      {"limit is 100000000", std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10)},
      {"the file has 10", std::string("\x40\0\0\0\0\0\0\0{}", 10)},
      {"not valid JSON", container("{\"a\":")},
      {"not valid JSON", container("{} x")},
      {"not valid JSON", container("{\"\xff\":1}")},
      {"not valid JSON", container("")},
      {"the top is an array", container("[]")},
      {"the top is a number", container("7")},
      {"unknown dtype 'F31'", tensor(R"("dtype":"F31","shape":[2],"data_offsets":[0,8])")},
      {"lacks", tensor(R"("dtype":"F32","shape":[2])")},
      {"lacks", tensor(R"("dtype":"F32","data_offsets":[0,8])")},
      {"lacks", tensor(R"("shape":[2],"data_offsets":[0,8])")},
      {"lacks", tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0])")},
      {"a number is not expected", tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,8,9])")},
      {"a negative number", tensor(R"("dtype":"F32","shape":[-2],"data_offsets":[0,8])")},
      {"a fraction", tensor(R"("dtype":"F32","shape":[2.0],"data_offsets":[0,8])")},
      {"a huge size",
       tensor(R"("dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,8])")},
      {"contradict",
       tensor(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8])")},
      {"contradict", tensor(R"("dtype":"F32","shape":[3],"data_offsets":[0,8])")},
      {"ends before", tensor(R"("dtype":"F32","shape":[2],"data_offsets":[8,0])")},
      {"would end at byte 16", tensor(R"("dtype":"F32","shape":[4],"data_offsets":[0,16])")},
      {"a hole before", tensor(R"("dtype":"F32","shape":[1],"data_offsets":[4,8])")},
      {"4 bytes after", tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0,4])")},
      {"an array is not expected", tensor(wide + R"(,"shape":[2])")},
      {"a string is not expected", tensor(wide + R"(,"dtype":"F32")")},
      {"a string is not expected", tensor(wide + R"(,"x":"F32")")},
      {"an object is not expected", tensor(wide + R"(,"x":{})")},
      {"null is not expected", container(R"({"a":null})")},
      {"twice", container("{\"a\":{" + wide + "},\"a\":{" +
                              R"("dtype":"F32","shape":[2],"data_offsets":[8,16]}})",
                          "1234567812345678")},
      {"overlaps", container("{\"a\":{" + wide + "},\"b\":{" +
                                 R"("dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
                             "123456781234")},
      {"__metadata__ twice", container(R"({"__metadata__":{},"__metadata__":{}})")},
      {"a number is not expected", container(R"({"__metadata__":{"a":1}})")},
      {"key 'a' twice", container(R"({"__metadata__":{"a":"1","a":"2"}})")},
  };
  for (const Malformed& item : cases) {
    try {
      parse_safetensors_header(bytes_of(item.file), "dir/file.safetensors");
      ADD_FAILURE() << "accepted: " << item.file;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kCorrupt);
      EXPECT_NE(error.reason().find(item.what), std::string::npos)
          << item.what << " is not in: " << error.what();
      EXPECT_EQ(error.where().find("dir/file.safetensors, byte "), 0u) << error.where();
    }
  }
}

TEST(SafetensorsTest, MutatedFilesNeverCrash) {
  const std::string good = python_file();
  std::mt19937 random(1);
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  int accepted = 0, refused = 0;
  for (int round = 0; round < 30000; ++round) {
    std::string file = good;
    for (std::size_t edits = 1 + below(3); edits > 0; --edits) {
      const std::size_t place = below(file.size() < 400 ? file.size() : 400);
      switch (below(5)) {
        case 0: file[place] = static_cast<char>(random()); break;
        case 1: file[place] = static_cast<char>(file[place] ^ (1 << below(8))); break;
        case 2: file.erase(place, 1 + below(20)); break;
        case 3: file.insert(place, file.substr(below(file.size()), 1 + below(20))); break;
        default: file[place] = "0123456789[]{}\",:-e. "[below(21)]; break;
      }
      if (file.size() < 8) file.resize(8);
    }
    if (below(2) == 0) {  // keep the length right, so that the JSON is reached
      const std::uint64_t length = std::min<std::uint64_t>(384, file.size() - 8);
      std::memcpy(file.data(), &length, sizeof length);
    }
    try {
      const SafetensorsHeader header = parse_safetensors_header(bytes_of(file), "f");
      std::uint64_t end = header.data_offset;
      for (const TensorInfo& tensor : header.tensors) end += tensor.end - tensor.begin;
      ASSERT_EQ(end, file.size());
      ++accepted;
    } catch (const Error& error) {
      ASSERT_EQ(error.kind(), ErrorKind::kCorrupt);
      ++refused;
    }
  }
  EXPECT_GT(accepted, 100);
  EXPECT_GT(refused, 10000);
}

TEST(SafetensorsTest, ShardsAreReadAsOneModel) {
  const TemporaryDirectory folder;
  const auto files = make_posix_file_system();
  const std::vector<float> values = {1, 2, 3, 4};
  const std::vector<TensorData> tensors = {{{"b", Dtype::kF32, {4}}, bytes_of(values)},
                                           {{"a", Dtype::kF32, {2, 2}}, bytes_of(values)},
                                           {{"c", Dtype::kF32, {4}}, bytes_of(values)}};
  EXPECT_EQ(write_safetensors_model(*files, folder.path(), tensors, 32),
            (std::vector<std::string>{"model-00001-of-00002.safetensors",
                                      "model-00002-of-00002.safetensors",
                                      "model.safetensors.index.json"}));
  const SafetensorsModel model(folder.path());
  EXPECT_EQ(model.names(), (std::vector<std::string>{"a", "b", "c"}));
  ASSERT_TRUE(model.find("a"));
  EXPECT_EQ(model.find("a")->info->shape, (std::vector<std::int64_t>{2, 2}));
  EXPECT_EQ(std::memcmp(model.find("c")->bytes.data(), values.data(), 16), 0);
  EXPECT_FALSE(model.find("d"));
  const auto index = files->read(folder.path() / "model.safetensors.index.json");
  EXPECT_NE(index.find("\"total_size\": 48"), std::string::npos);

  // A later single file replaces the index, and the other way round.
  write_safetensors_model(*files, folder.path(), std::span(tensors).first(1), 1000);
  EXPECT_EQ(SafetensorsModel(folder.path()).names(), std::vector<std::string>{"b"});
  EXPECT_FALSE(files->exists(folder.path() / "model.safetensors.index.json"));
  write_safetensors_model(*files, folder.path(), tensors, 32);
  EXPECT_EQ(SafetensorsModel(folder.path()).names().size(), 3u);
}

TEST(SafetensorsTest, AWrongIndexIsRefused) {
  const TemporaryDirectory folder;
  const auto files = make_posix_file_system();
  EXPECT_THROW(SafetensorsModel(folder.path()), Error);
  write_file_atomically(*files, folder.path() / "s", container("{}"));
  for (const char* index :
       {"", "[]", "{\"weight_map\":[]}", "{\"weight_map\":{}}", "{\"weight_map\":{\"a\":1}}",
        "{\"weight_map\":{\"a\":\"../s\"}}", "{\"weight_map\":{\"a\":\"..\"}}",
        "{\"weight_map\":{\"a\":\"s\"}}", "{\"weight_map\":{\"a\":\"\"}}"}) {
    write_file_atomically(*files, folder.path() / "model.safetensors.index.json", index);
    try {
      const SafetensorsModel model(folder.path());
      ADD_FAILURE() << index;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kCorrupt) << error.what();
    }
  }
}

TEST(SafetensorsTest, ReadsAModelOfHuggingFace) {
  const Path path = Path(TESSERA_SHARED_DATA) / "gpt2_tiny" / "tiny_random_gpt2.safetensors";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not here";
  const SafetensorsModel model(path);
  const auto weight = model.find("wte.weight");
  ASSERT_TRUE(weight);
  EXPECT_EQ(weight->info->shape, (std::vector<std::int64_t>{1000, 32}));
  EXPECT_EQ(weight->bytes.size(), 128000u);
}

}  // namespace
}  // namespace tessera

// The reader of the JSON header. Fed event by event, so that a hostile header cannot make a tree
// larger than itself.
#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "formats/safetensors.h"

namespace tessera {
namespace {

static_assert(std::endian::native == std::endian::little,
              "tensor data is little-endian and mapped as it is");

constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the limit of the reference implementation
constexpr std::uint64_t kLengthBytes = 8;

[[noreturn]] void corrupt(const Path& path, std::uint64_t offset, const std::string& reason) {
  throw Error(ErrorKind::kCorrupt, "cannot read the safetensors file: " + reason,
              path.string() + ", byte " + std::to_string(offset),
              "The file is damaged or of another format: fetch or write it again.");
}

std::string in_quotes(std::string_view name) {
  constexpr std::size_t kShown = 120;
  return "'" + std::string(name.substr(0, kShown)) + (name.size() > kShown ? "…'" : "'");
}

class HeaderHandler final : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderHandler(const Path& path, SafetensorsHeader& header) : path_(path), header_(header) {}

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a boolean"); }
  bool number_integer(number_integer_t) override { return unexpected("a negative number"); }
  bool number_float(number_float_t, const string_t&) override { return unexpected("a fraction"); }
  bool binary(binary_t&) override { return unexpected("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ == Place::kShape) {
      if (value > std::uint64_t{std::numeric_limits<std::int64_t>::max()})
        return unexpected("a huge size");
      tensor_.shape.push_back(static_cast<std::int64_t>(value));
    } else if (place_ == Place::kOffsets && offsets_ < 2) {
      (offsets_++ == 0 ? tensor_.begin : tensor_.end) = value;
    } else {
      return unexpected("a number");
    }
    return true;
  }

  bool string(string_t& value) override {
    if (place_ == Place::kMetadata) {
      if (!header_.metadata.emplace(key_, std::move(value)).second)
        fail("metadata key " + in_quotes(key_) + " twice");
    } else if (place_ == Place::kTensor && key_ == "dtype" && !has_dtype_) {
      const auto dtype = dtype_from_name(value);
      if (!dtype)
        fail("tensor " + in_quotes(tensor_.name) + " has the unknown dtype " + in_quotes(value));
      tensor_.dtype = *dtype;
      has_dtype_ = true;
    } else {
      return unexpected("a string");
    }
    return true;
  }

  bool start_object(std::size_t) override {
    if (place_ == Place::kStart) {
      place_ = Place::kRoot;
    } else if (place_ == Place::kRoot && key_ == "__metadata__") {
      if (has_metadata_) fail("__metadata__ twice");
      has_metadata_ = true;
      place_ = Place::kMetadata;
    } else if (place_ == Place::kRoot) {
      place_ = Place::kTensor;
      tensor_ = TensorInfo{};
      tensor_.name = key_;
      has_dtype_ = has_shape_ = false;
      offsets_ = 0;
    } else {
      return unexpected("an object");
    }
    return true;
  }

  bool end_object() override {
    if (place_ == Place::kTensor) add_tensor();
    place_ = place_ == Place::kRoot ? Place::kEnd : Place::kRoot;
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ == Place::kTensor && key_ == "shape" && !has_shape_) {
      has_shape_ = true;
      place_ = Place::kShape;
    } else if (place_ == Place::kTensor && key_ == "data_offsets" && offsets_ == 0) {
      place_ = Place::kOffsets;
    } else {
      return unexpected("an array");
    }
    return true;
  }

  bool end_array() override {
    place_ = Place::kTensor;
    return true;
  }

  bool key(string_t& name) override {
    key_ = std::move(name);
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    corrupt(path_, kLengthBytes + (position > 0 ? position - 1 : 0),
            "its header is not valid JSON");
  }

 private:
  enum class Place { kStart, kRoot, kMetadata, kTensor, kShape, kOffsets, kEnd };

  [[noreturn]] void fail(const std::string& reason) {
    corrupt(path_, kLengthBytes, "in its header, " + reason);
  }

  bool unexpected(const std::string& what) {
    if (place_ == Place::kStart) fail("the top is " + what + ", not an object");
    const bool in_tensor = place_ >= Place::kTensor;
    fail(what + " is not expected at key " + in_quotes(key_) +
         (in_tensor ? " of tensor " + in_quotes(tensor_.name) : ""));
  }

  void add_tensor() {
    const std::string name = in_quotes(tensor_.name);
    if (!has_dtype_ || !has_shape_ || offsets_ != 2)
      fail("tensor " + name + " lacks dtype, shape or data_offsets");
    if (tensor_.end < tensor_.begin) fail("tensor " + name + " ends before it begins");
    const auto count = element_count(tensor_.shape);
    const std::uint64_t width = dtype_bytes(tensor_.dtype);
    const std::uint64_t bytes = tensor_.end - tensor_.begin;
    if (!count || bytes % width != 0 || bytes / width != static_cast<std::uint64_t>(*count)) {
      fail("tensor " + name + " has " + std::to_string(bytes) +
           " bytes, which its dtype and shape contradict");
    }
    header_.tensors.push_back(std::move(tensor_));
  }

  const Path& path_;
  SafetensorsHeader& header_;
  Place place_ = Place::kStart;
  std::string key_;
  TensorInfo tensor_;
  bool has_metadata_ = false, has_dtype_ = false, has_shape_ = false;
  int offsets_ = 0;
};

void require_distinct_names(const SafetensorsHeader& header, const Path& path) {
  std::vector<std::string_view> names;
  names.reserve(header.tensors.size());
  for (const TensorInfo& tensor : header.tensors) names.push_back(tensor.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end())
    corrupt(path, kLengthBytes, "its header names tensor " + in_quotes(*twice) + " twice");
}

}  // namespace

SafetensorsHeader parse_safetensors_header(std::span<const std::byte> file, const Path& path) {
  std::uint64_t length = 0;
  if (file.size() < kLengthBytes) {
    corrupt(path, 0, "it has " + std::to_string(file.size()) + " bytes, too few for a header");
  }
  std::memcpy(&length, file.data(), kLengthBytes);
  if (length > kMaxHeaderBytes) {
    corrupt(
        path, 0,
        "its header would be " + std::to_string(length) + " bytes long, the limit is 100000000");
  }
  if (length > file.size() - kLengthBytes) {
    corrupt(path, 0,
            "its header would be " + std::to_string(length) + " bytes long, the file has " +
                std::to_string(file.size()));
  }

  SafetensorsHeader header;
  header.data_offset = kLengthBytes + length;
  const char* json = reinterpret_cast<const char*>(file.data() + kLengthBytes);
  HeaderHandler handler(path, header);
  nlohmann::json::sax_parse(json, json + length, &handler);
  require_distinct_names(header, path);

  std::stable_sort(header.tensors.begin(), header.tensors.end(),
                   [](const TensorInfo& a, const TensorInfo& b) {
                     return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
                   });
  const std::uint64_t data_bytes = file.size() - header.data_offset;
  std::uint64_t expected = 0;
  for (const TensorInfo& tensor : header.tensors) {
    // end first: offsets may be so large that their sum with data_offset would wrap around.
    if (tensor.end > data_bytes) {
      corrupt(path, file.size(),
              "tensor " + in_quotes(tensor.name) + " would end at byte " +
                  std::to_string(tensor.end) + " of the data, which has " +
                  std::to_string(data_bytes));
    }
    if (tensor.begin != expected) {
      corrupt(path, header.data_offset + tensor.begin,
              tensor.begin < expected
                  ? "tensor " + in_quotes(tensor.name) + " overlaps the one before"
                  : "there is a hole before tensor " + in_quotes(tensor.name));
    }
    expected = tensor.end;
  }
  if (expected != data_bytes) {
    corrupt(path, header.data_offset + expected,
            std::to_string(data_bytes - expected) + " bytes after the last tensor");
  }
  return header;
}

}  // namespace tessera

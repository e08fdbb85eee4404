#include "data/byte_reader.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"

namespace tessera {
namespace {

constexpr std::size_t kBlockBytes = std::size_t{1} << 20;
constexpr std::size_t kMappedBlockBytes = std::size_t{16} << 20;

[[noreturn]] void broken(const Path& path, std::uint64_t offset, std::string_view kind,
                         std::string_view why) {
  throw Error(ErrorKind::kData, "cannot decompress " + std::string(kind) + ": " + std::string(why),
              path.string() + ", offset " + std::to_string(offset), "Fetch the file again.");
}

class PlainReader final : public ByteReader {
 public:
  explicit PlainReader(MappedFile map) : map_(std::move(map)) {}
  bool next(std::string_view& block) override {
    block = map_.text().substr(at_, kMappedBlockBytes);
    at_ += block.size();
    return !block.empty();
  }
  std::uint64_t file_bytes_read() const override { return at_; }
  std::uint64_t file_bytes() const override { return map_.bytes().size(); }

 private:
  MappedFile map_;
  std::size_t at_ = 0;
};

class GzipReader final : public ByteReader {
 public:
  explicit GzipReader(MappedFile map) : map_(std::move(map)), out_(kBlockBytes) {
    // 16: gzip with its checksum, nothing else.
    if (inflateInit2(&stream_, 15 + 16) != Z_OK) {
      throw Error(ErrorKind::kResource, "zlib cannot start: out of memory");
    }
  }
  ~GzipReader() override { inflateEnd(&stream_); }
  GzipReader(const GzipReader&) = delete;
  GzipReader& operator=(const GzipReader&) = delete;

  bool next(std::string_view& block) override {
    const std::string_view text = map_.text();
    stream_.next_out = out_.data();
    stream_.avail_out = static_cast<uInt>(out_.size());
    while (stream_.avail_out > 0) {
      if (member_done_) {
        if (at_ == text.size()) break;
        inflateReset(&stream_);
        member_done_ = false;
      }
      const std::size_t some =
          std::min<std::size_t>(text.size() - at_, std::numeric_limits<uInt>::max());
      stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data() + at_));
      stream_.avail_in = static_cast<uInt>(some);
      const int code = inflate(&stream_, Z_NO_FLUSH);
      at_ += some - stream_.avail_in;
      if (code == Z_STREAM_END) {
        member_done_ = true;
      } else if (code == Z_BUF_ERROR ||
                 (code == Z_OK && stream_.avail_out > 0 && at_ == text.size())) {
        broken(map_.path(), at_, "gzip", "the file is cut off");
      } else if (code != Z_OK) {
        broken(map_.path(), at_, "gzip", stream_.msg != nullptr ? stream_.msg : "unknown data");
      }
    }
    block = {reinterpret_cast<const char*>(out_.data()), out_.size() - stream_.avail_out};
    return !block.empty();
  }
  std::uint64_t file_bytes_read() const override { return at_; }
  std::uint64_t file_bytes() const override { return map_.bytes().size(); }

 private:
  MappedFile map_;
  std::vector<Bytef> out_;
  z_stream stream_{};
  std::size_t at_ = 0;
  bool member_done_ = false;
};

class ZstdReader final : public ByteReader {
 public:
  explicit ZstdReader(MappedFile map)
      : map_(std::move(map)), out_(kBlockBytes), stream_(ZSTD_createDStream()) {
    if (stream_ == nullptr) throw Error(ErrorKind::kResource, "zstd cannot start: out of memory");
  }
  ~ZstdReader() override { ZSTD_freeDStream(stream_); }
  ZstdReader(const ZstdReader&) = delete;
  ZstdReader& operator=(const ZstdReader&) = delete;

  bool next(std::string_view& block) override {
    const std::string_view text = map_.text();
    ZSTD_inBuffer in{text.data(), text.size(), at_};
    ZSTD_outBuffer out{out_.data(), out_.size(), 0};
    while (out.pos < out.size) {
      if (in.pos == in.size && frame_done_) break;
      const std::size_t before_in = in.pos, before_out = out.pos;
      const std::size_t code = ZSTD_decompressStream(stream_, &out, &in);
      at_ = in.pos;
      if (ZSTD_isError(code)) broken(map_.path(), at_, "zstd", ZSTD_getErrorName(code));
      frame_done_ = code == 0;
      if (!frame_done_ && in.pos == before_in && out.pos == before_out) {
        broken(map_.path(), at_, "zstd", "the file is cut off");
      }
    }
    block = {out_.data(), out.pos};
    return !block.empty();
  }
  std::uint64_t file_bytes_read() const override { return at_; }
  std::uint64_t file_bytes() const override { return map_.bytes().size(); }

 private:
  MappedFile map_;
  std::vector<char> out_;
  ZSTD_DStream* stream_;
  std::size_t at_ = 0;
  bool frame_done_ = true;
};

MappedFile map_text(const Path& path) {
  try {
    return MappedFile(path);
  } catch (const Error& error) {
    throw Error(ErrorKind::kData, error.reason(), error.where(), error.remedy());
  }
}

}  // namespace

std::unique_ptr<ByteReader> open_text_bytes(const Path& path) {
  MappedFile map = map_text(path);
  const std::string_view text = map.text();
  const bool gzip = text.starts_with("\x1f\x8b"), zstd = text.starts_with("\x28\xb5\x2f\xfd");
  const std::string extension = path.extension().string();
  if (extension == ".gz" && !gzip) broken(path, 0, "gzip", "the file is not a gzip archive");
  if (extension == ".zst" && !zstd) broken(path, 0, "zstd", "the file is not a zstd archive");
  if (gzip) return std::make_unique<GzipReader>(std::move(map));
  if (zstd) return std::make_unique<ZstdReader>(std::move(map));
  return std::make_unique<PlainReader>(std::move(map));
}

}  // namespace tessera

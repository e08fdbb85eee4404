#include "parallel/shm_segment.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <new>
#include <optional>
#include <random>
#include <sstream>
#include <thread>

#include "base/error.h"
#include "store/store_client.h"

namespace tessera {
namespace {

static_assert(std::atomic<std::uint64_t>::is_always_lock_free &&
              std::atomic<std::uint32_t>::is_always_lock_free);

struct Header {
  std::uint64_t nonce = 0;  // tells this segment from whatever else an old number may lead to
  std::uint64_t bytes = 0;
};
constexpr std::size_t kHeaderBytes = 4096;
static_assert(sizeof(Header) <= kHeaderBytes);

constexpr const char* kRemedy =
    "Set parallel.transport=gloo, or start all ranks of this host as one user in one container.";

std::size_t control_bytes(int world_size) {
  const std::size_t bytes = kHeaderBytes + sizeof(ShmRank) * static_cast<std::size_t>(world_size);
  return (bytes + 4095) / 4096 * 4096;
}

std::size_t segment_bytes(int world_size) {
  return control_bytes(world_size) +
         ShmSegment::kSlotBytes * ShmRank::kSlots * static_cast<std::size_t>(world_size);
}

std::string where(const GroupPlace& place) { return place.describe("shm"); }

[[noreturn]] void fail_setup(const std::string& what, int code, const GroupPlace& place) {
  throw Error(ErrorKind::kConfig, "ranks cannot share memory: " + what + ": " + std::strerror(code),
              where(place), kRemedy);
}

struct ProcessStat {
  char state = 'X';
  std::uint64_t start_time = 0;
};

// Fields 3 and 22 of /proc/PID/stat (proc(5)); nothing where there is no such process. The name in
// field 2 may hold anything, so fields are counted from its closing parenthesis.
std::optional<ProcessStat> process_stat(std::int64_t process_id) {
  std::ifstream file("/proc/" + std::to_string(process_id) + "/stat");
  std::string text;
  if (!std::getline(file, text, '\0') && text.empty()) return std::nullopt;
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(text.substr(name_end + 1));
  ProcessStat stat;
  std::string skipped;
  fields >> stat.state;
  for (int field = 4; field < 22; ++field) fields >> skipped;
  fields >> stat.start_time;
  if (!fields) return std::nullopt;
  return stat;
}

std::uint64_t random_nonce() {
  std::random_device device;
  return static_cast<std::uint64_t>(device()) << 32 | device();
}

StoreClient connect(const GroupPlace& place) {
  return StoreClient({.host = place.store_host,
                      .port = place.store_port,
                      .prefix = place.key_prefix,
                      .connect_timeout = place.timeout});
}

void tell_refusal(StoreClient& store, const Error& reason) {
  try {
    store.set("shm/refused", reason.what());
  } catch (const Error&) {  // the store is gone too; the first reason is the one to tell
  }
}

}  // namespace

ShmSegment::ShmSegment(const GroupPlace& place)
    : rank_(place.rank), world_size_(place.world_size), bytes_(segment_bytes(place.world_size)) {
  const Clock::time_point deadline = Clock::now() + place.timeout;
  StoreClient store = connect(place);
  try {
    if (rank_ == 0) {
      create(place, store);
    } else {
      open(place, store);
    }
    self().process_id = getpid();
    const std::optional<ProcessStat> stat = process_stat(getpid());
    if (!stat) fail_setup("/proc does not show this process", ENOENT, place);
    self().start_time = stat->start_time;
    self().presence.store(ShmRank::Presence::kPresent, std::memory_order_release);
    await_ranks(place, store, deadline);
  } catch (const Error& error) {
    // The others need not wait for the whole timeout for a rank that cannot come.
    if (error.kind() == ErrorKind::kConfig) tell_refusal(store, error);
    if (memory_ != nullptr) munmap(memory_, bytes_);
    if (file_ >= 0) close(file_);
    throw;
  }
  close(file_);
  file_ = -1;
}

ShmSegment::~ShmSegment() {
  if (self().presence.load() == ShmRank::Presence::kPresent) {
    self().presence.store(ShmRank::Presence::kLeft, std::memory_order_release);
  }
  wake_others();
  munmap(memory_, bytes_);
}

void ShmSegment::create(const GroupPlace& place, StoreClient& store) {
  file_ = memfd_create("tessera", MFD_CLOEXEC);
  if (file_ < 0) fail_setup("memfd_create", errno, place);
  // Takes the memory now: later, a full machine would end the process by SIGBUS.
  if (const int code = posix_fallocate(file_, 0, static_cast<off_t>(bytes_)); code != 0) {
    fail_setup(std::to_string(bytes_ >> 20) + " MiB of shared memory", code, place);
  }
  map(file_, place);
  auto* header = new (memory_) Header;
  header->nonce = random_nonce();
  header->bytes = bytes_;
  for (int rank = 0; rank < world_size_; ++rank)
    new (&ranks_[static_cast<std::size_t>(rank)]) ShmRank;
  store.set("shm/segment", std::to_string(getpid()) + " " + std::to_string(file_) + " " +
                               std::to_string(header->nonce));
}

void ShmSegment::open(const GroupPlace& place, StoreClient& store) {
  const std::optional<std::string> found = store.wait("shm/segment", place.timeout);
  if (!found) {
    throw Error(ErrorKind::kComm, "rank 0 did not come to make shared memory", where(place),
                "Look at its own log; parallel.timeout is how long the others wait.");
  }
  std::istringstream words(*found);
  std::int64_t process_id = 0;
  int file = -1;
  std::uint64_t nonce = 0;
  words >> process_id >> file >> nonce;
  const std::string path = "/proc/" + std::to_string(process_id) + "/fd/" + std::to_string(file);
  file_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file_ < 0) fail_setup("opening " + path + " of rank 0", errno, place);
  struct stat status = {};
  // In another container the same number is another process: its file has another size or nonce.
  if (fstat(file_, &status) != 0 || static_cast<std::size_t>(status.st_size) != bytes_) {
    fail_setup(path + " is not the memory that rank 0 made", ESTALE, place);
  }
  map(file_, place);
  const auto* header = reinterpret_cast<const Header*>(memory_);
  if (header->nonce != nonce || header->bytes != bytes_) {
    fail_setup(path + " is not the memory that rank 0 made", ESTALE, place);
  }
}

void ShmSegment::map(int file, const GroupPlace& place) {
  void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file, 0);
  if (memory == MAP_FAILED) fail_setup("mapping it", errno, place);
  memory_ = static_cast<std::byte*>(memory);
  ranks_ = {reinterpret_cast<ShmRank*>(memory_ + kHeaderBytes),
            static_cast<std::size_t>(world_size_)};
}

void ShmSegment::await_ranks(const GroupPlace& place, StoreClient& store,
                             Clock::time_point deadline) {
  const auto missing = [&] {
    std::string names;
    for (int rank = 0; rank < world_size_; ++rank) {
      if (this->rank(rank).presence.load(std::memory_order_acquire) != ShmRank::Presence::kAbsent)
        continue;
      names += (names.empty() ? "" : ", ") + std::to_string(place.world_rank(rank));
    }
    return names;
  };
  auto pause = std::chrono::milliseconds(1);
  while (!missing().empty()) {
    if (const std::optional<std::string> reason = store.get("shm/refused")) {
      throw Error(ErrorKind::kComm, "another rank cannot share memory: " + *reason, where(place));
    }
    if (Clock::now() > deadline) {
      throw Error(ErrorKind::kComm,
                  "these ranks did not come within " + std::to_string(place.timeout.count()) +
                      " ms: " + missing(),
                  where(place), "Look at their own logs.");
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::milliseconds(50));
  }
}

std::byte* ShmSegment::slot(int rank, std::uint64_t chunk) const {
  const std::size_t index =
      static_cast<std::size_t>(rank) * ShmRank::kSlots + chunk % ShmRank::kSlots;
  return memory_ + control_bytes(world_size_) + index * kSlotBytes;
}

namespace {

long futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value,
           const timespec* limit) {
  return syscall(SYS_futex, &word, operation, value, limit, nullptr, 0);
}

void ring(ShmRank& rank) {
  rank.doorbell.fetch_add(1, std::memory_order_seq_cst);
  futex(rank.doorbell, FUTEX_WAKE, INT_MAX, nullptr);
}

}  // namespace

void ShmSegment::wake_others() const {
  std::atomic_thread_fence(std::memory_order_seq_cst);  // with the one in sleep()
  for (ShmRank& rank : ranks_) {
    if (&rank != &self() && rank.sleeping.load(std::memory_order_seq_cst) != 0) ring(rank);
  }
}

void ShmSegment::wake_self() const { ring(self()); }

void ShmSegment::wait_for_doorbell(std::uint32_t seen, std::chrono::milliseconds limit) const {
  const timespec time = {.tv_sec = limit.count() / 1000,
                         .tv_nsec = static_cast<long>(limit.count() % 1000) * 1'000'000};
  futex(self().doorbell, FUTEX_WAIT, seen, &time);
}

bool ShmSegment::process_has_ended(int rank) const {
  const ShmRank& other = this->rank(rank);
  const std::optional<ProcessStat> stat = process_stat(other.process_id);
  return !stat || stat->state == 'Z' || stat->state == 'X' || stat->start_time != other.start_time;
}

void ShmSegment::fail(int culprit) const {
  self().culprit.store(culprit, std::memory_order_relaxed);
  self().presence.store(ShmRank::Presence::kFailed, std::memory_order_release);
  wake_others();
}

}  // namespace tessera

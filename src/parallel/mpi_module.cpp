#include "parallel/mpi_module.h"

#include <mpi.h>

#include <cstdlib>
#include <mutex>
#include <string>

struct TesseraMpiGroup {
  MPI_Comm communicator = MPI_COMM_NULL;
};

struct TesseraMpiRequest {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Datatype part = MPI_DATATYPE_NULL;  // of an all_gather; freed with the request
};

namespace {

// MPI itself is one for each process: so is the lock by which threads take turns.
std::mutex& turn() {
  static std::mutex mutex;
  return mutex;
}

const char* failed(const std::string& what) {
  thread_local std::string text;
  text = what;
  return text.c_str();
}

const char* check(int code, const char* function) {
  if (code == MPI_SUCCESS) return nullptr;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  return failed(std::string(function) + ": " + std::string(text, static_cast<std::size_t>(length)));
}

MPI_Datatype mpi_type(TesseraMpiType type) {
  switch (type) {
    case kMpiFloat: return MPI_FLOAT;
    case kMpiDouble: return MPI_DOUBLE;
    case kMpiInt64: return MPI_INT64_T;
    case kMpiBytes: return MPI_BYTE;
  }
  return MPI_BYTE;
}

// Without this, mpirun takes an ended process for a failed one. A process that ends by _exit, after
// a failure, does not come here: it would wait for ranks that are gone.
void finalize() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized == 0) MPI_Finalize();
}

const char* start(int* world_rank, int* world_size) {
  const std::scoped_lock lock(turn());
  int started = 0;
  MPI_Initialized(&started);
  if (started == 0) {
    int provided = 0;
    if (const char* text =
            check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided),
                  "MPI_Init_thread")) {
      return text;
    }
    if (provided < MPI_THREAD_SERIALIZED) return failed("this MPI serves one thread only");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    std::atexit(finalize);
  }
  if (const char* text = check(MPI_Comm_rank(MPI_COMM_WORLD, world_rank), "MPI_Comm_rank")) {
    return text;
  }
  return check(MPI_Comm_size(MPI_COMM_WORLD, world_size), "MPI_Comm_size");
}

const char* open(const int* world_ranks, int count, int tag, TesseraMpiGroup** group) {
  const std::scoped_lock lock(turn());
  MPI_Group world = MPI_GROUP_NULL, chosen = MPI_GROUP_NULL;
  if (const char* text = check(MPI_Comm_group(MPI_COMM_WORLD, &world), "MPI_Comm_group"))
    return text;
  const char* text = check(MPI_Group_incl(world, count, world_ranks, &chosen), "MPI_Group_incl");
  MPI_Comm communicator = MPI_COMM_NULL;
  if (text == nullptr) {
    text = check(MPI_Comm_create_group(MPI_COMM_WORLD, chosen, tag, &communicator),
                 "MPI_Comm_create_group");
    MPI_Group_free(&chosen);
  }
  MPI_Group_free(&world);
  if (text != nullptr) return text;
  MPI_Comm_set_errhandler(communicator, MPI_ERRORS_RETURN);
  *group = new TesseraMpiGroup{communicator};
  return nullptr;
}

const char* close(TesseraMpiGroup* group) {
  const std::scoped_lock lock(turn());
  const char* text = check(MPI_Comm_free(&group->communicator), "MPI_Comm_free");
  delete group;
  return text;
}

// Where a rank's part lies is a matter of the receiving type's extent, so that a chunk of each part
// can be gathered into a whole that is longer.
const char* all_gather(MPI_Comm communicator, const TesseraMpiCall& call,
                       TesseraMpiRequest& request) {
  MPI_Datatype part = MPI_DATATYPE_NULL;
  if (const char* text =
          check(MPI_Type_contiguous(call.count, MPI_BYTE, &part), "MPI_Type_contiguous")) {
    return text;
  }
  const char* text =
      check(MPI_Type_create_resized(part, 0, static_cast<MPI_Aint>(call.stride), &request.part),
            "MPI_Type_create_resized");
  MPI_Type_free(&part);
  if (text != nullptr) return text;
  if ((text = check(MPI_Type_commit(&request.part), "MPI_Type_commit")) != nullptr) return text;
  return check(MPI_Iallgather(call.input, call.count, MPI_BYTE, call.output, 1, request.part,
                              communicator, &request.request),
               "MPI_Iallgather");
}

const char* begin(TesseraMpiGroup* group, const TesseraMpiCall* call, TesseraMpiRequest** result) {
  const std::scoped_lock lock(turn());
  auto* request = new TesseraMpiRequest;
  const MPI_Datatype type = mpi_type(call->type);
  const MPI_Op operation = call->max ? MPI_MAX : MPI_SUM;
  MPI_Comm communicator = group->communicator;
  const char* text = nullptr;
  switch (call->verb) {
    case kMpiAllReduce:
      text = check(MPI_Iallreduce(MPI_IN_PLACE, call->output, call->count, type, operation,
                                  communicator, &request->request),
                   "MPI_Iallreduce");
      break;
    case kMpiReduceScatter:
      text = check(MPI_Ireduce_scatter_block(call->input, call->output, call->count, type,
                                             operation, communicator, &request->request),
                   "MPI_Ireduce_scatter_block");
      break;
    case kMpiAllGather: text = all_gather(communicator, *call, *request); break;
    case kMpiBroadcast:
      text = check(MPI_Ibcast(call->output, call->count, MPI_BYTE, call->root, communicator,
                              &request->request),
                   "MPI_Ibcast");
      break;
    case kMpiBarrier:
      text = check(MPI_Ibarrier(communicator, &request->request), "MPI_Ibarrier");
      break;
  }
  if (text != nullptr) {
    delete request;
    return text;
  }
  *result = request;
  return nullptr;
}

const char* test(TesseraMpiRequest* request, bool* done) {
  const std::scoped_lock lock(turn());
  int flag = 0;
  if (const char* text = check(MPI_Test(&request->request, &flag, MPI_STATUS_IGNORE), "MPI_Test")) {
    return text;
  }
  *done = flag != 0;
  if (flag != 0) {
    if (request->part != MPI_DATATYPE_NULL) MPI_Type_free(&request->part);
    delete request;
  }
  return nullptr;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const TesseraMpi* tessera_mpi() {
  static const TesseraMpi functions = {start, open, close, begin, test};
  return &functions;
}

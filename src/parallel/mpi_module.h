// The door of libtessera_mpi.so, a module that is loaded when parallel.transport=mpi is asked for:
// neither build/tessera nor the engine links MPI, which not every machine has. Owns: the C
// interface. Not: tensors, threads, time limits (mpi_communicator.cpp).
//
// Every function returns nothing or a text that says what failed; the text lives until the thread's
// next call. Calls of several threads take turns inside.
#pragma once

#include <cstdint>

extern "C" {

struct TesseraMpiGroup;    // ranks that talk
struct TesseraMpiRequest;  // an operation under way

enum TesseraMpiVerb { kMpiAllReduce, kMpiAllGather, kMpiReduceScatter, kMpiBroadcast, kMpiBarrier };
enum TesseraMpiType { kMpiFloat, kMpiDouble, kMpiInt64, kMpiBytes };

struct TesseraMpiCall {
  TesseraMpiVerb verb;
  TesseraMpiType type;
  bool max;           // the greatest instead of the sum
  int root;           // of a broadcast
  const void* input;  // of an all_reduce and a broadcast: not read, `output` is both
  void* output;
  std::int32_t count;   // elements of one rank: MPI counts by int
  std::int64_t stride;  // of an all_gather: bytes between the parts of two ranks in output
};

struct TesseraMpi {
  // Starts MPI where it has not been started, to be ended at the process's normal exit; this
  // process's place among those that mpirun started.
  const char* (*start)(int* world_rank, int* world_size);
  // Called by the ranks of the group alone, all of them, with the same numbers.
  const char* (*open)(const int* world_ranks, int count, int tag, TesseraMpiGroup** group);
  const char* (*close)(TesseraMpiGroup* group);
  // The buffers must stay until `done`; MPI goes on only inside of test().
  const char* (*begin)(TesseraMpiGroup* group, const TesseraMpiCall* call,
                       TesseraMpiRequest** request);
  const char* (*test)(TesseraMpiRequest* request, bool* done);  // done: the request is freed
};

// The module's only symbol.
const TesseraMpi* tessera_mpi();
using TesseraMpiEntry = const TesseraMpi* (*)();
}

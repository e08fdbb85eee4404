// The part of the table in fields.cpp that says how work is spread over ranks and in which number
// formats: groups parallel and precision. Included by fields.cpp alone.
//
// Resume: what changes the order of a sum (of gradients over ranks, of a norm over shards) warns;
// what changes only when something is fetched, kept or computed again gives the same bits and is
// free.
#pragma once

#include "config/checks.h"
#include "config/field_row.h"

namespace tessera {

// Names in the order of the enums of config.h.
inline constexpr std::string_view kStrategies[] = {
    "auto", "none", "ddp", "full_shard", "shard_grad_op", "hybrid_shard", "hybrid_shard_zero2"};
inline constexpr Synonym kStrategySynonyms[] = {{"fsdp", "full_shard"},
                                                {"zero3", "full_shard"},
                                                {"zero2", "shard_grad_op"},
                                                {"mics", "hybrid_shard"},
                                                {"no_shard", "ddp"},
                                                {"FULL_SHARD", "full_shard"},
                                                {"SHARD_GRAD_OP", "shard_grad_op"},
                                                {"NO_SHARD", "ddp"},
                                                {"HYBRID_SHARD", "hybrid_shard"},
                                                {"_HYBRID_SHARD_ZERO2", "hybrid_shard_zero2"}};
inline constexpr std::string_view kTransports[] = {"auto", "gloo", "shm", "mpi", "nccl"};
inline constexpr std::string_view kAutoBools[] = {"auto", "true", "false"};
inline constexpr std::string_view kWraps[] = {"transformer", "size", "none"};
inline constexpr std::string_view kPrefetches[] = {"pre", "post", "none"};
inline constexpr Synonym kPrefetchSynonyms[] = {{"BACKWARD_PRE", "pre"}, {"BACKWARD_POST", "post"}};
inline constexpr std::string_view kStateDictTypes[] = {"full", "sharded", "local"};
inline constexpr Synonym kStateDictSynonyms[] = {
    {"FULL_STATE_DICT", "full"}, {"SHARDED_STATE_DICT", "sharded"}, {"LOCAL_STATE_DICT", "local"}};
inline constexpr std::string_view kReduceGradients[] = {"auto", "last", "each", "two_hop"};
inline constexpr Synonym kLimitSynonyms[] = {{"true", "2"}, {"false", "0"}};
inline constexpr Synonym kOffloadSynonyms[] = {
    {"none", "false"}, {"params", "true"}, {"params_and_optimizer", "true"}};
inline constexpr std::string_view kComputes[] = {"auto", "f32", "bf16", "f16"};
inline constexpr std::string_view kReduceDtypes[] = {"f32", "bf16", "f16"};
inline constexpr Synonym kDtypeSynonyms[] = {{"float32", "f32"},   {"fp32", "f32"},
                                             {"bfloat16", "bf16"}, {"float16", "f16"},
                                             {"fp16", "f16"},      {"half", "f16"}};

inline constexpr double kMostWhole = 9e15;  // whole numbers up to here are exact as double

inline constexpr Field kParallelFields[] = {
    row<&Config::parallel, &ParallelConfig::strategy>(
        "parallel.strategy",
        "none: one process. ddp: every rank holds the whole model and its share of each batch. "
        "full_shard (ZeRO-3): parameters, gradients and optimizer state are cut over ranks, and a "
        "unit is gathered while it computes. shard_grad_op (ZeRO-2): gathered units stay to the "
        "end of backward. hybrid_shard (MiCS): cut inside groups of shard_degree ranks, copied "
        "across groups. hybrid_shard_zero2: the same, and units stay gathered. auto: ddp where "
        "there are several ranks, hybrid_shard where shard_degree is given.")
        .one_of(kStrategies)
        .also(kStrategySynonyms)
        .warn(),
    row<&Config::parallel, &ParallelConfig::shard_degree>(
        "parallel.shard_degree",
        "Ranks that share one copy of the model; it divides the number of ranks.")
        .or_key("parallel.sharded_data_parallel_degree")
        .in("ranks")
        .at_least(0)
        .at_most(1e6)
        .unset_is("all ranks; with a hybrid strategy those of a node")
        .warn(),
    row<&Config::parallel, &ParallelConfig::ranks_per_node>(
        "parallel.ranks_per_node",
        "Declares nodes of so many neighbouring ranks, as if each were a host of its own.")
        .in("ranks")
        .at_least(0)
        .at_most(1e6)
        .unset_is("as launched")
        .warn(),
    row<&Config::parallel, &ParallelConfig::hierarchical_gather>(
        "parallel.hierarchical_gather",
        "Shard groups over several nodes gather first among equal ranks of the nodes, then inside "
        "each node, which sends less between nodes. auto: where a group fills whole nodes.")
        .one_of(kAutoBools)
        .warn(),
    row<&Config::parallel, &ParallelConfig::transport>(
        "parallel.transport",
        "How ranks talk. auto: nccl on GPUs, shm (shared memory) where all ranks of a group are "
        "on one host, else gloo.")
        .one_of(kTransports)
        .warn(),
    row<&Config::parallel, &ParallelConfig::wrap>(
        "parallel.wrap",
        "What is gathered at once. transformer: a block. size: neighbouring blocks until they "
        "have min_num_params parameters. none: the whole model.")
        .one_of(kWraps)
        .warn(),
    row<&Config::parallel, &ParallelConfig::min_num_params>(
        "parallel.min_num_params",
        "With wrap=size: parameters that are gathered at once, at least.")
        .in("parameters")
        .at_least(0)
        .at_most(kMostWhole)
        .warn(),
    row<&Config::parallel, &ParallelConfig::backward_prefetch>(
        "parallel.backward_prefetch",
        "When backward asks for the parameters of the unit that follows: before a unit's own "
        "backward (pre), after it (post), or when they are needed (none).")
        .one_of(kPrefetches)
        .also(kPrefetchSynonyms),
    row<&Config::parallel, &ParallelConfig::forward_prefetch>(
        "parallel.forward_prefetch",
        "Forward asks for the parameters of the unit that follows before it computes one."),
    row<&Config::parallel, &ParallelConfig::limit_all_gathers>(
        "parallel.limit_all_gathers",
        "Gathers under way at once, at most. `true` is 2, `false` is 0.")
        .also(kLimitSynonyms)
        .at_least(0)
        .at_most(1e6)
        .unset_is("no limit"),
    row<&Config::parallel, &ParallelConfig::reshard_after_forward>(
        "parallel.reshard_after_forward",
        "Whether gathered parameters are given up after forward and gathered again for backward. "
        "auto: as the strategy says; false makes full_shard the same as shard_grad_op.")
        .one_of(kAutoBools),
    row<&Config::parallel, &ParallelConfig::param_persistence_threshold>(
        "parallel.param_persistence_threshold",
        "Parameters with fewer elements stay on every rank.")
        .in("elements")
        .at_least(0)
        .at_most(kMostWhole)
        .unset_is("all are cut")
        .warn(),
    row<&Config::parallel, &ParallelConfig::max_live_parameters>(
        "parallel.max_live_parameters",
        "Gathered parameters on a rank at once, at most; what is needed is gathered anyway.")
        .in("elements")
        .at_least(0)
        .at_most(kMostWhole)
        .unset_is("no bound"),
    row<&Config::parallel, &ParallelConfig::cpu_offload>(
        "parallel.cpu_offload",
        "Parameters, gradients and optimizer state lie in host memory, and the optimizer steps "
        "there. `params` and `params_and_optimizer` are true, `none` is false.")
        .also(kOffloadSynonyms)
        .warn(),
    row<&Config::parallel, &ParallelConfig::efficient_loading>(
        "parallel.efficient_loading",
        "Rank 0 alone reads model.init_from, and the others receive their parts."),
    row<&Config::parallel, &ParallelConfig::use_orig_params>(
        "parallel.use_orig_params",
        "Accepted; parameters keep their own names and shapes, whatever it says."),
    row<&Config::parallel, &ParallelConfig::sync_module_states>(
        "parallel.sync_module_states",
        "Accepted; all ranks begin with the same weights, whatever it says."),
    row<&Config::parallel, &ParallelConfig::state_dict_type>(
        "parallel.state_dict_type",
        "Accepted; every rank saves its part, any number of ranks loads it, and the trained model "
        "is one file, whatever it says.")
        .one_of(kStateDictTypes)
        .also(kStateDictSynonyms),
    row<&Config::parallel, &ParallelConfig::activation_checkpointing>(
        "parallel.activation_checkpointing",
        "What backward computes again instead of keeping it: nothing, the cheap operations of "
        "every block (selective), every block (full), or every N-th block."),
    row<&Config::parallel, &ParallelConfig::activation_offload>(
        "parallel.activation_offload",
        "Inputs of checkpointed blocks wait for backward in host memory."),
    row<&Config::parallel, &ParallelConfig::activation_offload_horizon>(
        "parallel.activation_offload_horizon",
        "With activation_offload: blocks whose inputs are on the device at once.")
        .or_key("parallel.activation_offload.horizon")
        .in("blocks")
        .at_least(1)
        .at_most(10000),
    row<&Config::parallel, &ParallelConfig::bucket_mb>(
        "parallel.bucket_mb",
        "Gradients of neighbouring units travel together up to this size; larger units alone.")
        .in("MiB")
        .at_least(0)
        .at_most(65536),
    row<&Config::parallel, &ParallelConfig::reduce>(
        "parallel.reduce",
        "When gradients are added over ranks: after the last micro-batch of a step, after each, or "
        "after each inside a shard group and after the last across groups (two_hop). auto: last "
        "with ddp, two_hop with a hybrid strategy, each with the others.")
        .one_of(kReduceGradients)
        .warn(),
    row<&Config::parallel, &ParallelConfig::timeout>(
        "parallel.timeout",
        "How long a rank waits for the others in one operation before it fails.")
        .in("seconds")
        .at_least(1)
        .at_most(1e6),
    row<&Config::parallel, &ParallelConfig::heartbeat_timeout>(
        "parallel.heartbeat_timeout", "A rank without a sign of life for so long counts as gone.")
        .in("seconds")
        .at_least(3)
        .at_most(1e6),
    row<&Config::parallel, &ParallelConfig::check_every>(
        "parallel.check_every",
        "How often to compare the weights of all ranks, beside once at the start.")
        .at_least(0)
        .at_most(kMostWhole)
        .unset_is("never"),

    row<&Config::precision, &PrecisionConfig::compute>(
        "precision.compute",
        "Format of activations and products, and of gathered parameters; weights and optimizer "
        "state stay f32. auto takes what the device does fast.")
        .one_of(kComputes)
        .also(kDtypeSynonyms)
        .checked(check_number_format)
        .warn(),
    row<&Config::precision, &PrecisionConfig::param_dtype>(
        "precision.param_dtype", "Another name of precision.compute; auto leaves that as it is.")
        .one_of(kComputes)
        .also(kDtypeSynonyms)
        .checked(check_number_format)
        .warn(),
    row<&Config::precision, &PrecisionConfig::reduce_dtype>(
        "precision.reduce_dtype",
        "Format in which gradients travel; they are added in f32 and rounded once.")
        .one_of(kReduceDtypes)
        .also(kDtypeSynonyms)
        .checked(check_number_format)
        .warn(),
    row<&Config::precision, &PrecisionConfig::buffer_dtype>(
        "precision.buffer_dtype", "Accepted; these models have no buffers.")
        .one_of(kComputes)
        .also(kDtypeSynonyms)
        .checked(check_number_format),
    row<&Config::precision, &PrecisionConfig::loss_scale>(
        "precision.loss_scale", "First loss scale of f16; it adapts from there.")
        .at_least(1)
        .at_most(1.7e38),
};

}  // namespace tessera

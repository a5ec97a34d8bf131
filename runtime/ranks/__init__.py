"""One model on several machines, with its layers in stages, and each stage split among ranks.

Deciding, from configs and headers:
    parts, plan, stage_rank  what may be cut, who has which part, one rank's place in the plan
    slices                   which bytes of the files a rank needs
Loading:
    load, ranges, pieces     a rank's share, ranges of tensors, pieces of matrices
    trunk, stage, stream     where a network's layers are, one stage, what goes from stage to stage
    shards, calls            one shard of a stage; modules with a function behind them, such as a sum
    rules                    which of the following splits a sublayer
    splits, compressed_attention, convolved_attention,
    experts, rwkv, norms, recurrences, mamba1  one kind of sublayer each
    pairs                                      adapters
Running:
    group, links, ring, lane, timeouts   processes and connections: exchanges, messages, time limits
    decision                             what rank 0 decides, as values
    lead, follow                         rank 0, and the others
    memories, whole_model                layer memory that is spread over ranks
    free_room                            what each rank has free for its part of it
"""

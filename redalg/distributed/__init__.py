"""States across the ranks of a process group: every rank makes the state of its shard, and all merge the same states.

    arguments of a call   →  Shard        `shard`, `placements`: local tensors, and where they lie in the whole
    a shard               →  Header       `header`: one message of fixed size by which ranks agree, or fail together
    parts of an axis      →  states       `parts`: one a rank, or of fixed length
    the slots of a state  →  a message    `packed`: a buffer of a layout that all ranks compute alike
    a group, or a mesh    →  Ranks        `ranks`: the collectives, on the tensors' device
    GPUs of one machine   →  Window       `window`: memory that all ranks read; `exchange`: the choice between both
    calls of one kind     →  Agreement    `protocol`: what ranks agreed on once; a rank that fails stops all
    a call made before    →  its outputs  `ready`: the launches that are left, by the signature of the tensors
    a call                →  its outputs  `call`: leaf, message, merge in order of ranks, finish
    a call split by rows  →  its outputs  `rows`: shards travel around the ranks; `spans`: their places in the whole

`import redalg` loads none of this.
"""

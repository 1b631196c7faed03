"""FusedForm + Plan -> TileProgram: state, loads, loops and kernels."""

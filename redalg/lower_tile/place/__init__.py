"""FusedForm + Schedule -> TileProgram: state, loads, loops and kernels."""

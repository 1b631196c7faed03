"""TileProgram -> TileProgram: loops joined, values hoisted and shared."""

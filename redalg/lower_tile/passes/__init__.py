"""TileProgram -> TileProgram: loops joined, values hoisted and shared, what TileLang cannot do avoided."""

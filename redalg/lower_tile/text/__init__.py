"""TileProgram -> TileLang source."""
